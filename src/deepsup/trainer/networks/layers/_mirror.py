"""Layers equivariant to horizontal flips, on maps [B,C,H,W] whose channels come in mirrored pairs.

The second half of the channels uses the filters of the first half, flipped. A flip of the image swaps the halves and
flips the maps, and does nothing else, so the net learns both orientations from one image. The idea is from Cohen and
Welling (group-equivariant networks, 2016), here for the smallest group. B batch, C channels, H W map.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def swapped(channels: int) -> tuple[int, ...]:
    """Return the index of each channel after a flip: that of its partner in the other half."""
    return tuple((index + channels // 2) % channels for index in range(channels))


class MirrorConv2d(nn.Conv2d):
    """A 3x3 convolution, padded by 1, to mirrored pairs: half of its filters are learned, the rest are flipped copies.

    ``order`` is, for every input channel, the channel that it becomes after a flip.
    """

    order: Tensor

    def __init__(self, in_channels: int, width: int, order: Sequence[int]) -> None:
        super().__init__(in_channels, width // 2, 3, padding=1, bias=False)
        self.register_buffer("order", torch.tensor(order), persistent=False)

    def filters(self) -> tuple[Tensor, Tensor]:
        """Return the learned half [C'/2, C, 3, 3] and its flipped copy."""
        return self.weight, self.weight.index_select(1, self.order).flip(3)

    def forward(self, maps: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, C', H, W]."""
        return F.conv2d(maps, torch.cat(self.filters()), padding=1)


class MirrorPooledConv2d(MirrorConv2d):
    """The same with max pooling 2/2; for an odd side, each half drops the last column in its own orientation."""

    def forward(self, maps: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, C', H // 2, W // 2]."""
        height, width = maps.shape[-2:]
        bottom = 1 - height % 2
        if width % 2 == 0:
            return F.max_pool2d(F.conv2d(F.pad(maps, (1, 1, 1, bottom)), torch.cat(self.filters())), 2)
        sides = ((1, 0, 1, bottom), (0, 1, 1, bottom))
        halves = [F.conv2d(F.pad(maps, side), half) for side, half in zip(sides, self.filters(), strict=True)]
        return F.max_pool2d(torch.cat(halves, 1), 2)


def paired(maps: Tensor) -> Tensor:
    """[B, C, H, W] -> [B, C/2, H, 2W] in channels_last: a pair of channels side by side as one map."""
    batch, channels, height, width = maps.shape
    pixels = maps.permute(0, 2, 3, 1).reshape(batch, height, 2 * width, channels // 2)
    return pixels.permute(0, 3, 1, 2)


class MirrorNorm2d(nn.Module):
    """A norm of C/2 channels for maps of C: both channels of a pair share its mean, variance and shift."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, maps: Tensor) -> Tensor:
        """[B, C, H, W] -> the same shape."""
        batch, channels, height, width = maps.shape
        pixels: Tensor = self.norm(paired(maps)).permute(0, 2, 3, 1)
        return pixels.reshape(batch, height, width, channels).permute(0, 3, 1, 2)


class MirrorMaximum(nn.Module):
    """The global maximum of each pair of channels: the same for an image and its mirror image."""

    def forward(self, maps: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, C/2, 1, 1]."""
        return F.adaptive_max_pool2d(paired(maps), 1)
