"""The steps of a normalization: standardization, GCN, ZCA and LCN.

``fit`` returns what a step learns (Standardize, ZCA) as named tensors, or none; ``shapes`` says which these are.
Legend: B batch, C channels, H height, W width, D = C*H*W. Constants and their sources: docs/data.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor

from deepsup.errors import DataError

Stream = Callable[[], Iterator[Tensor]]
"""Returns an iterator over all training images, float64 [B,C,H,W], on every call."""
Arrays = dict[str, Tensor]
Shapes = dict[str, tuple[int, ...]]


class Step(Protocol):
    """The interface of a step."""

    name: ClassVar[str]
    slow: ClassVar[bool]
    """Whether a fit takes so long that it is cached in a file."""

    def fit(self, stream: Stream) -> Arrays:
        """Learn from the training images."""

    def shapes(self, image: Sequence[int]) -> Shapes:
        """Return the shape of each array that a fit on images [C,H,W] gives; refuse images that are too large."""

    def apply(self, x: Tensor, arrays: Arrays) -> Tensor:
        """Return the transformed images; the input may be overwritten."""


def check_constants(step: Any) -> None:
    """Refuse a constant that is not of the type of its default, or a number with which nothing can be computed."""
    words = {str: "a word", int: "a whole number below 1e18", float: "a number below 1e18"}
    for field in fields(step):
        value, kind = getattr(step, field.name), type(field.default)
        fits = type(value) is kind or (type(value) is int and kind is float)
        if not fits or (kind is not str and not abs(value) < 1e18):
            raise DataError(f"{step.name}: {field.name} is {str(value)[:50]!r}; expected {words[kind]}")


@dataclass(frozen=True)
class Standardize:
    """Subtract each channel's mean and divide by its standard deviation, both of the training images."""

    name: ClassVar[str] = "standardize"
    slow: ClassVar[bool] = False

    def fit(self, stream: Stream) -> Arrays:
        """Learn mean and standard deviation [C]; a constant channel keeps its scale."""
        count, total = 0, torch.zeros(())
        for x in stream():
            count += x.shape[0] * x.shape[2] * x.shape[3]
            total = total + x.sum((0, 2, 3))
        mean = total / count
        # a second pass: the mean of squares minus the square of the mean would lose half of the digits
        squares = sum(((x - mean[:, None, None]) ** 2).sum((0, 2, 3)) for x in stream())
        deviation = torch.as_tensor(squares / count).sqrt()
        return {"mean": mean, "deviation": torch.where(deviation > 0, deviation, 1.0)}

    def shapes(self, image: Sequence[int]) -> Shapes:
        return {"mean": (image[0],), "deviation": (image[0],)}

    def apply(self, x: Tensor, arrays: Arrays) -> Tensor:
        """Return (x - mean) / deviation per channel."""
        batch, channels, height, width = x.shape
        # Rows of whole pixels: vectors of W*C constants make the loops six times faster than vectors of C.
        rows = x.permute(0, 2, 3, 1).reshape(-1, width * channels)
        rows = rows.sub_(arrays["mean"].repeat(width)).div_(arrays["deviation"].repeat(width))
        return rows.view(batch, height, width, channels).permute(0, 3, 1, 2)


@dataclass(frozen=True)
class GCN:
    """Global contrast normalization: subtract each image's mean and scale it to one norm (or standard deviation)."""

    scale: float = 55.0
    by: Literal["norm", "deviation"] = "norm"
    sqrt_bias: float = 0.0
    min_divisor: float = 1e-8
    name: ClassVar[str] = "gcn"
    slow: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_constants(self)
        if self.scale <= 0 or self.sqrt_bias < 0 or self.min_divisor < 0:
            raise DataError(f"{self}; expected a scale above 0, a sqrt_bias and a min_divisor of 0 or more")
        if self.by not in ("norm", "deviation"):
            raise DataError(f"GCN by {self.by!r}; expected 'norm' or 'deviation'")

    def fit(self, stream: Stream) -> Arrays:  # noqa: ARG002 - each image is normalized independently
        """Learn nothing."""
        return {}

    def shapes(self, image: Sequence[int]) -> Shapes:  # noqa: ARG002
        return {}

    def apply(self, x: Tensor, arrays: Arrays) -> Tensor:  # noqa: ARG002
        """Return scale * (x - mean) / sqrt(bias + |x - mean|^2), with the mean square over D-1 for a deviation."""
        # in float64: a rounding error of the mean would become noise at full contrast in an image of one colour
        x = x.sub_(x.mean((1, 2, 3), keepdim=True, dtype=torch.float64).to(x.dtype))
        squares = (x * x).sum((1, 2, 3), keepdim=True)
        if self.by == "deviation":
            squares = squares / max(math.prod(x.shape[1:]) - 1, 1)
        divisor = (squares + self.sqrt_bias).sqrt() / self.scale
        # an image of one colour stays 0 instead of becoming noise
        return x.div_(torch.where(divisor < self.min_divisor, 1.0, divisor))


