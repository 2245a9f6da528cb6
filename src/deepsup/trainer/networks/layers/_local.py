"""A convolution [B,C,H,W] -> [B,O,H',W'] with different filters at each position (unshared).

B batch, C channels, H W map, O output channels, H' W' output map, L = H' * W' positions, k kernel side.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepsup.errors import NetworkError
from deepsup.trainer.networks._numbers import count
from deepsup.trainer.networks.layers._memory_format import keep_format


class LocallyConnected2d(nn.Module):
    """cuda-convnet's ``local`` layer: its own filter and bias at every position of the output map, stride 1.

    ``size`` is the side of the (square) input map. ``weight`` is [L, C*k*k, O], ``bias`` [L*O]: flat, because
    one-dimensional parameters are usually excluded from weight decay.
    """

    def __init__(self, in_channels: int, out_channels: int, size: int, kernel_size: int, padding: int = 0) -> None:
        super().__init__()
        self.in_channels = count("in_channels of LocallyConnected2d", in_channels)
        self.size = count("size of LocallyConnected2d", size)
        self.kernel_size = count("kernel_size of LocallyConnected2d", kernel_size)
        self.padding = count("padding of LocallyConnected2d", padding, least=0)
        self.out_size = self.size + 2 * self.padding - self.kernel_size + 1
        if self.out_size < 1:
            raise NetworkError(
                f"LocallyConnected2d has kernels of {self.kernel_size}, its padded maps are "
                f"{self.size + 2 * self.padding} wide; expected maps at least as wide as the kernel"
            )
        places, fan_in = self.out_size**2, self.in_channels * self.kernel_size**2
        self.out_channels = count("out_channels of LocallyConnected2d", out_channels)
        self.weight = nn.Parameter(torch.empty(places, fan_in, self.out_channels))
        self.bias = nn.Parameter(torch.empty(places * self.out_channels))
        bound = 1 / math.sqrt(fan_in)  # as in nn.Conv2d
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, O, H', W']."""
        if x.shape[1:] != (self.in_channels, self.size, self.size):
            raise NetworkError(
                f"LocallyConnected2d got maps {tuple(x.shape[1:])}; it was built for "
                f"{(self.in_channels, self.size, self.size)}, and its filters belong to positions"
            )
        patches = F.unfold(x, self.kernel_size, padding=self.padding)  # [B, C*k*k, L]
        bias = self.bias.view(-1, 1, self.out_channels)  # [L, 1, O]
        out = torch.baddbmm(bias, patches.permute(2, 0, 1), self.weight)  # [L, B, O]
        maps = out.view(self.out_size, self.out_size, *out.shape[1:]).permute(2, 3, 0, 1)
        return keep_format(maps, x)

    def extra_repr(self) -> str:
        """Return the settings for ``print(network)``."""
        return (
            f"{self.in_channels}, {self.out_channels}, size={self.size}, kernel_size={self.kernel_size}, "
            f"padding={self.padding}"
        )
