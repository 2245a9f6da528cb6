"""The DropConnect networks of Wan et al. (ICML 2013).

B batch, C channels, H W map, K classes.
"""

from collections.abc import Iterable
from typing import Any

from torch import nn

from deepsup.trainer.networks._initialization import draw_weights
from deepsup.trainer.networks._rows import Published, Rows
from deepsup.trainer.networks.layers import DropConnectLinear, LocallyConnected2d, cross_map_norm

OPTIONS: dict[str, object] = {"keep": 0.5, "inference": "mean", "samples": 1000, "init": "published"}
"""``keep``: the probability of keeping a weight in the DropConnect layer. ``inference``: ``"mean"``, or ``"gaussian"``
as in the paper, with ``samples`` samples. ``init``: ``"published"``, ``"he"`` or ``"caffe"``."""


def dropconnect_cifar(table: Rows, num_classes: int, **options: Any) -> tuple[str, ...]:
    """Build the large CIFAR-10 net: 2,250,314 parameters for 10 classes and the paper's 24x24 crops.

    Source: ``wan13.pdf`` with the extractor of cuda-convnet's ``layers-conv-local-11pct.cfg``, published: 5x5 64, max
    3/2, norm; 5x5 64, norm, max 3/2; unshared 3x3 64 and 3x3 32; DropConnect 128; softmax. Initialized as in the paper:
    N(0, .01) for convolutions, N(0, .1) for fully connected; zero biases and .01 for the unshared layers are our
    choice. Maps of a 24x24 image: 64 at 24x24; 12x12; 12x12; 6x6; 64 at 6x6; 32 at 6x6; 128; K.

    The paper's 9.32 % is an ensemble of 12 such nets; one net has 11.10 %.
    """
    return _dropconnect(table, 128, num_classes, **options)


def dropconnect_svhn(table: Rows, num_classes: int, **options: Any) -> tuple[str, ...]:
    """Build the SVHN net: 3,629,994 parameters for 10 classes and the paper's 28x28 crops.

    As the CIFAR-10 net, but the DropConnect layer has 512 outputs, published. The paper's 1.94 % is an ensemble of 5
    such nets; one net has 2.23 %.
    """
    return _dropconnect(table, 512, num_classes, **options)


def _dropconnect(table: Rows, width: int, num_classes: int, init: str, **options: Any) -> tuple[str, ...]:
    _extractor(table)
    table.flatten()
    dropped = DropConnectLinear(table.features, width, activation=nn.ReLU(), **options)
    table.vector("fc", dropped, width, Published(bias_rate=2.0))
    table.linear("scores", num_classes, published=Published(bias_rate=2.0, decay=0.01))
    _start(table.layers.values())
    draw_weights(table.layers.values(), init, own="published")
    return ("conv1", "conv2", "local3", "local4")


def _extractor(table: Rows) -> None:
    """Add the convolutions; the norm comes after the first pooling but before the second, as in the cfg."""
    table.conv("conv1", 64, 5, padding=2, published=Published(bias_rate=2.0, decay=0.0))
    table.relu("relu1")
    table.max_pool("pool1", 3, 2)
    table.add("norm1", cross_map_norm())
    table.conv("conv2", 64, 5, padding=2, published=Published(bias_rate=2.0, decay=0.0))
    table.relu("relu2")
    table.add("norm2", cross_map_norm())
    table.max_pool("pool2", 3, 2)
    for name, width in (("local3", 64), ("local4", 32)):
        local = LocallyConnected2d(table.channels, width, table.size, 3, padding=1)
        table.maps(name, local, width, table.size, Published(bias_rate=2.0, decay=0.004))
        table.relu(f"relu{name[-1]}")


def _start(layers: Iterable[nn.Module]) -> None:
    for layer in layers:
        if isinstance(layer, (nn.Conv2d, LocallyConnected2d, DropConnectLinear, nn.Linear)):
            is_full = isinstance(layer, (DropConnectLinear, nn.Linear))
            nn.init.normal_(layer.weight, std=0.1 if is_full else 0.01)
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)
