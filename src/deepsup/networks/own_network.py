"""Build a user's own network, given as ``package.module:factory``."""

import functools
import importlib
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from deepsup.config import Config
from deepsup.errors import ConfigError, DeepsupError


def own_network(config: Config, classes: int) -> nn.Module:
    """Call ``package.module:factory`` with num_classes and the network's options."""
    options = {"num_classes": classes, **config.network.options}
    sys.path.insert(0, str(Path.cwd()))  # a module in the current folder
    try:
        network = made(config.network.name, options)
    except DeepsupError:
        raise
    except Exception as error:
        call = ", ".join(f"{key}={value!r}" for key, value in options.items())
        raise ConfigError(
            f"network={config.network.name} cannot be built ({type(error).__name__}: {error}); expected "
            f"package.module:factory, a callable that takes {call}"
        ) from error
    finally:
        sys.path.pop(0)
    if not isinstance(network, nn.Module):
        raise ConfigError(f"network={config.network.name} gives a {type(network).__name__}; expected a torch.nn.Module")
    return network


def made(name: str, options: dict[str, Any]) -> Any:
    """Import the factory and call it; if torchvision lacks its operators, declare them and try once more."""
    try:
        return imported(name)(**options)
    except RuntimeError as error:
        if "operator torchvision::nms does not exist" not in str(error):
            raise
    declare_torchvision_operators()
    return imported(name)(**options)


def imported(name: str) -> Any:
    """Return the factory called ``package.module:factory``."""
    module, _, factory = name.partition(":")
    return getattr(importlib.import_module(module), factory)


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
