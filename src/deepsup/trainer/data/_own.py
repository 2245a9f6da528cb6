"""Read the user's own images: a folder with one sub-folder per class or with ``images/`` and ``masks/``, or an .npz.

Every image has a fixed name: its path inside the folder, or the digest of its row in the .npz. A run records by these
names which images it was trained and tested on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from deepsup.errors import DataError
from deepsup.io import faults_named
from deepsup.trainer.data._dataset import Dataset, Images, Part
from deepsup.trainer.data._images import is_grey, read_images
from deepsup.trainer.data._mask_folder import check_names, has_masks, read_mask_folder
from deepsup.trainer.data._npz import names_in, read_arrays
from deepsup.trainer.data._splits import a_fifth

_VALIDATION_NAMES = ("validation", "val")
# Files of file managers; names that begin with a dot are ignored too.
_NOT_IMAGES = {"thumbs.db", "desktop.ini"}
# Names of the arrays in an .npz, by part: ours, those of Keras' mnist.npz, those of MedMNIST.
_NPZ_NAMES = [
    {"train": ("train_images", "train_labels"), "test": ("test_images", "test_labels"),
     "validation": ("val_images", "val_labels")},
    {"train": ("x_train", "y_train"), "test": ("x_test", "y_test")},
    {"train": ("images", "labels")},
]  # fmt: skip
MOST_IMAGES = 2**22
"""Of a part of an .npz: each gets a name, and a file of 64 KB can claim 33 million images of one pixel."""


@dataclass(frozen=True, eq=False)
class OwnImages:
    """The contents of a folder or an .npz, before a test part is split off."""

    name: str
    classes: tuple[str, ...]
    parts: dict[str, Part]
    """``train``, and optionally ``test`` and ``validation``."""

    def with_test(self) -> Dataset:
        """Return the data set; without a test part, a fixed stratified fifth becomes the test part."""
        parts = dict(self.parts)
        notes: tuple[str, ...] = ()
        if "test" not in parts:
            parts["train"], parts["test"] = a_fifth(parts["train"], self.classes)
            few, all_ = len(parts["test"]), len(self.parts["train"])
            drawn = "" if parts["test"].dense else ", stratified,"
            notes = (f"{self.name} has no test part: {few:,} of its {all_:,} images{drawn} became one",)
        return Dataset(self.name, self.classes, parts["train"], parts["test"], parts.get("validation"), notes=notes)


def read_folder(folder: Path, size: int | None = None, channels: int | None = None) -> OwnImages:
    """Read ``folder/CLASS/*`` or ``folder/{train,test}/CLASS/*``; or images with masks, see ``mask_folder``.

    size: resize to this height and width.
    channels: 1 for grey, 3 for RGB; by default grey if every image is.
    """
    if size is not None and (not isinstance(size, int) or size < 1):
        raise DataError(f"image_size={size}; expected one whole number, 1 or more pixels")
    if has_masks(folder):
        return OwnImages(folder.resolve().name, *read_mask_folder(folder, size, channels))
    check_names(folder)
    parts = _part_folders(folder)
    classes = _class_names(parts["train"])
    for part in parts.values():
        if _class_names(part) != classes:
            odd = sorted(set(_class_names(part)) ^ set(classes))
            raise DataError(
                f"{part}: its classes differ from those of {parts['train']} ({', '.join(odd)}); expected the same "
                "sub-folders in both"
            )
    by_part = {name: _image_files(part, classes) for name, part in parts.items()}
    if channels is None:
        channels = 1 if all(is_grey(path) for files in by_part.values() for path, _ in files) else 3
    loaded = {name: read_files(folder, files, channels, size) for name, files in by_part.items()}
    return OwnImages(folder.resolve().name, classes, loaded)


def read_files(folder: Path, files: list[tuple[Path, int]], channels: int, size: int | None) -> Part:
    """Read files with their labels as one part; their names are their paths inside the folder."""
    images = read_images([path for path, _ in files], channels, size)
    names = tuple(path.relative_to(folder).as_posix() for path, _ in files)
    return Part(images, np.array([label for _, label in files], np.int64), names)


def files_in(folder: Path) -> Iterator[Path]:
    """Yield every image file below the sub-folders of a folder, in order."""
    for name in _subfolders(folder):
        for path in sorted((folder / name).rglob("*")):
            if path.is_file() and not path.name.startswith(".") and path.name.lower() not in _NOT_IMAGES:
                yield path


def image_files(places: Iterable[Path]) -> tuple[Path, ...]:
    """Return files as they are, and for every folder the image files in it and in its sub-folders, in order."""
    images: list[Path] = []
    for place in places:
        inside = _images_below(place) if place.is_dir() else [place]
        if not inside:
            raise DataError(f"{place} has no image; expected image files, or folders with some")
        images += inside
    return tuple(images)


def _images_below(folder: Path) -> list[Path]:
    """Return the files that are images by their names, without what begins with a dot."""
    from PIL import Image

    known = {suffix for suffix, kind in Image.registered_extensions().items() if kind in Image.OPEN}
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix.lower() in known and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]  # fmt: skip


def _part_folders(folder: Path) -> dict[str, Path]:
    if not ((folder / "train").is_dir() and (folder / "test").is_dir()):
        return {"train": folder}
    parts = {"train": folder / "train", "test": folder / "test"}
    others = [name for name in _subfolders(folder) if name not in parts]
    for name in others:
        if name not in _VALIDATION_NAMES:
            raise DataError(
                f"{folder / name}: beside train and test, expected only a folder validation (or val); move it away"
            )
        parts["validation"] = folder / name
    return parts


def _subfolders(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _class_names(folder: Path) -> tuple[str, ...]:
    names = _subfolders(folder)
    if len(names) < 2:
        count = f"1 sub-folder ({names[0]})" if names else "0 sub-folders"
        raise DataError(f"{folder}: {count}; expected two or more, one per class with its images inside")
    return tuple(names)


def _image_files(folder: Path, classes: tuple[str, ...]) -> list[tuple[Path, int]]:
    labels = {name: label for label, name in enumerate(classes)}
    files = [(path, labels[path.relative_to(folder).parts[0]]) for path in files_in(folder)]
    present = {label for _, label in files}
    for name, label in labels.items():
        if label not in present:
            raise DataError(f"{folder / name}: no image of class {name!r}; add at least one, or remove the folder")
    return files


def read_npz(path: Path) -> OwnImages:
    """Read arrays ``images`` and ``labels``, or by part as Keras' ``mnist.npz`` and MedMNIST name them."""
    with faults_named(path, DataError, "not a readable .npz of plain arrays; write it again with numpy.savez"):
        present = names_in(path)
        names = next((names for names in _NPZ_NAMES if set(names["train"]) <= set(present)), None)
        if names is None:
            listed = ", ".join([*map(repr, present[:9]), *["..."] * (len(present) > 9)])
            raise DataError(
                f"{path}: holds {listed or 'nothing'}; expected images and labels, "
                "or x_train, y_train, x_test and y_test, or train_images, train_labels, test_images and test_labels"
            )
        arrays = read_arrays(path, {"classes", *chain.from_iterable(names.values())})
        return _from_arrays(path, names, arrays)


def _from_arrays(path: Path, names: dict[str, tuple[str, str]], arrays: dict[str, Any]) -> OwnImages:
    parts = {}
    for part, (images, labels) in names.items():
        if (images in arrays) != (labels in arrays):
            raise DataError(f"{path}: one of {images} and {labels} is missing; expected both or neither")
        if images in arrays:
            parts[part] = Part(
                _as_images(arrays[images], f"{path}, {images}"), _as_labels(arrays[labels], f"{path}, {labels}")
            )
    return OwnImages(path.stem, _npz_classes(parts["train"], arrays.get("classes"), path), _named_rows(parts))


def image_digests(images: Images) -> list[str]:
    """Return a digest of the pixels of each image: the same image has the same one, wherever it lies."""
    return [hashlib.blake2b(image.tobytes(), digest_size=8).hexdigest() for image in images]


def _named_rows(parts: dict[str, Part]) -> dict[str, Part]:
    """Name each row by its digest; of rows that are alike, the second gets ``-2`` and so on."""
    seen: dict[str, int] = {}
    named = {}
    for part, rows in parts.items():
        names = []
        for digest in image_digests(rows.images):
            seen[digest] = seen.get(digest, 0) + 1
            names.append(digest if seen[digest] == 1 else f"{digest}-{seen[digest]}")
        named[part] = Part(rows.images, rows.labels, tuple(names))
    return named


def _as_images(array: Any, where: str) -> Images:
    """To [N,C,H,W]: without a channel axis, with it last, or with it second."""
    if array.ndim and len(array) > MOST_IMAGES:
        raise DataError(f"{where}: {len(array):,} images; expected at most {MOST_IMAGES:,}; give a part of them")
    if array.dtype.kind not in "ui" or (array.size and not 0 <= array.min() <= array.max() <= 255):
        description = (
            f"values {array.min():g} to {array.max():g}" if array.size and array.dtype.kind in "uif" else "no numbers"
        )
        raise DataError(f"{where}: {array.dtype} with {description}; expected whole numbers 0 to 255 (uint8)")
    images: Images = array.astype(np.uint8, copy=False)
    if images.ndim == 3:
        return images[:, None]
    if images.ndim == 4 and images.shape[3] in (1, 3):
        return images.transpose(0, 3, 1, 2)
    if images.ndim == 4 and images.shape[1] in (1, 3):
        return images
    raise DataError(f"{where}: shape {list(array.shape)}; expected [N,H,W], [N,H,W,C] or [N,C,H,W] with C 1 or 3")


def _as_labels(array: Any, where: str) -> Any:
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.dtype.kind not in "ui" or array.ndim != 1:
        raise DataError(f"{where}: {array.dtype} {list(array.shape)}; expected whole numbers, one per image")
    return array.astype(np.int64)


def _npz_classes(train: Part, names: Any, path: Path) -> tuple[str, ...]:
    if not len(train):
        raise DataError(f"{path}: no training image; expected images of two or more classes")
    if train.labels.min() < 0:
        raise DataError(f"{path}: labels begin at {train.labels.min()}; expected 0 to K-1; number the classes from 0")
    present = np.unique(train.labels)
    count = int(present[-1]) + 1
    if len(present) != count:
        absent = next(label for label, is_there in enumerate(present) if label != is_there)
        raise DataError(
            f"{path}: no training image of class {absent} though labels go up to {count - 1}; number the classes "
            "without a gap"
        )
    if count < 2:
        raise DataError(f"{path}: every label is 0; expected two or more classes, labelled 0 to K-1")
    if names is None:
        return tuple(str(label) for label in range(count))
    if names.shape != (count,):
        raise DataError(f"{path}: {names.size} class names for {count} classes; expected one per class")
    return tuple(str(name) for name in names)
