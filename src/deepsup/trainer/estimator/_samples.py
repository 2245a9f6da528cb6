"""Arrays of samples, as users of scikit-learn have them -> float32 tensors, scaled as the training samples require.

N samples, D features, C channels, H W image.
"""

# ruff: noqa: N803 - X is scikit-learn's name

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepsup.errors import DataError

Array = npt.NDArray[Any]

MOST_CHANNELS = 4
"""An axis with at most so many values holds the channels."""
SIMILAR = 10.0
"""The ranges of features with one unit, such as pixels, differ by at most this factor; a tenth may be narrower."""


@dataclass(frozen=True, eq=False)
class SampleFormat:
    """How arrays become tensors: the shape of one sample, and what it is scaled by."""

    given: tuple[int, ...]
    """The shape of one sample in the arrays: (D,), (H,W), (H,W,C) or (C,H,W)."""
    images: tuple[int, ...]
    """(D,) for vectors; (H,W,C) or (C,H,W) for images, which may be given as vectors."""
    channels_last: bool
    mean: Array
    scale: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample in the tensors: (D,) or (C,H,W)."""
        return (self.images[-1], *self.images[:-1]) if self.channels_last else self.images

    def __call__(self, X: Array) -> Tensor:
        """Return [N,D] or [N,C,H,W], float32."""
        scaled = (arranged(X, self.images, self.channels_last) - self.mean) / self.scale
        return torch.from_numpy(np.ascontiguousarray(scaled, dtype=np.float32))


def fit_samples(
    X: Array,
    image_shape: Sequence[int] | None = None,
    channels: str = "auto",
    scale: bool = True,
) -> SampleFormat:
    """Find the shape of the samples X [N, ...] and, if ``scale``, their mean and scale."""
    images = image_sizes(X.shape[1:], image_shape)
    if len(images) == 2:
        images, last = (*images, 1), True
    else:
        last = len(images) == 3 and channels_lie_last(images, channels)
    tensors = arranged(X, images, last)
    mean, factor = centre_and_scale(tensors) if scale else (np.zeros(1, np.float32), np.ones(1, np.float32))
    return SampleFormat(X.shape[1:], images, last, mean, factor)


def check_shape(X: Any, given: tuple[int, ...]) -> None:
    """Refuse samples of another shape than those that the classifier was fitted on."""
    shape = np.shape(X)[1:]
    if shape != given:
        raise DataError(
            f"X has samples of shape {list(shape)}, the classifier was fitted on samples of shape {list(given)}; "
            f"expected the same shape; resize the samples, or fit again"
        )


def arranged(X: Array, images: tuple[int, ...], channels_last: bool) -> Array:
    """Return a view of X: [N,D] or [N,C,H,W]."""
    shaped = X.reshape(len(X), *images)
    return np.moveaxis(shaped, -1, 1) if channels_last else shaped


def image_sizes(given: tuple[int, ...], image_shape: Sequence[int] | None) -> tuple[int, ...]:
    """Return the shape of one sample, as an image if ``image_shape`` says so."""
    if len(given) > 3:
        raise DataError(
            f"X has samples of shape {list(given)}; expected vectors [N,D] or images [N,H,W], [N,H,W,C], [N,C,H,W]"
        )
    if image_shape is None:
        return given
    whole = isinstance(image_shape, Sequence) and all(isinstance(each, Integral) and each > 0 for each in image_shape)
    if not whole or len(image_shape) not in (2, 3):
        raise DataError(f"image_shape={image_shape!r}; expected (H, W), (H, W, C) or (C, H, W), such as (8, 8)")
    shape = tuple(int(each) for each in image_shape)
    if (len(given) > 1 and given != shape) or math.prod(given) != math.prod(shape):
        raise DataError(
            f"image_shape={shape} has {math.prod(shape)} values, X has samples of shape {list(given)}; expected the "
            f"shape of one image; leave image_shape out for X [N,H,W], [N,H,W,C] or [N,C,H,W]"
        )
    return shape


def channels_lie_last(images: tuple[int, ...], channels: str) -> bool:
    """Whether images are [H,W,C], not [C,H,W]: by the axis that is short, or else by the two that are equal."""
    if channels not in ("auto", "first", "last"):
        raise DataError(f"channels={channels!r}; expected 'auto', 'first' or 'last'")
    if channels != "auto":
        return channels == "last"
    first, last = (images[axis] <= MOST_CHANNELS for axis in (0, 2))
    if first == last:
        first, last = images[1] == images[2], images[0] == images[1]
    if first == last:
        raise DataError(
            f"X has samples of shape {list(images)}, which may be [C,H,W] or [H,W,C]; expected one of them to be "
            f"clear; give channels='first' or channels='last'"
        )
    return last


def centre_and_scale(tensors: Array) -> tuple[Array, Array]:
    """Return the mean and the scale of [N,D] per feature (the scale shared, if alike), of [N,C,H,W] per channel."""
    kind = np.float32 if tensors.dtype in (np.uint8, np.float16, np.float32) else np.float64
    axes = (0,) if tensors.ndim == 2 else (0, 2, 3)
    mean = tensors.mean(axes, keepdims=True, dtype=np.float64)[0]
    spread = np.sqrt(np.square(tensors - mean).mean(axes, keepdims=True, dtype=np.float64))[0]
    constant = spread <= 1e-12 * np.maximum(np.abs(mean), 1e-300)
    if tensors.ndim == 2 and alike(tensors[:, ~constant]):
        spread = np.full_like(spread, np.sqrt(np.square(spread).mean()))
    return mean.astype(kind), np.where(constant | (spread == 0), 1.0, spread).astype(kind)


def alike(features: Array) -> bool:
    """Whether features [N,D] have one unit, as pixels do; then the ones that vary little say little.

    A rare pixel that is scaled to the variance of all others would be mostly noise.
    """
    if not features.size:
        return False
    ranges = np.ptp(features.astype(np.float64), axis=0)
    return bool(ranges.max() <= SIMILAR * np.quantile(ranges, 0.1))
