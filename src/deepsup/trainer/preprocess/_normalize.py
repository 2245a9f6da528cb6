"""Normalizers: fitted on the training part of a data set, they map uint8 images of every part to float32.

A fitted normalizer can be stored as plain values and tensors. Restored, it gives the same results bit for bit.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deepsup.errors import DataError, DeepsupError, nearest
from deepsup.io import remove
from deepsup.trainer.data import Dataset, Images, data_folder, read_arrays, write
from deepsup.trainer.preprocess._steps import GCN, LCN, STEPS, ZCA, Arrays, Standardize, Step

logger = logging.getLogger("deepsup")

NORMALIZATIONS: dict[str, tuple[Step, ...]] = {
    "none": (),
    "standardize": (Standardize(),),
    "gcn": (GCN(),),
    "gcn-zca": (GCN(), ZCA()),
    "gcn-lcn": (GCN(scale=1.0), LCN()),
}
"""none leaves values in 0..1; Maxout used gcn-zca for CIFAR and gcn-lcn for SVHN."""

_CHUNK_VALUES = 2**22
_CACHE_FORMAT = 1


@dataclasses.dataclass(frozen=True, eq=False)
class Normalizer:
    """Fitted steps, applied one after the other to values in 0..1."""

    steps: tuple[Step, ...]
    arrays: tuple[Arrays, ...]
    """The fitted arrays of each step, float32."""

    def __call__(self, images: Tensor) -> Tensor:
        """[B,C,H,W] uint8 -> float32 in channels_last; the input is not changed."""
        if images.dtype != torch.uint8 or images.ndim != 4:
            raise DataError(f"images are {images.dtype} {list(images.shape)}; expected uint8 [B,C,H,W]")
        # as [B,H,W,C]: contiguous if the batch is channels_last, which halves the time
        x = images.permute(0, 2, 3, 1).to(torch.float32).div_(255).permute(0, 3, 1, 2)
        for step, arrays in zip(self.steps, self.arrays, strict=True):
            x = step.apply(x, {name: array.to(x.device) for name, array in arrays.items()})
        return x.contiguous(memory_format=torch.channels_last)

    def apply_all(self, images: Images) -> Tensor:
        """Normalize a whole part in pieces, for recipes that are too slow to repeat every epoch."""
        out = torch.empty(images.shape, memory_format=torch.channels_last)
        for piece in _pieces(images):
            out[piece] = self(to_tensor(images[piece]))
        return out

    def state(self) -> dict[str, Any]:
        """Return plain values (``steps``) and tensors (``arrays``, by ``index.name``) for ``from_state``."""
        return {
            "steps": [{"step": step.name, **dataclasses.asdict(step)} for step in self.steps],  # type: ignore[call-overload]
            "arrays": {f"{i}.{name}": array for i, each in enumerate(self.arrays) for name, array in each.items()},
        }

    @staticmethod
    def from_state(state: Mapping[str, Any], image: Sequence[int] | None = None) -> Normalizer:
        """Restore what ``state`` returned; refuse a state in which arrays are missing.

        image: [C,H,W] of the images that it is for; then the shapes of the arrays are checked too.
        """
        try:
            steps = tuple(_make(**step) for step in state["steps"])
            arrays: tuple[Arrays, ...] = tuple({} for _ in steps)
            for key, array in state["arrays"].items():
                index, name = key.split(".")
                arrays[int(index)][name] = array
            for step, each in zip(steps, arrays, strict=True):
                _check_arrays(step, each, image)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise DataError(f"not the state of a normalizer ({type(error).__name__}: {error})") from error
        return Normalizer(steps, arrays)


def _check_arrays(step: Step, arrays: Arrays, image: Sequence[int] | None) -> None:
    """Refuse arrays that are not what a fit of the step gives, on images [C,H,W] where these are known."""
    given = {name: tuple(array.shape) for name, array in arrays.items()}
    expected = step.shapes(image or (1, 1, 1))
    if given != expected and (image is not None or given.keys() != expected.keys()):
        raise ValueError(f"{step.name} has {given or 'no arrays'}, expected {expected or 'none'}")
    for name, array in arrays.items():
        if array.dtype != torch.float32:
            raise ValueError(f"{name} of {step.name} is {array.dtype}, expected torch.float32")


def _make(step: str, **constants: Any) -> Step:
    return STEPS[step](**constants)


def to_tensor(images: Images) -> Tensor:
    """Return images as a uint8 tensor [N,C,H,W] in channels_last; no copy if they already have this memory order."""
    # torch warns about read-only arrays
    pixels_together = np.require(images.transpose(0, 2, 3, 1), requirements=["C", "W"])
    return torch.from_numpy(pixels_together).permute(0, 3, 1, 2)


def fit(recipe: str | Sequence[Step], data: Dataset, cache: bool = True) -> Normalizer:
    """Fit a recipe, by name or as steps, on the training part of a data set only."""
    if isinstance(recipe, str):
        if recipe not in NORMALIZATIONS:
            raise DataError(f"no recipe {recipe!r}; {nearest(recipe, NORMALIZATIONS)}")
        recipe = NORMALIZATIONS[recipe]
    images = data.train.images
    fitted = Normalizer((), ())
    for step in recipe:
        arrays = _fit_step(step, fitted, images, cache and step.slow)
        fitted = Normalizer((*fitted.steps, step), (*fitted.arrays, arrays))
    return fitted


def _fit_step(step: Step, before: Normalizer, images: Images, cache: bool) -> Arrays:
    def learn() -> Arrays:
        return {name: array.to(torch.float32) for name, array in step.fit(lambda: _stream(before, images)).items()}

    return _cached(_key(step, before, images), step, images.shape[1:], learn) if cache else learn()


def _stream(before: Normalizer, images: Images) -> Iterator[Tensor]:
    """Yield the training images after the earlier steps, in float64, because a fit sums over many of them."""
    for piece in _pieces(images):
        x = to_tensor(images[piece]).to(torch.float64).div_(255)
        for step, arrays in zip(before.steps, before.arrays, strict=True):
            x = step.apply(x, {name: array.to(torch.float64) for name, array in arrays.items()})
        yield x


def _pieces(images: Images) -> Iterator[slice]:
    """Yield pieces so small that a float64 copy takes tens of megabytes, for any image size."""
    size = max(1, _CHUNK_VALUES // max(1, images[0].size))
    return (slice(start, start + size) for start in range(0, len(images), size))


def _key(step: Step, before: Normalizer, images: Images) -> str:
    """Return the digest of everything a fit depends on: the steps with their constants, and every pixel."""
    steps = Normalizer((*before.steps, step), (*before.arrays, {})).state()["steps"]
    digest = hashlib.sha256(json.dumps([_CACHE_FORMAT, steps, images.shape]).encode())
    # in the memory order of the readers, so that nothing is copied
    digest.update(np.ascontiguousarray(images.transpose(0, 2, 3, 1)).data)
    return digest.hexdigest()


def _cached(key: str, step: Step, image: Sequence[int], learn: Callable[[], Arrays]) -> Arrays:
    """Return the cached fit of this key, or make it and store it."""
    path = data_folder() / "fits" / f"{key}.npz"
    cached = _read_fit(path, step, image)
    if cached is not None:
        return cached
    logger.info("fitting on the training images (once: the fit is cached in %s)", path.parent)
    arrays = learn()
    packed = io.BytesIO()
    np.savez(packed, **{name: array.numpy() for name, array in arrays.items()})  # type: ignore[arg-type]
    try:
        remove(path)  # only a damaged file can still be there
        write(path, packed.getvalue())
    except (DeepsupError, OSError) as error:
        logger.warning("the fit is not cached: %s", error)
    return arrays


def _read_fit(path: Path, step: Step, image: Sequence[int]) -> Arrays | None:
    try:
        arrays = {name: torch.from_numpy(array) for name, array in read_arrays(path).items()}
        _check_arrays(step, arrays, image)
        return arrays
    except FileNotFoundError:
        return None
    except Exception as error:  # our own damaged file is made again
        logger.warning("%s is damaged (%s) and is made again", path, type(error).__name__)
        return None
