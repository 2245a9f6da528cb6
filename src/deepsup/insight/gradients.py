"""The gradients of a net after a backward pass in, their mean, variance and norm a layer, averaged over steps, out.

Of the gradient g of the objective with respect to the weights of a layer, P numbers, at one step: the mean is
sum(g) / P, the variance sum((g - mean)^2) / P, the norm sqrt(sum(g^2)). An epoch's are the means of these over the
steps recorded. Biases and the scales of normalisations are left out.
"""

import torch
from torch import Tensor, nn


class GradientStatistics:
    """Sums over the steps of an epoch, kept on the device."""

    def __init__(self, model: nn.Module) -> None:
        self.weights = {
            name.removesuffix(".weight"): weight for name, weight in model.named_parameters() if weight.ndim > 1
        }
        self.sums = torch.zeros(len(self.weights), 4, dtype=torch.float64)  # steps, means, variances, norms

    @torch.no_grad()
    def note(self) -> None:
        """Add the gradients as they stand; a layer that got none at this step is left out."""
        rows = [row_of(weight) for weight in self.weights.values()]
        if rows:
            added = torch.stack(rows)
            self.sums = self.sums.to(added.device)
            self.sums += added

    def means(self, sums: Tensor) -> dict[str, dict[str, float]]:
        """Return ``gradient_means``, ``_variances`` and ``_norms``: layer -> mean over steps.

        sums: ``self.sums``, added up over all processes.
        """
        held = dict(zip(self.weights, sums.tolist(), strict=True))
        return {
            f"gradient_{what}": {layer: row[place] / row[0] for layer, row in held.items() if row[0]}
            for place, what in enumerate(("means", "variances", "norms"), 1)
        }


def row_of(weight: nn.Parameter) -> Tensor:
    """Return [4] for one step: 1, mean, variance and norm of the gradient; zeros where there is none."""
    gradient = weight.grad
    if gradient is None:
        return torch.zeros(4, dtype=torch.float64, device=weight.device)
    mean, norm = gradient.mean().double(), torch.linalg.vector_norm(gradient).double()
    return torch.stack([torch.ones_like(mean), mean, norm.square() / gradient.numel() - mean.square(), norm])
