"""Build a user's own network, given as ``package.module:factory``."""

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from deepsup.errors import ConfigError, DeepsupError
from deepsup.trainer.config import Config

Factory = Callable[..., Any]


def own_network(config: Config, classes: int, factory: Factory | None = None) -> nn.Module:
    """Call the factory with num_classes and the network's options; by default the one that the config names.

    Only a training imports by name: its user has typed the name, so that a module of the current folder will do.
    """
    options = {"num_classes": classes, **config.network.options}
    try:
        with nullcontext() if factory else current_folder_searched():
            network = with_torchvision(lambda: (factory or imported(config.network.name))(**options))
    except DeepsupError:
        raise
    except Exception as error:
        call = ", ".join(f"{key}={value!r}" for key, value in options.items())
        raise ConfigError(
            f"network={config.network.name} cannot be built ({type(error).__name__}: {error}); expected "
            f"package.module:factory, a callable that takes {call}"
        ) from error
    if not isinstance(network, nn.Module):
        raise ConfigError(f"network={config.network.name} gives a {type(network).__name__}; expected a torch.nn.Module")
    return network


def trusted_factory(name: str) -> Factory:
    """Import the factory that a run names: its reader has said ``--trust``. The current folder is not searched."""
    try:
        factory: Factory = with_torchvision(lambda: imported(name))
    except Exception as error:
        raise ConfigError(
            f"cannot import network={name} ({type(error).__name__}: {error}); expected package.module:factory of an "
            f"installed package; a module of the current folder needs PYTHONPATH=. in front of the command"
        ) from error
    return factory


@contextmanager
def current_folder_searched() -> Iterator[None]:
    """Find a user's own module in the folder she trains in."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        yield
    finally:
        sys.path.pop(0)


def imported(name: str) -> Any:
    """Return the factory called ``package.module:factory``."""
    module, _, factory = name.partition(":")
    return getattr(importlib.import_module(module), factory)


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
