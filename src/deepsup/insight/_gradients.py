"""Gradient statistics: mean, variance and norm of the gradient per layer, averaged over steps.

At one step, g is the gradient of the objective with respect to the weights of a layer, P values: the mean is
sum(g) / P, the variance sum((g - mean)^2) / P, the norm sqrt(sum(g^2)). The values of an epoch are the means over its
recorded steps. Biases and the scales of normalization layers are not included.
"""

import torch
from torch import Tensor, nn


class GradientStatistics:
    """Sums over the steps of an epoch, on the device."""

    def __init__(self, model: nn.Module) -> None:
        self.weights = {
            name.removesuffix(".weight"): weight for name, weight in model.named_parameters() if weight.ndim > 1
        }
        self.sums = torch.zeros(len(self.weights), 4, dtype=torch.float64)  # steps, means, variances, norms

    @torch.no_grad()
    def note(self) -> None:
        """Add the current gradients; a layer without a gradient is skipped."""
        rows = [row_of(weight) for weight in self.weights.values()]
        if rows:
            added = torch.stack(rows)
            self.sums = self.sums.to(added.device)
            self.sums += added

    def means(self, sums: Tensor) -> dict[str, dict[str, float]]:
        """Return ``gradient_means``, ``_variances`` and ``_norms``: layer -> mean over steps.

        sums: ``self.sums``, summed over all processes.
        """
        rows = dict(zip(self.weights, sums.tolist(), strict=True))
        return {
            f"gradient_{what}": {layer: row[place] / row[0] for layer, row in rows.items() if row[0]}
            for place, what in enumerate(("means", "variances", "norms"), 1)
        }


def row_of(weight: nn.Parameter) -> Tensor:
    """Return [4] for one step: 1, mean, variance and norm of the gradient; zeros without a gradient."""
    gradient = weight.grad
    if gradient is None:
        return torch.zeros(4, dtype=torch.float64, device=weight.device)
    mean, norm = gradient.mean().double(), torch.linalg.vector_norm(gradient).double()
    return torch.stack([torch.ones_like(mean), mean, norm.square() / gradient.numel() - mean.square(), norm])
