"""DropConnect (Wan et al. 2013): a linear layer [B,I] -> [B,O] that drops weights instead of outputs.

B batch, I inputs, O outputs, Z samples of the Gaussian inference.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepsup.errors import NetworkError
from deepsup.trainer.networks._numbers import choice, count, probability

# Maximum number of floats of a temporary (16 MB); masks are applied to as many samples at a time as fit, or to one.
_CHUNK = 1 << 22


class DropConnectLinear(nn.Module):
    """r = a((M * W) v + m * b), M and m drawn for every sample; a is ``activation`` (``None``: identity).

    ``keep`` is the paper's p: the probability of *keeping* a weight (nn.Dropout's p is that of dropping). Training
    does not rescale. In evaluation mode ``inference`` chooses between two rules:

    - ``"mean"``: a(p (W v + b)), deterministic, and the default of the NYU code;
    - ``"gaussian"``: u ~ N(p (W v + b), p (1 - p) (W^2 v^2 + b^2)), a(u) averaged over ``samples`` samples
      (the paper's Z = 1000). Masked biases have a variance too; the NYU code leaves b^2 out, and the paper's formula
      has no bias at all. We chose the moments of the masks drawn in training.

    A training step keeps B * I * O bytes of masks; its float temporaries have 16 MB each, or the size of one sample.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        keep: float = 0.5,
        activation: nn.Module | None = None,
        inference: str = "mean",
        samples: int = 1000,
    ) -> None:
        super().__init__()
        self.keep = probability("keep of DropConnectLinear", keep)
        self.inference = choice("inference of DropConnectLinear", inference, ("mean", "gaussian"))
        self.samples = count("samples of DropConnectLinear", samples)
        inputs = count("in_features of DropConnectLinear", in_features)
        outputs = count("out_features of DropConnectLinear", out_features)
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.empty(outputs))
        self.activation = nn.Identity() if activation is None else activation
        bound = 1 / math.sqrt(inputs)  # as in nn.Linear
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, v: Tensor) -> Tensor:
        """[B, I] -> [B, O]."""
        if v.dim() != 2 or v.shape[1] != self.weight.shape[1]:
            raise NetworkError(
                f"DropConnectLinear got a tensor of shape {tuple(v.shape)}; expected [B, {self.weight.shape[1]}]"
            )
        if not self.training and self.inference == "gaussian":
            return self._sampled(v)
        u = self._masked(v) if self.training else F.linear(v, self.weight, self.bias) * self.keep
        return self.activation(u)  # type: ignore[no-any-return]

    def _masked(self, v: Tensor) -> Tensor:
        """[B, I] -> [B, O], each sample with its own masks."""
        step = max(1, _CHUNK // self.weight.numel())
        sums = [self._masked_chunk(chunk) for chunk in torch.split(v.to(self.weight.dtype), step)]
        u = torch.cat(sums)
        return u + torch.empty_like(u).bernoulli_(self.keep) * self.bias

    def _masked_chunk(self, v: Tensor) -> Tensor:
        """[b, I] -> [b, O]. Autograd keeps only the mask, one byte per weight, not the float product [b, O, I]."""
        # twice as fast as bernoulli_ on bool, and masks are most of the layer's cost
        mask = torch.rand(len(v), *self.weight.shape, device=v.device) < self.keep
        return (self.weight * v.unsqueeze(1) * mask).sum(-1)

    def _sampled(self, v: Tensor) -> Tensor:
        """[B, I] -> [B, O]: the mean of the activation over ``samples`` samples of the matched Gaussian."""
        mean = F.linear(v, self.weight, self.bias) * self.keep
        variance = F.linear(v.square(), self.weight.square(), self.bias.square()) * (self.keep * (1 - self.keep))
        # the clamp keeps the gradient of sqrt finite if a sample and the bias are all zero
        deviation = variance.clamp_min(torch.finfo(variance.dtype).tiny).sqrt()
        step = max(1, _CHUNK // max(1, mean.numel()))
        total = torch.zeros_like(mean)
        for start in range(0, self.samples, step):
            draws = min(step, self.samples - start)
            noise = torch.randn(draws, *mean.shape, dtype=mean.dtype, device=mean.device)
            total = total + self.activation(mean + deviation * noise).sum(0)
        return total / self.samples

    def extra_repr(self) -> str:
        """Return the settings for ``print(network)``."""
        outputs, inputs = self.weight.shape
        return f"{inputs}, {outputs}, keep={self.keep:g}, inference={self.inference!r}, samples={self.samples}"
