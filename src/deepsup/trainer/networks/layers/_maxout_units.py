"""Maxout (Goodfellow et al., ICML 2013): each unit is the largest of k linear maps.

B batch, C channels, H W map, D features, U units, k pieces.
"""

from functools import reduce

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepsup.trainer.networks._numbers import count


def _largest_piece(pieces: Tensor, k: int, dim: int) -> Tensor:
    """k*U along ``dim`` -> U: piece j of unit u is row j*U + u; a tie shares the gradient evenly."""
    # a chain of maximum, not amax over a fifth dimension: amax returns NCHW, and its backward is up to 5 times slower
    return reduce(torch.maximum, pieces.chunk(k, dim))


class MaxoutConv2d(nn.Module):
    """A convolution into ``pieces * out_channels`` maps, of which each unit keeps the largest of its pieces.

    ``untied`` is the side of the output map: one bias per filter *and location*, as in Maxout's MNIST
    net; ``None`` is one bias per filter. The default is the published initialization, U(-0.005, 0.005) with zero
    biases.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        pieces: int,
        padding: int = 0,
        untied: int | None = None,
        init_range: float = 0.005,
    ) -> None:
        super().__init__()
        self.pieces = count("pieces of MaxoutConv2d", pieces)
        self.out_channels = count("out_channels of MaxoutConv2d", out_channels)
        self.padding = count("padding of MaxoutConv2d", padding, least=0)
        kernel = count("kernel_size of MaxoutConv2d", kernel_size)
        filters = self.pieces * self.out_channels
        self.weight = nn.Parameter(
            torch.empty(filters, count("in_channels of MaxoutConv2d", in_channels), kernel, kernel)
        )
        self.untied = None if untied is None else count("untied of MaxoutConv2d", untied)
        # flat even if untied: one-dimensional parameters are usually excluded from weight decay
        self.bias = nn.Parameter(torch.zeros(filters * (self.untied or 1) ** 2))
        nn.init.uniform_(self.weight, -init_range, init_range)

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, U, H', W']."""
        if self.untied is None:
            return _largest_piece(F.conv2d(x, self.weight, self.bias, padding=self.padding), self.pieces, -3)
        bias = self.bias.view(-1, self.untied, self.untied)
        pieces = F.conv2d(x, self.weight, padding=self.padding) + bias
        return _largest_piece(pieces, self.pieces, -3)

    def extra_repr(self) -> str:
        """Return the settings for ``print(network)``."""
        filters, in_channels, kernel, _ = self.weight.shape
        biases = "one a filter" if self.untied is None else "one a filter and location"
        return (
            f"{in_channels}, {filters // self.pieces}, kernel_size={kernel}, pieces={self.pieces}, "
            f"padding={self.padding}, biases={biases}"
        )


class MaxoutLinear(nn.Module):
    """A linear map into ``pieces * out_features`` values, of which each unit keeps the largest of its pieces."""

    def __init__(self, in_features: int, out_features: int, pieces: int, init_range: float = 0.005) -> None:
        super().__init__()
        self.pieces = count("pieces of MaxoutLinear", pieces)
        self.out_features = count("out_features of MaxoutLinear", out_features)
        rows = self.pieces * self.out_features
        self.weight = nn.Parameter(torch.empty(rows, count("in_features of MaxoutLinear", in_features)))
        self.bias = nn.Parameter(torch.zeros(rows))
        nn.init.uniform_(self.weight, -init_range, init_range)

    def forward(self, x: Tensor) -> Tensor:
        """[B, D] -> [B, U]."""
        return _largest_piece(F.linear(x, self.weight, self.bias), self.pieces, -1)

    def extra_repr(self) -> str:
        """Return the settings for ``print(network)``."""
        rows, in_features = self.weight.shape
        return f"{in_features}, {rows // self.pieces}, pieces={self.pieces}"
