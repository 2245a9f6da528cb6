"""Sizes and options -> the rows of a modern trunk that trains quickly on a CPU.

B batch, C channels, H W map, K classes.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepsup.errors import NetworkError
from deepsup.networks.checks import count, number, probability
from deepsup.networks.layers import Scale, WhiteningConv2d
from deepsup.networks.table import Table

OPTIONS: dict[str, object] = {"widths": (32, 128, 128), "scale": 1 / 9, "drop": 0.0}
"""``widths``: the channels of each group; there are as many groups. ``scale``: the factor on the scores.
``drop``: the probability of the dropout behind each group."""


def fast(table: Table, num_classes: int, **options: Any) -> tuple[str, ...]:
    """Build a whitening layer and groups of 3x3 convolutions: 497,216 parameters for 10 classes and colour images.

    Not of the paper. The parts are Page's (2018), hlb-CIFAR10's and cifar10-airbench's: whitened 2x2 patches, in each
    group convolution - max pooling 2/2 - BatchNorm - GELU - convolution - BatchNorm - GELU, convolutions that start
    as the identity on the channels they have, a global maximum, a linear layer without bias, small scores. The widths
    are chosen for two CPU cores. Maps of a 32x32 image: 24 at 31x31; 32 at 15x15; 128 at 7x7; 128 at 3x3; K.

    ``fit_whitening(network, images)`` sets the first layer from training images.
    """
    widths = _widths(options["widths"])
    drop = probability("drop", options["drop"])
    whitening = WhiteningConv2d(table.in_channels)
    table.maps("whiten", whitening, whitening.out_channels, table.convolved(whitening.kernel_size, 0))
    table.add("gelu", nn.GELU())
    for index, width in enumerate(widths, 1):
        table.maps(f"group{index}", _group(table.channels, width, drop), width, table.size // 2)
    table.maps("maximum", nn.AdaptiveMaxPool2d(1), table.channels, 1)
    table.flatten()
    table.vector("linear", nn.Linear(table.features, num_classes, bias=False), num_classes)
    table.add("scores", Scale(number("scale", options["scale"], least=0)))
    return tuple(f"group{index}" for index in range(1, len(widths) + 1))


def _widths(given: object) -> tuple[int, ...]:
    widths = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else ()
    if not widths:
        raise NetworkError(f"widths is {given!r}; expected the channels of each group, such as (32, 128, 128)")
    return tuple(count("a width of widths", width) for width in widths)


def _group(in_channels: int, width: int, drop: float) -> nn.Sequential:
    """[B, C, H, W] -> [B, width, H // 2, W // 2]."""
    layers = [
        PooledConv2d(in_channels, width),
        _norm(width),
        nn.GELU(),
        _identity_conv(width, width, padding=1),
        _norm(width),
        nn.GELU(),
    ]
    return nn.Sequential(*layers, *([nn.Dropout(drop)] if drop else []))


def _norm(width: int) -> nn.BatchNorm2d:
    """Unit variance, learned shifts: the next layer has the scale. It remembers only the last few batches."""
    norm = nn.BatchNorm2d(width, momentum=0.4)  # airbench's 0.6, in torch's terms
    norm.register_parameter("weight", None)
    return norm


class PooledConv2d(nn.Module):
    """A 3x3 convolution, padded by 1, and max pooling 2/2: [B, C, H, W] -> [B, width, H // 2, W // 2].

    Of a map with an odd side the pooling leaves the last row and column out; here they are not computed either, which
    is a quarter of the convolution at 7x7.
    """

    def __init__(self, in_channels: int, width: int) -> None:
        super().__init__()
        self.conv = _identity_conv(in_channels, width, padding=0)

    def forward(self, maps: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, width, H // 2, W // 2]."""
        height, width = maps.shape[-2:]
        return F.max_pool2d(self.conv(F.pad(maps, (1, 1 - width % 2, 1, 1 - height % 2))), 2)


def _identity_conv(in_channels: int, width: int, padding: int) -> nn.Conv2d:
    """A 3x3 convolution that hands on the channels it gets; what it has beyond those starts at random."""
    conv = nn.Conv2d(in_channels, width, 3, padding=padding, bias=False)
    with torch.no_grad():
        nn.init.dirac_(conv.weight[:in_channels])
    return conv


def fit_whitening(model: nn.Module, images: Tensor, eps: float = 5e-4) -> None:
    """Set the whitening layer inside ``model`` from training ``images`` [B, C, H, W], preprocessed as in training."""
    layers = [layer for layer in model.modules() if isinstance(layer, WhiteningConv2d)]
    if not layers:
        raise NetworkError(f"{type(model).__name__} has no whitening layer to fit; expected a 'fast' network")
    for layer in layers:
        layer.fit(images, eps)
