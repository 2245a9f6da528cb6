"""A data set: uint8 images, labels or masks, and class names, in parts; checked on construction.

Legend: N images, C channels, H height, W width, K classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepsup.errors import DataError

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]
IGNORED = 255
"""The value of a mask's pixels that have no label."""


@dataclass(frozen=True, eq=False)
class Part:
    """Images and their labels: the training, validation, test or extra part of a data set."""

    images: Images
    """[N,C,H,W] uint8. The memory order may differ: the readers keep the channels of each pixel together."""
    labels: npt.NDArray[np.int64] | npt.NDArray[np.uint8]
    """[N] int64, each in 0..K-1; or masks [N,H,W] uint8, a class per pixel, 255 for pixels without one."""
    names: tuple[str, ...] = ()
    """A name for each image of the user's own data; empty otherwise."""

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.dtype != np.uint8:
            raise DataError(f"images are {self.images.dtype} {list(self.images.shape)}; expected uint8 [N,C,H,W]")
        if self.dense and (self.labels.shape[1:] != self.images.shape[2:] or self.labels.dtype != np.uint8):
            raise DataError(
                f"masks are {self.labels.dtype} {list(self.labels.shape)}, images {list(self.images.shape)}; expected "
                f"uint8 masks of the images' size"
            )
        if self.labels.shape[:1] != self.images.shape[:1] or self.labels.ndim not in (1, 3):
            raise DataError(
                f"{len(self.images):,} images but labels of shape {list(self.labels.shape)}; expected one per image"
            )
        if self.names and len(self.names) != len(self.labels):
            raise DataError(f"{len(self.images):,} images but {len(self.names):,} names; expected one per image")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def dense(self) -> bool:
        """Whether every pixel has a label."""
        return self.labels.ndim == 3

    @property
    def strata(self) -> Labels:
        """[N], what images are stratified by: their class; masks have none."""
        return np.zeros(len(self), np.int64) if self.dense else self.labels.astype(np.int64, copy=False)

    def take(self, indices: npt.NDArray[np.intp]) -> Part:
        """Return the images at these indices, in this order."""
        names = tuple(self.names[index] for index in indices) if self.names else ()
        return Part(self.images[indices], self.labels[indices], names)

    def counts(self, classes: int) -> list[int]:
        """Return the number of images per class; of masks, the number of images in which a class occurs.

        >>> Part(np.zeros((3, 1, 2, 2), np.uint8), np.array([0, 2, 2])).counts(3)
        [1, 0, 2]
        """
        if self.dense:
            return [int((self.labels == label).any((1, 2)).sum()) for label in range(classes)]
        return [int(n) for n in np.bincount(self.labels, minlength=classes)]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set in parts; ``validation`` exists after a hold-out, ``extra`` for SVHN on request."""

    name: str
    classes: tuple[str, ...]
    train: Part
    test: Part
    validation: Part | None = None
    extra: Part | None = None
    notes: tuple[str, ...] = ()
    """Notes about these files, such as a digest that differs from the published one."""

    def __post_init__(self) -> None:
        for name, part in self.parts():
            if not len(part):
                raise DataError(f"{self.name}: the {name} part is empty; expected at least one image")
            if part.images.shape[1:] != self.shape:
                raise DataError(
                    f"{self.name}: images of the {name} part are {list(part.images.shape[1:])} and of the train part "
                    f"{list(self.shape)}; expected one shape [C,H,W]"
                )
            check_labels(part.labels, len(self.classes), f"{self.name}, {name} part")

    def parts(self) -> Iterator[tuple[str, Part]]:
        """Yield the name and the images of each existing part."""
        for name in ("train", "validation", "test", "extra"):
            part = getattr(self, name)
            if part is not None:
                yield name, part

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one image: [C,H,W]."""
        return self.train.images.shape[1:]


def check_labels(labels: npt.NDArray[np.integer], classes: int, where: str) -> None:
    """Raise an error for labels outside 0..classes-1, naming the first one."""
    if labels.ndim > 1:
        high = np.where(labels == IGNORED, 0, labels).max(initial=0)
        if high >= classes:
            raise DataError(f"{where}: class {high} in a mask; expected 0 to {classes - 1}, or {IGNORED} to ignore")
        return
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        raise DataError(
            f"{where}: label {labels[wrong[0]]} at index {wrong[0]:,} ({len(wrong):,} such labels); "
            f"expected 0 to {classes - 1}"
        )
