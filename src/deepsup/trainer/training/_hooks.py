"""What a network may bring to its training: methods of any module inside it, found by their names.

``fit_images(images)``      called once, before the first step, with training images [B,C,H,W] as the network gets them
``training_penalty()``      a number to add to the loss of every step, or None
``after_training_step()``   called after every step of the optimizer

So the loop knows no network, and a network of the user's own may have these too.
"""

from collections.abc import Callable
from typing import Any

from torch import nn


def hooks(network: nn.Module, name: str) -> list[Callable[..., Any]]:
    """Return the methods of this name, in the order of the modules."""
    return [getattr(module, name) for module in network.modules() if callable(getattr(module, name, None))]
