"""The stochastic pooling networks of Zeiler & Fergus (2013, arXiv 1301.3557).

B batch, C channels, H W map, K classes.
"""

from typing import Any

from deepsup.trainer.networks._initialization import draw_weights
from deepsup.trainer.networks._rows import Published, Rows
from deepsup.trainer.networks.layers import StochasticPool2d, cross_map_norm

OPTIONS: dict[str, object] = {"init": "torch"}
"""``init``: ``"torch"``, ``"he"`` or ``"caffe"``."""


def stochastic_pooling(table: Rows, num_classes: int, **options: Any) -> tuple[str, ...]:
    """Build the net for CIFAR-10, CIFAR-100 and MNIST: 220,042 parameters for 10 classes and a 3x32x32 image.

    Source: the paper, from memory, not checked against its text: three times 5x5 convolution of 64 maps, ReLU, 3x3/2
    stochastic pooling, cross-map response norm; then one softmax layer. Chosen: padding 2, and cuda-convnet's
    constants of the norm (9, .001, .75). Maps of a 32x32 image: 64 at 32x32; 16x16; 16x16; 8x8; 8x8; 4x4; K.
    """
    return _stochastic_pooling(table, (64, 64, 64), num_classes, **options)


def stochastic_pooling_svhn(table: Rows, num_classes: int, **options: Any) -> tuple[str, ...]:
    """Build the net for SVHN: 332,746 parameters for 10 classes. As the others, but 64, 64, 128 maps (from memory)."""
    return _stochastic_pooling(table, (64, 64, 128), num_classes, **options)


def _stochastic_pooling(table: Rows, widths: tuple[int, ...], num_classes: int, **options: Any) -> tuple[str, ...]:
    """Add the rows. Published rates (from memory): .01 for convolutions, 1 for the softmax; decay .001 everywhere."""
    for block, width in enumerate(widths, 1):
        table.conv(f"conv{block}", width, 5, padding=2, published=Published(rate=0.01, bias_rate=0.01, decay=0.001))
        table.relu(f"relu{block}")
        table.pool(f"pool{block}", StochasticPool2d(3, 2), 3, 2)
        table.add(f"norm{block}", cross_map_norm())
    table.flatten()
    table.linear("scores", num_classes, published=Published(decay=0.001))
    draw_weights(table.layers.values(), options["init"])
    return tuple(f"conv{block}" for block in range(1, len(widths) + 1))
