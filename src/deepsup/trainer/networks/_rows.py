"""``Rows`` collects the layers of a ``Network``, which maps images [B,C,H,W] to scores [B,K].

B batch, C channels, H W map (square), D features, K classes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any

import torch
from torch import Tensor, nn

from deepsup.errors import NetworkError
from deepsup.trainer.networks._numbers import number


class MapVanishedError(Exception):
    """A kernel or a pooling window is larger than its map: the image is too small. Only used in this package."""


@dataclass(frozen=True)
class Published:
    """What a layer's paper or code says about training it; ``None`` if it says nothing."""

    cap: float | None = None
    """The largest L2 norm of a filter or of a unit's weights; ``cap_norms`` projects onto it after a step."""
    rate: float = 1.0
    """The learning rate of the weights, relative to the network's."""
    bias_rate: float = 1.0
    """The same for the biases."""
    decay: float | None = None
    """The weight decay of this layer's weights."""
    prior: Callable[[Tensor], Tensor] | None = None
    """A penalty on this layer's weights; training adds it to the objective."""


class Rows:
    """The layers of a network. It tracks the shape from row to row, so that a row states only what it changes."""

    def __init__(self, in_channels: int, image_size: int) -> None:
        self.in_channels = in_channels
        self.image_size = image_size
        self.channels = in_channels
        self.size = image_size
        self.layers: dict[str, nn.Module] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.published: dict[str, Published] = {}
        self._flat = False

    @property
    def features(self) -> int:
        """The number of values per sample at this row."""
        return self.channels * self.size**2

    def add(self, name: str, layer: nn.Module, published: Published | None = None) -> None:
        """Add a layer that keeps the shape; the methods below add layers that change it."""
        assert name not in self.layers, f"two rows called {name}"
        self.layers[name] = layer
        self.shapes[name] = (self.channels,) if self._flat else (self.channels, self.size, self.size)
        if published is not None:
            self.published[name] = published

    def maps(self, name: str, layer: nn.Module, channels: int, size: int, published: Published | None = None) -> None:
        """Add a layer whose output has ``channels`` maps of ``size`` x ``size``."""
        if size < 1:
            raise MapVanishedError(name)
        self.channels, self.size = channels, size
        self.add(name, layer, published)

    def convolved(self, kernel: int, padding: int) -> int:
        """Return the side of the map after a convolution of stride 1; raise an error if the map vanishes."""
        size = self.size + 2 * padding - kernel + 1
        if size < 1:
            raise MapVanishedError
        return size

    def pooled(self, window: int, stride: int) -> int:
        """Return the side of the map after a pooling in ceil mode: ceil((n - window) / stride) + 1."""
        return ceil((self.size - window) / stride) + 1

    def conv(self, name: str, channels: int, kernel: int, padding: int = 0, published: Published | None = None) -> None:
        """Add a convolution of stride 1."""
        size = self.convolved(kernel, padding)
        self.maps(name, nn.Conv2d(self.channels, channels, kernel, padding=padding), channels, size, published)

    def relu(self, name: str) -> None:
        """Add a ReLU, never in place: a tap on the layer before must see that layer's raw output."""
        self.add(name, nn.ReLU())

    def pool(self, name: str, layer: nn.Module, window: int, stride: int) -> None:
        """Add a pooling in ceil mode."""
        self.maps(name, layer, self.channels, self.pooled(window, stride))

    def max_pool(self, name: str, window: int, stride: int) -> None:
        """Add a max pooling in ceil mode: windows may overhang, as in Caffe, cuda-convnet and pylearn2."""
        self.pool(name, nn.MaxPool2d(window, stride, ceil_mode=True), window, stride)

    def average(self) -> None:
        """Add a global average pooling: each map becomes one number."""
        self.maps("average", nn.AdaptiveAvgPool2d(1), self.channels, 1)
        self.flatten()

    def flatten(self) -> None:
        """Flatten maps to one vector per sample."""
        self.channels, self.size, self._flat = self.features, 1, True
        self.add("flatten", nn.Flatten())

    def vector(self, name: str, layer: nn.Module, features: int, published: Published | None = None) -> None:
        """Add a layer with ``features`` output values."""
        self.channels = features
        self.add(name, layer, published)

    def linear(self, name: str, features: int, published: Published | None = None) -> None:
        """Add a fully connected layer."""
        self.vector(name, nn.Linear(self.features, features), features, published)


