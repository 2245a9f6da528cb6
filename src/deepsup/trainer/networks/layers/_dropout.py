"""Dropout that does not rescale in training."""

import torch
from torch import Tensor, nn

from deepsup.trainer.networks._numbers import number, probability


class UnscaledDropout(nn.Module):
    """Multiply by the mask in training mode, and by ``eval_scale`` in evaluation mode.

    ``nn.Dropout`` divides by the keep rate in training ("inverted"). Two published nets do not:

    - the authors' Caffe code of DSN: ``eval_scale = 1 - p``, the expectation of the mask;
    - Maxout's raw input: ``p = 0.2, eval_scale = 1``: nothing compensates for the missing fifth.

    ``p`` is the probability that an activation is dropped, as in ``nn.Dropout``.
    """

    def __init__(self, p: float = 0.5, eval_scale: float = 1.0) -> None:
        super().__init__()
        self.p = probability("p of UnscaledDropout", p)
        self.eval_scale = number("eval_scale of UnscaledDropout", eval_scale, least=0)

    def forward(self, x: Tensor) -> Tensor:
        """[...] -> [...]."""
        if self.training:
            return x * torch.empty_like(x).bernoulli_(1 - self.p)
        return x * self.eval_scale

    def extra_repr(self) -> str:
        """Return the settings for ``print(network)``."""
        return f"p={self.p:g}, eval_scale={self.eval_scale:g}"
