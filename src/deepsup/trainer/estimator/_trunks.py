"""What the user gives as ``network`` -> the trunk for samples of a shape, and the layers to tap.

B batch, D features, C channels, H W image, K classes.
"""

import copy
import inspect
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn

from deepsup.errors import NetworkError
from deepsup.trainer.networks import Network, create_network, describe

WIDTHS = (256, 256, 256)
DROP = 0.2
NOISE = 0.5
CNN: dict[str, Any] = {"depth": 6, "widths": (16, 32, 64), "norm": "batch"}


class Noise(nn.Module):
    """Adds normal noise in training: the scores then change little from a sample to its neighbours."""

    def forward(self, samples: Tensor) -> Tensor:
        """[B,D] -> [B,D]."""
        return samples + NOISE * torch.randn_like(samples) if self.training else samples


class Perceptron(nn.Sequential):
    """Noise, then three hidden layers with BatchNorm, ReLU and dropout: [B,D] -> [B,K].

    All hidden layers but the last have a companion.
    """

    taps = ("relu1", "relu2")

    def __init__(self, features: int, num_classes: int) -> None:
        layers: OrderedDict[str, nn.Module] = OrderedDict(noise=Noise())
        for place, (before, width) in enumerate(zip((features, *WIDTHS), WIDTHS, strict=False), 1):
            layers[f"linear{place}"] = nn.Linear(before, width)
            layers[f"norm{place}"] = nn.BatchNorm1d(width)
            layers[f"relu{place}"] = nn.ReLU()
            layers[f"drop{place}"] = nn.Dropout(DROP)
        layers["scores"] = nn.Linear(WIDTHS[-1], num_classes)
        super().__init__(layers)


def build_trunk(network: Any, shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Return a new trunk for samples of ``shape``, (D,) or (C,H,W); a module that was given is copied."""
    if isinstance(network, nn.Module):
        return copy.deepcopy(network)
    if isinstance(network, str):
        if network == "auto":
            return (
                Perceptron(shape[0], num_classes) if len(shape) == 1 else registered("plain", shape, num_classes, CNN)
            )
        return registered(network, shape, num_classes, {})
    if not callable(network):
        raise NetworkError(
            f"network is a {type(network).__name__}; expected 'auto', the name of a network, an nn.Module, or a "
            f"callable that returns one"
        )
    trunk = called(network, shape, num_classes)
    if not isinstance(trunk, nn.Module):
        raise NetworkError(f"network() returns a {type(trunk).__name__}; expected an nn.Module")
    return trunk


def registered(name: str, shape: tuple[int, ...], num_classes: int, options: dict[str, Any]) -> Network:
    """Return a network of deepsup for images (C,H,W)."""
    if len(shape) == 1:
        describe(name)  # says so if there is no such network
        raise NetworkError(
            f"network={name!r} takes images, X has vectors of {shape[0]} features; expected images; give "
            f"image_shape=(H, W)"
        )
    channels, *sides = shape
    network = create_network(name, num_classes, channels, min(sides), **options)
    if sides[0] != sides[1] and not network.any_size:
        raise NetworkError(
            f"network={name!r} takes square images, X has images of {sides[0]}x{sides[1]}; pad them, or use "
            f"network='auto'"
        )
    return network


def called(factory: Any, shape: tuple[int, ...], num_classes: int) -> Any:
    """Call a factory with what it takes of ``num_classes`` and ``shape``."""
    try:
        parameters = dict(inspect.signature(factory).parameters)
    except (TypeError, ValueError):  # some built-in callables have no signature
        parameters = {}
    given: dict[str, Any] = {}
    if "num_classes" in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        given["num_classes"] = num_classes
    if "shape" in parameters:
        given["shape"] = shape
    try:
        return factory(**given)
    except TypeError as error:
        raise NetworkError(
            f"network cannot be called with {', '.join(given) or 'no arguments'} ({error}); expected a callable that "
            f"takes num_classes and shape, or either, or nothing"
        ) from error


def taps_of_trunk(trunk: nn.Module, at: Any) -> Any:
    """Return the layers to tap; ``"auto"`` means a trunk's own choice where it has one."""
    own = isinstance(at, str) and at == "auto" and isinstance(trunk, Network | Perceptron)
    return list(trunk.taps) if own else at  # type: ignore[arg-type] # both have taps
