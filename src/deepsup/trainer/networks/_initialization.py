"""Initialize the weights of layers by the name of a method."""

from collections.abc import Iterable
from functools import cache
from math import sqrt
from statistics import NormalDist

from torch import nn

from deepsup.trainer.networks._numbers import choice
from deepsup.trainer.networks.layers import DropConnectLinear, LocallyConnected2d, MaxoutConv2d, MaxoutLinear

Weighted = nn.Conv2d | nn.Linear | DropConnectLinear | LocallyConnected2d | MaxoutConv2d | MaxoutLinear


def draw_weights(layers: Iterable[nn.Module], init: object, own: str = "torch") -> None:
    """Draw the weights of convolutions and linear layers, unshared, maxout and DropConnect ones too.

    ``"he"`` draws Kaiming normal by the fan-in and sets biases to 0 (He et al. 2015): the signal keeps its size from
    layer to layer, so that a deep net without norm layers learns. ``"caffe"`` is the filler of NIN's and DSN's code:
    N(0, 0.05), biases 0.

    own: the name of what the layers have already, which stays: ``"torch"``, or ``"published"``.
    """
    if choice("init", init, (own, "caffe", "he")) == own:
        return
    for layer in layers:
        if isinstance(layer, Weighted):
            nn.init.normal_(layer.weight, std=he_deviation(layer) if init == "he" else 0.05)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def he_deviation(layer: Weighted) -> float:
    """Return the deviation with which a layer and what follows it keep the mean square of the signal.

    It is sqrt(2 / fan-in) before a ReLU, which halves the mean square. The largest of k pieces multiplies it by
    ``maxout_square(k)`` instead: 1 for two pieces, so that they get sqrt(1 / fan-in).

    >>> round(he_deviation(nn.Linear(50, 3)), 6), he_deviation(MaxoutLinear(100, 3, pieces=2))
    (0.2, 0.1)
    """
    weight = layer.weight
    fan_in = weight.shape[1] if isinstance(layer, LocallyConnected2d) else weight[0].numel()
    square = maxout_square(layer.pieces) if isinstance(layer, MaxoutConv2d | MaxoutLinear) else 0.5
    return sqrt(1 / square) / sqrt(fan_in)


@cache
def maxout_square(pieces: int) -> float:
    """Return the mean square of the largest of so many standard normal numbers: the integral over its density.

    >>> [maxout_square(pieces) for pieces in (1, 2, 4, 5)]
    [1.0, 1.0, 1.5513, 1.8]
    """
    normal, step = NormalDist(), 0.01
    values = [step * index for index in range(-1000, 1001)]
    density = (pieces * normal.pdf(x) * normal.cdf(x) ** (pieces - 1) for x in values)
    return round(sum(x * x * each * step for x, each in zip(values, density, strict=True)), 4)
