"""A folder with one sub-folder a class, or an .npz, in; a data set out: your own images.

Where there is no test part of its own, a fifth of the images, stratified and always the same, becomes one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deepsup.data.dataset import Dataset, Images, Part
from deepsup.data.splits import a_fifth
from deepsup.errors import DataError

if TYPE_CHECKING:
    from PIL import Image

_VALIDATION_NAMES = ("validation", "val")
# What file managers leave in folders; names that begin with a dot are passed over too.
_NOT_IMAGES = {"thumbs.db", "desktop.ini"}
# Names of the arrays in an .npz, by part: ours, those of Keras' mnist.npz, those of MedMNIST.
_NPZ_NAMES = [
    {"train": ("train_images", "train_labels"), "test": ("test_images", "test_labels"),
     "validation": ("val_images", "val_labels")},
    {"train": ("x_train", "y_train"), "test": ("x_test", "y_test")},
    {"train": ("images", "labels")},
]  # fmt: skip


def read_folder(folder: Path, size: int | None = None) -> Dataset:
    """Read ``folder/CLASS/*`` or ``folder/{train,test}/CLASS/*``, resized to ``size`` x ``size`` if asked."""
    if size is not None and (not isinstance(size, int) or size < 1):
        raise DataError(f"image size {size}; expected one whole number, 1 or more pixels")
    parts = _part_folders(folder)
    classes = _class_names(parts["train"])
    for part in parts.values():
        if _class_names(part) != classes:
            odd = sorted(set(_class_names(part)) ^ set(classes))
            raise DataError(f"{part}: its classes differ from those of {parts['train']} ({', '.join(odd)})")
    found = {name: _image_files(part, classes) for name, part in parts.items()}
    channels = 1 if all(_is_grey(path) for files in found.values() for path, _ in files) else 3
    held = {name: _read_images(files, size, channels) for name, files in found.items()}
    return _with_test(folder.name, classes, held)


def _part_folders(folder: Path) -> dict[str, Path]:
    if not ((folder / "train").is_dir() and (folder / "test").is_dir()):
        return {"train": folder}
    parts = {"train": folder / "train", "test": folder / "test"}
    others = [name for name in _subfolders(folder) if name not in parts]
    for name in others:
        if name not in _VALIDATION_NAMES:
            raise DataError(f"{folder / name}: beside train and test only a folder validation (or val) is known")
        parts["validation"] = folder / name
    return parts


def _subfolders(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _class_names(folder: Path) -> tuple[str, ...]:
    names = _subfolders(folder)
    if len(names) < 2:
        raise DataError(f"{folder}: {len(names)} sub-folders; expected two or more, one a class with its images inside")
    return tuple(names)


def _image_files(folder: Path, classes: tuple[str, ...]) -> list[tuple[Path, int]]:
    files = []
    for label, name in enumerate(classes):
        of_class = [
            path
            for path in sorted((folder / name).rglob("*"))
            if path.is_file() and not path.name.startswith(".") and path.name.lower() not in _NOT_IMAGES
        ]
        if not of_class:
            raise DataError(f"{folder / name}: no image of class {name!r}; expected at least one, or no such folder")
        files += [(path, label) for path in of_class]
    return files


def _open(path: Path) -> Image.Image:
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as image:
            # cameras store the picture lying down and say so
            upright = ImageOps.exif_transpose(image)
            upright.load()
            return upright
    except FileNotFoundError:
        raise DataError(f"no file {path}; expected an image file") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder; expected image files, e.g. {path}/*.png") from None
    except Exception as error:  # pillow raises many kinds for damaged files, none of them common to all
        reason = " ".join(str(error).replace(f"'{path}'", "the file").split())
        raise DataError(f"{path}: not a readable image ({reason}); repair it or remove it") from error


def _is_grey(path: Path) -> bool:
    from PIL import Image

    try:
        with Image.open(path) as image:
            return image.mode in ("1", "L", "I;16")
    except Exception:
        _open(path)
        raise


def _pixels(image: Image.Image, path: Path, channels: int) -> Image.Image:
    """To 8 bits a channel, grey or RGB."""
    from PIL import Image

    if image.mode.startswith("I;16"):
        # pillow would cut values above 255 off instead of scaling them
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise DataError(f"{path}: pixels of mode {image.mode!r} have no fixed range; expected 8 or 16 bits a channel")
    return image.convert("L" if channels == 1 else "RGB")


def _read_images(files: list[tuple[Path, int]], size: int | None, channels: int) -> Part:
    first: tuple[Path, tuple[int, int]] | None = None
    arrays = []
    for path, _ in files:
        image = _pixels(_open(path), path, channels)
        if size is not None:
            image = image.resize((size, size))
        first = first or (path, image.size)
        if image.size != first[1]:
            (a, b), (c, d) = first[1], image.size
            raise DataError(
                f"mixed sizes: {first[0]} is {a}x{b} and {path} is {c}x{d}; expected one size, "
                "or the size to resize to (image_size=32, --image-size 32)"
            )
        arrays.append(np.asarray(image).reshape(image.size[1], image.size[0], channels))
    images = np.stack(arrays).transpose(0, 3, 1, 2)
    return Part(images, np.array([label for _, label in files], np.int64))


def read_npz(path: Path) -> Dataset:
    """Read arrays ``images`` and ``labels``, or by part as Keras' ``mnist.npz`` and MedMNIST name them."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
            arrays = {name: held[name] for name in held.files}
    except Exception as error:  # zip, header, pickle and checksum errors share no class
        raise DataError(f"{path}: not a readable .npz of plain arrays ({' '.join(str(error).split())})") from error
    for names in _NPZ_NAMES:
        if all(key in arrays for key in names["train"]):
            break
    else:
        raise DataError(
            f"{path}: holds {', '.join(map(repr, arrays)) or 'nothing'}; expected images and labels, "
            "or x_train, y_train, x_test and y_test, or train_images, train_labels, test_images and test_labels"
        )
    parts = {}
    for part, (images, labels) in names.items():
        if (images in arrays) != (labels in arrays):
            raise DataError(f"{path}: one of {images} and {labels} is missing; expected both or neither")
        if images in arrays:
            parts[part] = Part(
                _as_images(arrays[images], f"{path}, {images}"), _as_labels(arrays[labels], f"{path}, {labels}")
            )
    return _with_test(path.stem, _npz_classes(parts["train"], arrays.get("classes"), path), parts)


def _as_images(array: Any, where: str) -> Images:
    """To [N,C,H,W]: without a channel axis, with it last, or with it second."""
    if array.dtype.kind not in "ui" or (array.size and not 0 <= array.min() <= array.max() <= 255):
        held = (
            f"values {array.min():g} to {array.max():g}" if array.size and array.dtype.kind in "uif" else "no numbers"
        )
        raise DataError(f"{where}: {array.dtype} with {held}; expected whole numbers 0 to 255 (uint8)")
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
        raise DataError(f"{where}: {array.dtype} {list(array.shape)}; expected whole numbers, one an image")
    return array.astype(np.int64)


def _npz_classes(train: Part, names: Any, path: Path) -> tuple[str, ...]:
    if not len(train) or train.labels.min() < 0:
        raise DataError(f"{path}: labels begin at {train.labels.min() if len(train) else 'nothing'}; expected 0 to K-1")
    present = np.unique(train.labels)
    count = int(present[-1]) + 1
    if len(present) != count:
        absent = next(label for label, held in enumerate(present) if label != held)
        raise DataError(
            f"{path}: no training image of class {absent} though labels go up to {count - 1}; renumber them"
        )
    if names is None:
        return tuple(str(label) for label in range(count))
    if names.shape != (count,):
        raise DataError(f"{path}: {names.size} class names for {count} classes; expected one a class")
    return tuple(str(name) for name in names)


def _with_test(name: str, classes: tuple[str, ...], parts: dict[str, Part]) -> Dataset:
    if "test" in parts:
        return Dataset(name, classes, parts["train"], parts["test"], parts.get("validation"))
    train, test = a_fifth(parts["train"])
    note = f"{name} has no test part: {len(test):,} of its {len(test) + len(train):,} images, stratified, became one"
    return Dataset(name, classes, train, test, parts.get("validation"), notes=(note,))


def read_image_files(files: Sequence[Path], shape: Sequence[int]) -> Images:
    """Read image files as [N,C,H,W], each resized to ``shape`` = [C,H,W]."""
    channels, height, width = shape
    images = np.empty((len(files), height, width, channels), np.uint8)
    for index, path in enumerate(files):
        pixels = _pixels(_open(path), path, channels).resize((width, height))
        images[index] = np.asarray(pixels).reshape(height, width, channels)
    return images.transpose(0, 3, 1, 2)
