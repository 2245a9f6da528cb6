"""A recipe and a data set in, a normalizer out; uint8 images in, float32 images out, the same for every part.

Only the training part is ever looked at. What was learned can be stored as plain values and tensors, and applies the
same, bit for bit, when it is restored.
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

from deepsup.data import Dataset, data_folder
from deepsup.data.dataset import Images
from deepsup.data.storage import write
from deepsup.errors import DataError, nearest
from deepsup.preprocess.steps import GCN, LCN, STEPS, ZCA, Arrays, Standardize, Step

logger = logging.getLogger("deepsup")

NORMALIZATIONS: dict[str, tuple[Step, ...]] = {
    "none": (),
    "standardize": (Standardize(),),
    "gcn": (GCN(),),
    "gcn-zca": (GCN(), ZCA()),
    "gcn-lcn": (GCN(scale=1.0), LCN()),
}
"""none leaves values in 0..1; gcn-zca is what Maxout did to CIFAR, gcn-lcn what it did to SVHN."""

_CHUNK_VALUES = 2**22
_CACHE_FORMAT = 1


@dataclasses.dataclass(frozen=True, eq=False)
class Normalizer:
    """Fitted steps, applied one after the other to values in 0..1."""

    steps: tuple[Step, ...]
    arrays: tuple[Arrays, ...]
    """What each step has learned, float32."""

    def __call__(self, images: Tensor) -> Tensor:
        """[B,C,H,W] uint8 -> float32 in the memory order channels_last; the given tensor is left alone."""
        if images.dtype != torch.uint8 or images.ndim != 4:
            raise DataError(f"images are {images.dtype} {list(images.shape)}; expected uint8 [B,C,H,W]")
        # as [B,H,W,C]: contiguous where the batch is channels_last, which halves the time
        x = images.permute(0, 2, 3, 1).to(torch.float32).div_(255).permute(0, 3, 1, 2)
        for step, arrays in zip(self.steps, self.arrays, strict=True):
            x = step.apply(x, {name: array.to(x.device) for name, array in arrays.items()})
        return x.contiguous(memory_format=torch.channels_last)

    def apply_all(self, images: Images) -> Tensor:
        """Return a whole part, normalised piece by piece: for recipes too slow to repeat every epoch."""
        out = torch.empty(images.shape, memory_format=torch.channels_last)
        for piece in _pieces(images):
            out[piece] = self(to_tensor(images[piece]))
        return out

    def state(self) -> dict[str, Any]:
        """Return plain values (``steps``) and tensors (``arrays``, by ``index.name``): all that restores it."""
        return {
            "steps": [{"step": step.name, **dataclasses.asdict(step)} for step in self.steps],  # type: ignore[call-overload]
            "arrays": {f"{i}.{name}": array for i, held in enumerate(self.arrays) for name, array in held.items()},
        }

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> Normalizer:
        """Restore what ``state`` returned."""
        try:
            steps = tuple(_make(**step) for step in state["steps"])
            arrays: tuple[Arrays, ...] = tuple({} for _ in steps)
            for key, array in state["arrays"].items():
                index, name = key.split(".")
                arrays[int(index)][name] = array
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise DataError(f"not the state of a normalizer ({type(error).__name__}: {error})") from error
        return Normalizer(steps, arrays)


def _make(step: str, **constants: Any) -> Step:
    return STEPS[step](**constants)


def to_tensor(images: Images) -> Tensor:
    """Return images as a uint8 tensor [N,C,H,W] in channels_last, without a copy where they lie in memory like that."""
    # torch warns of arrays that cannot be written to
    pixels_together = np.require(images.transpose(0, 2, 3, 1), requirements=["C", "W"])
    return torch.from_numpy(pixels_together).permute(0, 3, 1, 2)


def fit(recipe: str | Sequence[Step], data: Dataset, cache: bool = True) -> Normalizer:
    """Fit a recipe, by name or as steps, on the training part of a data set, and on nothing else."""
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

    return _cached(_key(step, before, images), learn) if cache else learn()


def _stream(before: Normalizer, images: Images) -> Iterator[Tensor]:
    """Training images through the steps before, in float64: a fit sums over many of them."""
    for piece in _pieces(images):
        x = to_tensor(images[piece]).to(torch.float64).div_(255)
        for step, arrays in zip(before.steps, before.arrays, strict=True):
            x = step.apply(x, {name: array.to(torch.float64) for name, array in arrays.items()})
        yield x


def _pieces(images: Images) -> Iterator[slice]:
    """Pieces small enough that a copy in float64 takes tens of megabytes, whatever the size of an image."""
    size = max(1, _CHUNK_VALUES // max(1, images[0].size))
    return (slice(start, start + size) for start in range(0, len(images), size))


def _key(step: Step, before: Normalizer, images: Images) -> str:
    """The digest of all that a fit depends on: the steps with their constants, and every pixel."""
    steps = Normalizer((*before.steps, step), (*before.arrays, {})).state()["steps"]
    digest = hashlib.sha256(json.dumps([_CACHE_FORMAT, steps, images.shape]).encode())
    # as the readers leave them in memory, so that nothing is copied
    digest.update(np.ascontiguousarray(images.transpose(0, 2, 3, 1)).data)
    return digest.hexdigest()


def _cached(key: str, learn: Callable[[], Arrays]) -> Arrays:
    """Return what a file of this name holds, or learn it and leave it there."""
    path = data_folder() / "fits" / f"{key}.npz"
    held = _read_fit(path)
    if held is not None:
        return held
    logger.info("fitting on the training images (once: it is kept in %s)", path.parent)
    arrays = learn()
    packed = io.BytesIO()
    np.savez(packed, **{name: array.numpy() for name, array in arrays.items()})  # type: ignore[arg-type]
    try:
        path.unlink(missing_ok=True)  # only a damaged one can still be there
        write(path, packed.getvalue())
    except (DataError, OSError) as error:
        logger.warning("the fit is not kept: %s", error)
    return arrays


def _read_fit(path: Path) -> Arrays | None:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
            return {name: torch.from_numpy(held[name]) for name in held.files}
    except FileNotFoundError:
        return None
    except Exception as error:  # a damaged file of our own making is made again
        logger.warning("%s is damaged (%s) and is made again", path, type(error).__name__)
        return None
