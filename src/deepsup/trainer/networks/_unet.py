"""A small U-Net: images [B,C,H,W] -> scores of every pixel [B,K,H,W].

B batch, C channels, H W image, K classes.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepsup.errors import NetworkError
from deepsup.trainer.networks._initialization import draw_weights
from deepsup.trainer.networks._numbers import count
from deepsup.trainer.networks._rows import MapVanishedError, Network, Rows

OPTIONS: dict[str, object] = {"widths": (16, 24, 32, 48)}
"""``widths``: the channels of each resolution, the finest first."""


class UNetNetwork(Network):
    """A U-Net: ``encoder1`` to ``bottleneck``, each at half the resolution of the one before, and back by decoders."""

    def forward(self, images: Tensor) -> Tensor:
        """[B, C, H, W] -> scores [B, K, H, W]."""
        self._check(images)
        depth = sum(row.startswith("encoder") for row in self._order)
        x, skips = images, []
        for level in range(1, depth + 1):
            x = self.get_submodule(f"encoder{level}")(x)
            skips.append(x)
            x = F.max_pool2d(x, 2, ceil_mode=True)
        x = self.get_submodule("bottleneck")(x)
        for level in range(depth, 0, -1):
            skip = skips[level - 1]
            x = F.interpolate(x, size=skip.shape[2:], mode="nearest")
            x = self.get_submodule(f"decoder{level}")(torch.cat([skip, x], 1))
        scores: Tensor = self.get_submodule("scores")(x)
        return scores


def unet_small(table: Rows, num_classes: int, **options: Any) -> tuple[str, ...]:
    """Build a small U-Net: 120,331 parameters for 11 classes and grey images.

    Not from the paper: a net for segmentation on CPUs. Each stage is two 3x3 convolutions with BatchNorm and ReLU. The
    taps are the decoder's stages, except the finest one.
    """
    *widths, bottom = _widths(options["widths"])
    if table.size < 2 ** len(widths):
        raise MapVanishedError("bottleneck")
    sizes = []
    for level, width in enumerate(widths, 1):
        table.maps(f"encoder{level}", _stage(table.channels, width), width, table.size)
        sizes.append(table.size)
        table.size = -(-table.size // 2)
    table.maps("bottleneck", _stage(table.channels, bottom), bottom, table.size)
    for level in range(len(widths), 0, -1):
        width = widths[level - 1]
        table.maps(f"decoder{level}", _stage(width + table.channels, width), width, sizes[level - 1])
    table.conv("scores", num_classes, 1)
    stages = [stage for name, stage in table.layers.items() if name != "scores"]  # its scores start small
    draw_weights([layer for stage in stages for layer in stage.modules()], "he")
    return tuple(f"decoder{level}" for level in range(len(widths), 1, -1))


def _stage(channels: int, width: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before in (channels, width):
        layers += [nn.Conv2d(before, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers)


def _widths(given: object) -> tuple[int, ...]:
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) < 2:
        raise NetworkError(f"widths are {given!r}; expected the channels of two or more resolutions, e.g. (16, 24, 32)")
    return tuple(count("a width", width) for width in given)
