"""The maxout networks of Goodfellow et al. (ICML 2013), as in the files of pylearn2.

B batch, C channels, H W map, K classes.
"""

from typing import Any

from torch import nn

from deepsup.trainer.networks._initialization import draw_weights
from deepsup.trainer.networks._rows import Published, Rows
from deepsup.trainer.networks.layers import MaxoutConv2d, MaxoutLinear, UnscaledDropout

OPTIONS: dict[str, object] = {"init": "published"}
"""``init``: ``"published"`` draws weights from U(-0.005, 0.005) and sets biases to 0; ``"he"`` or ``"caffe"``."""

# kernel, padding, units, pieces, pooling window (stride 2), norm cap
_MNIST = ((8, 0, 48, 2, 4, 0.9), (8, 3, 48, 2, 4, 1.9365), (5, 3, 24, 4, 2, 1.9365))
_CIFAR = ((8, 4, 96, 2, 4, 0.9), (8, 3, 192, 2, 4, 1.9365), (5, 3, 192, 2, 2, 1.9365))
_SVHN = ((5, 4, 64, 2, 3, 0.9), (5, 3, 128, 2, 3, 1.9365), (5, 3, 128, 2, 3, 1.9365))
_SMALL_RATE = 0.05  # of the convolutions on CIFAR and SVHN, relative to the rest of the net


def maxout_mnist(table: Rows, num_classes: int, **options: Any) -> tuple[str, ...]:
    """Build the convolutional maxout net for MNIST: 471,994 parameters for 10 classes, 53,568 of them untied biases.

    Source: pylearn2's ``papers/maxout`` files, all published: units x pieces 48x2, 48x2, 24x4, biases one per location.
    Maps of a 28x28 image: 21x21; 10x10; 9x9; 4x4; 6x6; 3x3; then softmax.
    """
    _convolutions(table, _MNIST, rate=1.0, untied=True)
    _scores(table, num_classes)
    draw_weights(table.layers.values(), options["init"], own="published")
    return ("conv1", "conv2", "conv3")


def maxout_cifar(table: Rows, num_classes: int, **options: Any) -> tuple[str, ...]:
    """Build the maxout net for CIFAR-10: 16,247,830 parameters for 10 classes.

    Source: pylearn2's ``papers/maxout`` files, all published; for CIFAR-100 the paper uses the same with 100 outputs.
    Units x pieces 96x2, 192x2, 192x2, FC 500x5. Maps of a 32x32 image: 33x33; 16x16; 15x15; 7x7; 9x9; 5x5; 500; K.
    """
    _convolutions(table, _CIFAR, rate=_SMALL_RATE, untied=False)
    _hidden(table, 500)
    _scores(table, num_classes)
    draw_weights(table.layers.values(), options["init"], own="published")
    return ("conv1", "conv2", "conv3")


def maxout_svhn(table: Rows, num_classes: int, **options: Any) -> tuple[str, ...]:
    """Build the maxout net for SVHN: 10,461,050 parameters for 10 classes.

    Source: pylearn2's ``papers/maxout`` files, all published. Units x pieces 64x2, 128x2, 128x2, FC 400x5. Maps of a
    32x32 image: 36x36; 18x18; 20x20; 10x10; 12x12; 6x6; 400; K.
    """
    _convolutions(table, _SVHN, rate=_SMALL_RATE, untied=False)
    _hidden(table, 400)
    _scores(table, num_classes)
    draw_weights(table.layers.values(), options["init"], own="published")
    return ("conv1", "conv2", "conv3")


def _convolutions(
    table: Rows, rows: tuple[tuple[int, int, int, int, int, float], ...], rate: float, untied: bool
) -> None:
    """Add three maxout convolutions with max pooling; a fifth of the raw input is dropped without rescaling."""
    table.add("drop0", UnscaledDropout(0.2, eval_scale=1.0))
    for block, (kernel, padding, units, pieces, window, cap) in enumerate(rows, 1):
        size = table.convolved(kernel, padding)
        layer = MaxoutConv2d(table.channels, units, kernel, pieces, padding, untied=size if untied else None)
        table.maps(f"conv{block}", layer, units, size, Published(cap=cap, rate=rate, bias_rate=rate))
        table.max_pool(f"pool{block}", window, 2)
        table.add(f"drop{block}", nn.Dropout(0.5))
    table.flatten()


def _hidden(table: Rows, units: int) -> None:
    table.vector("fc", MaxoutLinear(table.features, units, pieces=5), units, Published(cap=1.9))
    table.add("drop4", nn.Dropout(0.5))


def _scores(table: Rows, num_classes: int) -> None:
    """Add the softmax layer, initialized like the others (our choice): U(-0.005, 0.005), biases 0."""
    scores = nn.Linear(table.features, num_classes)
    nn.init.uniform_(scores.weight, -0.005, 0.005)
    nn.init.zeros_(scores.bias)
    table.vector("scores", scores, num_classes, Published(cap=1.9365))
