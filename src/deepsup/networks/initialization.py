"""Initialize the weights of layers by the name of a method."""

from collections.abc import Iterable

from torch import nn

from deepsup.networks.numbers import choice

STARTS = ("torch", "caffe", "he")


def draw_weights(layers: Iterable[nn.Module], init: object) -> None:
    """Draw the weights of convolutions and linear layers.

    ``"torch"`` keeps torch's initialization. ``"he"`` draws Kaiming normal for ReLU and sets biases to 0 (He et al.
    2015): the signal keeps its size from layer to layer, so that a deep net without norm layers learns. ``"caffe"``
    is the filler of NIN's and DSN's code: N(0, 0.05), biases 0.
    """
    if choice("init", init, STARTS) == "torch":
        return
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            if init == "he":
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            else:
                nn.init.normal_(layer.weight, std=0.05)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