@dataclass(frozen=True)
class ZCA:
    """The whitening that stays closest to the image: (x - mean) P with P = (covariance + bias I)^(-1/2)."""

    bias: float = 0.1
    name: ClassVar[str] = "zca"
    slow: ClassVar[bool] = True

    MOST_VALUES: ClassVar[int] = 64 * 64 * 3

    def __post_init__(self) -> None:
        check_constants(self)
        if self.bias < 0:
            raise DataError(f"{self}; expected a bias of 0 or more")

    def fit(self, stream: Stream) -> Arrays:
        """Learn mean [D] and P [D,D] of the training images."""
        (values,) = self.shapes(next(stream())[0].shape)["mean"]
        count, total = 0, torch.zeros((), dtype=torch.float64)
        for x in stream():
            count, total = count + len(x), total + x.flatten(1).sum(0)
        mean = total / count
        covariance = torch.zeros(values, values, dtype=torch.float64)
        for x in stream():
            centred = x.flatten(1) - mean
            covariance.addmm_(centred.T, centred, alpha=1 / count)
        covariance.diagonal().add_(self.bias)
        eigenvalues, vectors = torch.linalg.eigh(covariance)
        if eigenvalues[0] <= eigenvalues[-1] * 1e-12:
            raise DataError(
                f"ZCA with bias {self.bias:g}: some directions never vary in the {count:,} training images; "
                "expected a bias above 0, such as 0.1"
            )
        return {"mean": mean, "matrix": (vectors * eigenvalues.rsqrt()) @ vectors.T}

    def shapes(self, image: Sequence[int]) -> Shapes:
        values = math.prod(image)
        if values > self.MOST_VALUES:
            raise DataError(
                f"ZCA of images of {values:,} values needs a matrix of {8 * values**2 / 2**30:.0f} GB; "
                f"expected at most {self.MOST_VALUES:,} values: resize the images or choose another recipe"
            )
        return {"mean": (values,), "matrix": (values, values)}

    def apply(self, x: Tensor, arrays: Arrays) -> Tensor:
        """Return (x - mean) P in the shape of the images."""
        return ((x.flatten(1) - arrays["mean"]) @ arrays["matrix"]).reshape(x.shape)


@dataclass(frozen=True)
class LCN:
    """Local contrast normalization per channel, with a Gaussian window and zero padding.

    Later versions of the published code return from inside the loop over channels, so that only the first channel is
    normalized. The experiments of 2013 normalized all channels, and so does this class.
    """

    size: int = 7
    sigma: float = 2.0
    threshold: float = 1e-4
    name: ClassVar[str] = "lcn"
    slow: ClassVar[bool] = False

    MOST_SIDE: ClassVar[int] = 2**12
    """Of an image, and of the window: the blur multiplies with matrices of side x side."""

    def __post_init__(self) -> None:
        check_constants(self)
        if not 1 <= self.size <= self.MOST_SIDE or self.size % 2 == 0 or self.threshold <= 0:
            raise DataError(f"{self}; expected an odd size up to {self.MOST_SIDE:,}, and a threshold above 0")
        if not 1e-6 <= self.sigma <= 1e6:
            raise DataError(f"{self}; expected a sigma from 1e-6 to 1e6")

    def fit(self, stream: Stream) -> Arrays:  # noqa: ARG002 - each image is normalized independently
        """Learn nothing."""
        return {}

    def shapes(self, image: Sequence[int]) -> Shapes:
        if max(image[1:]) > self.MOST_SIDE:
            raise DataError(
                f"LCN of images of {list(image)}; expected sides of at most {self.MOST_SIDE:,}: resize them"
            )
        return {}

    def apply(self, x: Tensor, arrays: Arrays) -> Tensor:  # noqa: ARG002
        """Return (x - G*x) / max(d, mean of d, threshold) with d = sqrt(G*x^2) of the uncentred x."""
        x = x.contiguous()  # one plane per channel, for the matrix products
        divisor = self._blur(x * x).clamp_(min=0).sqrt_()
        floor = divisor.mean((2, 3), keepdim=True).clamp_(min=self.threshold)
        return x.sub_(self._blur(x)).div_(torch.maximum(divisor, floor))

    def _blur(self, x: Tensor) -> Tensor:
        """Blur columns, then rows: products with band matrices are eleven times faster here than convolutions."""
        return self._band(x.shape[2], x) @ x @ self._band(x.shape[3], x).T

    def _band(self, n: int, like: Tensor) -> Tensor:
        """Return the window around each of n positions, [n,n]; values outside count as 0."""
        places = torch.arange(n, dtype=like.dtype, device=like.device)
        offsets = places[:, None] - places
        weights = torch.exp(-(offsets**2) / (2 * self.sigma**2)) * (offsets.abs() <= self.size // 2)
        total = sum(math.exp(-(k**2) / (2 * self.sigma**2)) for k in range(-(self.size // 2), self.size // 2 + 1))
        return weights / total


STEPS: dict[str, type[Step]] = {step.name: step for step in (Standardize, GCN, ZCA, LCN)}
