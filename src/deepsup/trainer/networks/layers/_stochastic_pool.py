"""Stochastic pooling (Zeiler & Fergus 2013) of non-negative maps [B,C,H,W] -> [B,C,H',W'].

B batch, C channels, H W map, H' W' pooled map, k window side.
"""

import math
from functools import reduce

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepsup.errors import NetworkError
from deepsup.trainer.networks._numbers import count
from deepsup.trainer.networks.layers._memory_format import keep_format


class StochasticPool2d(nn.Module):
    """Stochastic pooling: in a window with activations a, cell i has probability a_i / sum(a).

    Training draws one cell per sample, map and window; the gradient goes to that cell only. Evaluation returns the
    expectation, sum(a^2) / sum(a). Windows may overhang at the right and bottom (ceil mode); cells outside the map
    count as zero and are never drawn.

    We did not find what the paper says about windows without a positive cell; here, as in all code we read, they give
    0. Negative cells are never drawn: put the layer after a ReLU.
    """

    def __init__(self, kernel_size: int, stride: int | None = None) -> None:
        super().__init__()
        self.kernel_size = count("kernel_size of StochasticPool2d", kernel_size)
        self.stride = self.kernel_size if stride is None else count("stride of StochasticPool2d", stride)
        if self.stride > self.kernel_size:
            raise NetworkError(
                f"stride of StochasticPool2d is {self.stride}, its windows {self.kernel_size} wide; "
                "expected a stride of at most the window, so that no cell is left out"
            )

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, C, H', W']."""
        smallest = self.kernel_size - self.stride + 1
        if x.dim() != 4 or min(x.shape[2:]) < smallest:
            raise NetworkError(
                f"StochasticPool2d got a tensor of shape {tuple(x.shape)}; "
                f"expected [B, C, H, W] with H and W of at least {smallest}"
            )
        active = x.clamp(min=0)
        if not self.training:
            return self._expected(active)
        drawn = self._draw(active.detach())
        pooled = active.flatten(2).gather(2, drawn.flatten(2)).view(drawn.shape)
        return keep_format(pooled, x)

    def _expected(self, active: Tensor) -> Tensor:
        """Return sum(a^2) / sum(a) of every window; the divisor of the means cancels."""
        total = F.avg_pool2d(active, self.kernel_size, self.stride, ceil_mode=True)
        squares = F.avg_pool2d(active.square(), self.kernel_size, self.stride, ceil_mode=True)
        return squares / torch.where(total > 0, total, 1.0)

    @torch.no_grad()
    def _draw(self, active: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, C, H', W'] long: the flat index in H x W of the cell that each window drew."""
        k, stride, (height, width) = self.kernel_size, self.stride, active.shape[2:]
        padded = F.pad(active, (0, self._overhang(width), 0, self._overhang(height)))
        rows, columns = ((side - k) // stride + 1 for side in padded.shape[2:])
        # cell (y, x) of every window at once; k*k slices are faster than unfolded windows and need one draw per window
        cells = [
            padded[:, :, y : y + stride * rows : stride, x : x + stride * columns : stride]
            for y in range(k)
            for x in range(k)
        ]
        total = reduce(torch.add, cells)
        # the first cell at which the cumulative sum reaches a threshold in (0, total]: never a zero cell
        threshold = total * (1 - torch.rand_like(total))
        reached, cell = torch.zeros_like(total), torch.zeros_like(total, dtype=torch.long)
        for values in cells:
            reached = reached + values
            cell += reached < threshold
        # compilers may round the two sums differently; the clamps then keep a draw inside the map
        y = (torch.arange(rows, device=cell.device)[:, None] * stride + cell // k).clamp(max=height - 1)
        x = (torch.arange(columns, device=cell.device) * stride + cell % k).clamp(max=width - 1)
        return y * width + x

    def _overhang(self, side: int) -> int:
        """Return by how many cells the last window overhangs."""
        windows = math.ceil((side - self.kernel_size) / self.stride) + 1
        return (windows - 1) * self.stride + self.kernel_size - side

    def extra_repr(self) -> str:
        """Return the settings for ``print(network)``."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}"
