"""Muon for convolutions, with SGD for all other parameters."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Muon(torch.optim.SGD):
    """SGD whose groups with ``orthogonal`` step along the (nearly) orthogonal matrix nearest to their momentum.

    From Jordan (2024), as in cifar10-airbench: the weights of a convolution are a matrix with one row per output
    channel. They are kept at the norm of an orthogonal matrix, so that ``lr`` is the relative length of a step; this
    needs a normalization layer after the convolution, which undoes their scale. torch.optim.Muon only takes matrices,
    and always computes in bfloat16; here ``products`` says in what the matrix products of a step are computed, by
    default in the weights' own type. A processor with instructions for bfloat16 is three times as fast in it, another
    one slower.
    """

    def __init__(self, params: Any, *, products: torch.dtype | None = None, **settings: Any) -> None:
        super().__init__(params, **settings)
        self.products = products

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Take a step. The gradients of Muon's parameters are deleted, so that SGD skips them."""
        for group in self.param_groups:
            if group["orthogonal"]:
                for weight in group["params"]:
                    if weight.grad is not None:
                        self.turn(weight, weight.grad, group)
                        weight.grad = None
        return super().step(closure)

    def turn(self, weight: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        """Take the step of one weight."""
        momentum = self.state[weight].setdefault("momentum_buffer", torch.zeros_like(weight))
        momentum.mul_(group["momentum"]).add_(gradient)
        direction = gradient.add(momentum, alpha=group["momentum"]) if group["nesterov"] else momentum
        weight.mul_(len(weight) ** 0.5 / weight.norm())
        step = orthogonalize(direction.flatten(1), dtype=self.products)
        weight.sub_(step.view_as(weight), alpha=group["lr"])


def orthogonalize(matrix: Tensor, steps: int = 3, dtype: torch.dtype | None = None) -> Tensor:
    """[R, C] -> U S V' with singular values S of about 0.5 to 1.5; tiny ones stay smaller.

    Newton-Schulz iteration with Jordan's polynomial of degree 5, whose large slope at 0 needs few steps.

    dtype: what it computes in, by default the matrix's own; the answer has the matrix's.
    """
    x: Tensor = (matrix / (matrix.norm() + 1e-7)).to(dtype or matrix.dtype)
    if tall := len(x) > x.shape[1]:
        x = x.T
    for _ in range(steps):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return (x.mT if tall else x).to(matrix.dtype)
