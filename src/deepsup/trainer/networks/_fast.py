"""A modern trunk that trains quickly on a CPU.

B batch, C channels, H W map, K classes.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepsup.errors import NetworkError
from deepsup.trainer.networks._numbers import count, flag, number, probability
from deepsup.trainer.networks._rows import Rows
from deepsup.trainer.networks.layers import (
    MirrorConv2d,
    MirrorMaximum,
    MirrorNorm2d,
    MirrorPooledConv2d,
    Scale,
    WhiteningConv2d,
    swapped,
)

OPTIONS: dict[str, object] = {"widths": (32, 128, 128), "scale": 1 / 9, "drop": 0.0, "mirror": False}
"""``widths``: the channels of each group, one group per width. ``scale``: the factor on the scores.
``drop``: the probability of the dropout after each group. ``mirror``: whether channels come in mirrored pairs."""


def fast(table: Rows, num_classes: int, **options: Any) -> tuple[str, ...]:
    """Build a whitening layer and groups of 3x3 convolutions: 497,216 parameters for 10 classes and colour images.

    Not from the paper. The parts are from Page (2018), hlb-CIFAR10 and cifar10-airbench: whitened 2x2 patches, in each
    group convolution - max pooling 2/2 - BatchNorm - GELU - convolution - BatchNorm - GELU, convolutions initialized
    as the identity on their input channels, a global maximum, a linear layer without bias, small scores. The widths
    are chosen for two CPU cores. Maps of a 32x32 image: 24 at 31x31; 32 at 15x15; 128 at 7x7; 128 at 3x3; K.

    With ``mirror`` an image and its mirror image have the same scores: half of the filters are mirror images of the
    other half (``layers/mirror.py``). The arithmetic is the same with half the parameters, and flip augmentation has no
    effect. Use it for objects whose left and right look alike, not for digits.

    ``fit_whitening(network, images)`` sets the first layer from training images.
    """
    mirror = flag("mirror", options["mirror"])
    widths = _widths(options["widths"], pairs=mirror)
    drop = probability("drop", options["drop"])
    whitening = WhiteningConv2d(table.in_channels, mirror=mirror)
    table.maps("whiten", whitening, whitening.out_channels, table.convolved(whitening.kernel_size, 0))
    table.add("gelu", nn.GELU())
    order = whitening.order
    for index, width in enumerate(widths, 1):
        table.maps(f"group{index}", _group(table.channels, width, drop, order), width, table.size // 2)
        order = swapped(width) if mirror else None
    maximum = MirrorMaximum() if mirror else nn.AdaptiveMaxPool2d(1)
    table.maps("maximum", maximum, table.channels // 2 if mirror else table.channels, 1)
    table.flatten()
    table.vector("linear", nn.Linear(table.features, num_classes, bias=False), num_classes)
    table.add("scores", Scale(number("scale", options["scale"], least=0)))
    return tuple(f"group{index}" for index in range(1, len(widths) + 1))


def _widths(given: object, pairs: bool) -> tuple[int, ...]:
    widths = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else ()
    if not widths:
        raise NetworkError(f"widths is {given!r}; expected the channels of each group, such as (32, 128, 128)")
    widths = tuple(count("a width of widths", width) for width in widths)
    if pairs and any(width % 2 for width in widths):
        raise NetworkError(f"widths is {given!r} with mirror; expected even numbers, since channels come in pairs")
    return widths


def _group(in_channels: int, width: int, drop: float, order: Sequence[int] | None) -> nn.Sequential:
    """[B, C, H, W] -> [B, width, H // 2, W // 2]; ``order``: the channel that each becomes when flipped, or None."""
    pooled: PooledConv2d | MirrorPooledConv2d
    conv: nn.Conv2d | MirrorConv2d
    if order is None:
        pooled, conv = PooledConv2d(in_channels, width), nn.Conv2d(width, width, 3, padding=1, bias=False)
    else:
        pooled, conv = MirrorPooledConv2d(in_channels, width, order), MirrorConv2d(width, width, swapped(width))
    for weight, channels in ((pooled.weight, in_channels), (conv.weight, width)):
        with torch.no_grad():  # pass the input channels on; all further channels are random
            nn.init.dirac_(weight[: channels if order is None else channels // 2])
    layers = [pooled, _norm(width, order), nn.GELU(), conv, _norm(width, order), nn.GELU()]
    return nn.Sequential(*layers, *([nn.Dropout(drop)] if drop else []))


def _norm(width: int, order: Sequence[int] | None) -> nn.Module:
    """Normalize to unit variance with learned shifts; running statistics cover only the last few batches."""
    norm = nn.BatchNorm2d(width if order is None else width // 2, momentum=0.4)  # airbench's 0.6, in torch's terms
    norm.register_parameter("weight", None)
    return norm if order is None else MirrorNorm2d(norm)


class PooledConv2d(nn.Conv2d):
    """A 3x3 convolution, padded by 1, and max pooling 2/2: [B, C, H, W] -> [B, width, H // 2, W // 2].

    The pooling drops the last row and column of a map with an odd side. They are not computed here, which saves a
    quarter of the convolution at 7x7.
    """

    def __init__(self, in_channels: int, width: int) -> None:
        super().__init__(in_channels, width, 3, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, width, H // 2, W // 2]."""
        height, width = maps.shape[-2:]
        return F.max_pool2d(super().forward(F.pad(maps, (1, 1 - width % 2, 1, 1 - height % 2))), 2)


def fit_whitening(model: nn.Module, images: Tensor, eps: float = 5e-4) -> None:
    """Set the whitening layer inside ``model`` from training ``images`` [B, C, H, W], preprocessed as in training."""
    layers = [layer for layer in model.modules() if isinstance(layer, WhiteningConv2d)]
    if not layers:
        raise NetworkError(f"{type(model).__name__} has no whitening layer to fit; expected a 'fast' network")
    for layer in layers:
        layer.fit_images(images, eps)