class Network(nn.Module):
    """A sequence of named layers, with its taps, shapes and published settings as data.

    ``taps`` are the layers that conventionally get a companion; ``shapes`` the output shape of every layer without
    the batch; ``published`` what the layer's paper says about training it; ``creation`` the arguments of
    ``create_network`` that made it.
    """

    creation: dict[str, Any] | None = None
    capped = False
    """Whether training caps the norms of weights after each step, as published (``--cap-norms``)."""

    def __init__(self, name: str, table: Rows, taps: tuple[str, ...], minimum: int, any_size: bool) -> None:
        super().__init__()
        assert set(taps) <= set(table.layers), f"{name} has no such layers: {taps}"
        self.name = name
        self.taps = taps
        self.in_channels = table.in_channels
        self.image_size = table.image_size
        self.num_classes = table.channels
        self.minimum_image_size = minimum
        self.any_size = any_size
        self.shapes = table.shapes
        self.published = table.published
        self._order = tuple(table.layers)
        for row, layer in table.layers.items():
            self.add_module(row, layer)

    def forward(self, images: Tensor) -> Tensor:
        """[B, C, H, W] -> scores [B, K]."""
        self._check(images)
        x = images
        for row in self._order:
            x = getattr(self, row)(x)
        return x

    def training_penalty(self) -> Tensor | None:
        """Return the sum of the published priors on the weights; None if there is none."""
        penalties = [
            published.prior(self.get_parameter(f"{name}.weight"))
            for name, published in self.published.items()
            if published.prior is not None
        ]
        return torch.stack(penalties).sum() if penalties else None

    def after_training_step(self) -> None:
        """Apply the published caps, if ``capped``."""
        if self.capped:
            self.cap_norms()

    def cap_norms(self) -> None:
        """Scale down, in place, every filter or unit whose weights exceed their layer's published L2 cap."""
        for name, published in self.published.items():
            if published.cap is not None:
                cap_rows(self.get_parameter(f"{name}.weight"), published.cap)

    def _check(self, images: Tensor) -> None:
        """Raise an error for images that do not fit the network."""
        if not isinstance(images, Tensor) or not images.is_floating_point():
            kind = images.dtype if isinstance(images, Tensor) else type(images).__name__
            raise NetworkError(f"{self.name} got images of {kind}; expected a tensor of floats, such as images / 255")
        if images.dim() != 4:
            raise NetworkError(
                f"{self.name} got a tensor of shape {tuple(images.shape)}; expected a batch of images [B, "
                f"{self.in_channels}, {self.image_size}, {self.image_size}] (one image: image.unsqueeze(0))"
            )
        _, channels, height, width = images.shape
        if channels != self.in_channels:
            raise NetworkError(
                f"{self.name} got images with {channels} channels; it was built for {self.in_channels}: "
                f"create_network({self.name!r}, in_channels={channels}) makes one that fits"
            )
        if not self.any_size and (height, width) != (self.image_size, self.image_size):
            raise NetworkError(
                f"{self.name} got images of {height}x{width}; it was built for {self.image_size}x{self.image_size}: "
                f"resize or crop them, or build it with image_size=... (at least {self.minimum_image_size})"
            )
        if min(height, width) < self.minimum_image_size:
            raise NetworkError(
                f"{self.name} got images of {height}x{width}; its poolings need at least "
                f"{self.minimum_image_size}x{self.minimum_image_size}"
            )

    def extra_repr(self) -> str:
        """Return the first line of ``print(network)``."""
        return f"{self.name}: {self.in_channels}x{self.image_size}x{self.image_size} -> {self.num_classes} classes"


def cap_norms(model: nn.Module) -> None:
    """Scale down, in place, every filter or unit whose weights exceed their layer's published L2 cap.

    Call it after each optimizer step. The caps are those in ``published`` of every ``Network`` inside ``model``,
    so it may be wrapped; a network without caps does not change.
    """
    for network in model.modules():
        if isinstance(network, Network):
            network.cap_norms()


@torch.no_grad()
def cap_rows(weight: torch.Tensor, cap: float) -> None:
    """Scale down, in place, each ``weight[i]`` whose L2 norm is above ``cap``: a filter, a unit's piece, a class."""
    if number("cap", cap, least=0) == 0:
        raise NetworkError("cap is 0; expected a number above 0, as a cap of 0 would erase the weights")
    weight.renorm_(2, 0, cap)
