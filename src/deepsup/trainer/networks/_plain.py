"""A plain deep net: 3x3 convolutions, nothing that helps the gradient.

B batch, C channels, H W map, K classes.
"""

from collections.abc import Sequence
from typing import Any

from torch import nn

from deepsup.errors import NetworkError
from deepsup.trainer.networks._initialization import draw_weights
from deepsup.trainer.networks._numbers import choice, count
from deepsup.trainer.networks._rows import Rows

OPTIONS: dict[str, object] = {"depth": 12, "widths": (16, 32, 48), "norm": "none", "init": "he"}
"""``depth``: the number of convolutions, in equal groups. ``widths``: the channels of each group, with max pooling 2/2
between groups. ``norm``: ``"batch"`` adds a BatchNorm after every convolution. ``init``: ``"he"``, ``"torch"`` or
``"caffe"``."""


def plain(table: Rows, num_classes: int, **options: Any) -> tuple[str, ...]:
    """Build a plain deep net: 116,218 parameters for 10 classes and grey images.

    Not from the paper: a net of any depth, to study when deep supervision helps. Maps of a 28x28 image: 16
    at 28x28; 32 at 14x14; 48 at 7x7; average over all; K. The taps end the first, second and third quarter of the
    convolutions, after their ReLU.
    """
    depth = count("depth", options["depth"])
    widths = _widths(options["widths"], depth)
    norm = choice("norm", options["norm"], ("none", "batch"))
    for index in range(depth):
        group = index * len(widths) // depth
        if index and group > (index - 1) * len(widths) // depth:
            table.max_pool(f"pool{group}", 2, 2)
        table.conv(f"conv{index + 1}", widths[group], 3, padding=1)
        if norm == "batch":
            table.add(f"norm{index + 1}", nn.BatchNorm2d(widths[group]))
        table.relu(f"relu{index + 1}")
    table.average()
    table.linear("scores", num_classes)
    draw_weights(table.layers.values(), options["init"])
    return tuple(dict.fromkeys(f"relu{max(1, quarter * depth // 4)}" for quarter in (1, 2, 3)))


def _widths(given: object, depth: int) -> tuple[int, ...]:
    if not isinstance(given, Sequence) or isinstance(given, str) or not 1 <= len(given) <= depth:
        raise NetworkError(f"widths are {given!r}; expected the channels of 1 to {depth} groups, e.g. (16, 32, 48)")
    return tuple(count("a width", width) for width in given)
