"""A companion for inference: the same scores as its ``Head``, up to rounding, in half of the time for one sample.

B batch, K classes.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepsup.supervision import Head, pool

TINY = 1e-6


class LeanHead:
    """Features [B, ...] -> scores [B,K], with the weights of a companion: no checks and no gradient.

    Weights are looked up once, not in every call: for a batch of one, that is what a companion spends its time on.
    """

    def __init__(self, head: Head) -> None:
        self.how, self.layout, self.grid = head.companion.pool, head.layout, head.grid
        self.length = head.companion.length
        hidden = [layer for layer in head.hidden.modules() if isinstance(layer, nn.Linear)]
        self.hidden = [(layer.weight, layer.bias) for layer in hidden]
        self.weight, self.bias = head.classifier.weight, head.classifier.bias
        self.dtype = head.first.weight.dtype

    def __call__(self, features: Tensor) -> Tensor:
        """Features [B, ...] -> scores [B,K]."""
        flat = pool(features, self.how, self.layout, self.grid).flatten(1)
        if flat.dtype is not self.dtype and not torch.is_autocast_enabled(flat.device.type):
            flat = flat.to(self.dtype)
        if self.length is not None:
            flat = scaled_rows(flat, self.length)
        for weight, bias in self.hidden:
            flat = F.linear(flat, weight, bias).relu_()
        return F.linear(flat, self.weight, self.bias)


def scaled_rows(flat: Tensor, length: float) -> Tensor:
    """Scale the rows of [B,D] to the same L2 norm; zeros stay 0."""
    wide = flat if flat.dtype is torch.float32 else flat.to(torch.promote_types(flat.dtype, torch.float32))
    norm: Tensor = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
    return (wide * (length / norm.clamp_min_(TINY))).to(flat.dtype)
