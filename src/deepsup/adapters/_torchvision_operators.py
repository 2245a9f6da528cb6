"""A torchvision that can be imported beside a CPU build of torch."""

import functools
from collections.abc import Callable
from typing import Any

import torch


def with_torchvision(call: Callable[[], Any]) -> Any:
    """Return what a call returns; where torchvision lacks its operators, declare them and try once more."""
    try:
        return call()
    except RuntimeError as error:
        if "operator torchvision::nms does not exist" not in str(error):
            raise
    declare_torchvision_operators()
    return call()


@functools.cache
def declare_torchvision_operators() -> Any:
    """Declare the two operators of torchvision's compiled extension, if that cannot be loaded.

    This is so for torchvision 0.28 with a CPU build of torch: without the operators ``import torchvision`` fails, and
    timm with it. No classifier calls them. The returned library must stay alive: the cache keeps it.
    """
    make: Any = torch.library.Library  # torch leaves it untyped
    library = make("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library
