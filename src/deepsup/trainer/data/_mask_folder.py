"""Read the user's own images and masks: ``images/`` and ``masks/`` with files of the same names.

A mask has a class number per pixel: a palette image (its indices count, not its colours) or a gray one. 255 is ignored;
if the masks hold only 0 and 255, 255 is class 1. ``classes.txt`` may name the classes, one per line.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from deepsup.errors import DataError
from deepsup.io import faults_named, read_bounded
from deepsup.trainer.data._dataset import IGNORED, Part
from deepsup.trainer.data._images import is_grey, open_image, read_images
from deepsup.trainer.data._scenes import Masks

LOSSY = ("JPEG", "MPO")
MOST_NAMES = 2**16
"""Bytes of ``classes.txt``."""
PARTS = {"train": "train", "test": "test", "validation": "validation", "val": "validation"}


def has_masks(folder: Path) -> bool:
    """Whether a folder holds ``images/`` and ``masks/``, by itself or in ``train/``."""
    return any((place / "images").is_dir() and (place / "masks").is_dir() for place in (folder, folder / "train"))


def check_names(folder: Path) -> None:
    """Raise an error for masks in a folder of another name, which would be read as a class of images."""
    for place in (folder, folder / "train"):
        if not (place / "images").is_dir():
            continue
        stems = {path.stem for path in (place / "images").iterdir()}
        for other in sorted(place.iterdir()):
            if other.is_dir() and other.name != "images" and stems == {path.stem for path in other.iterdir()}:
                raise DataError(
                    f"{other} has a file for every one in {place / 'images'}; expected masks in {place / 'masks'}; "
                    f"rename {other.name} to masks"
                )


def read_mask_folder(
    folder: Path, size: int | None = None, channels: int | None = None
) -> tuple[tuple[str, ...], dict[str, Part]]:
    """Return the names of the classes and the parts of ``folder/{images,masks}`` or ``folder/{train,test}/...``.

    size: resize to this height and width. channels: 1 for gray, 3 for RGB; by default gray if every image is.
    """
    pairs = {part: pairs_in(folder / place) for place, part in places(folder).items()}
    channels = channels or (1 if all(is_grey(image) for part in pairs.values() for image, _ in part) else 3)
    parts = {name: read_pairs(folder, part, channels, size) for name, part in pairs.items()}
    values = np.unique(np.concatenate([np.unique(part.labels) for part in parts.values()]))
    if values.tolist() == [0, IGNORED]:  # a binary mask in black and white
        parts = {name: Part(part.images, (part.labels > 0).astype(np.uint8), part.names)
                 for name, part in parts.items()}  # fmt: skip
        values = np.array([0, 1])
    return class_names(folder, values[values != IGNORED]), parts


def places(folder: Path) -> dict[str, str]:
    """Return sub-folder -> part; a folder without parts is all training images."""
    if (folder / "images").is_dir():
        return {"": "train"}
    return {name: part for name, part in PARTS.items() if (folder / name / "images").is_dir()}


def pairs_in(folder: Path) -> list[tuple[Path, Path]]:
    """Return every image of a folder with its mask, which has the same name up to the suffix."""
    images, masks = by_stem(folder / "images"), by_stem(folder / "masks")
    for one, other, names in ((images, masks, ("images", "masks")), (masks, images, ("masks", "images"))):
        alone = [stem for stem in one if stem not in other]
        if alone:
            raise DataError(
                f"{one[alone[0]]} has no partner in {folder / names[1]} ({len(alone):,} such files); expected a file "
                f"{alone[0]}.* there; add it, or remove the {names[0][:-1]}"
            )
    if not images:
        raise DataError(f"{folder / 'images'}: no image; expected at least one, with its mask in {folder / 'masks'}")
    return [(images[stem], masks[stem]) for stem in images]


def by_stem(folder: Path) -> dict[str, Path]:
    """Return the files of a folder by their names without the suffix, which must differ."""
    files: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.name[0] != ".":
            if path.stem in files:
                raise DataError(
                    f"{files[path.stem]} and {path.name} have the same name but for the suffix; expected one file per "
                    f"image and per mask; rename or remove one"
                )
            files[path.stem] = path
    return files


def read_pairs(folder: Path, pairs: list[tuple[Path, Path]], channels: int, size: int | None) -> Part:
    """Read images and masks as one part; the names of the images are their paths inside the folder."""
    masks = [read_mask(mask, image, size) for image, mask in pairs]
    images = read_images([image for image, _ in pairs], channels, size)
    names = tuple(image.relative_to(folder).as_posix() for image, _ in pairs)
    return Part(images, np.stack(masks), names)


def read_mask(path: Path, image: Path, size: int | None) -> Masks:
    """Return the class numbers of a mask [H,W]; it must have the size of its image."""
    from PIL import Image

    mask = open_image(path)
    if mask.format in LOSSY:
        raise DataError(
            f"{path}: a mask in {mask.format}, whose compression changes the class numbers; expected PNG or another "
            f"lossless format; convert the original masks"
        )
    if mask.mode not in ("P", "L", "1", "I;16", "I"):
        raise DataError(
            f"{path}: a mask of mode {mask.mode!r}; expected a class number per pixel: a palette or a gray image; "
            f"convert the colours to numbers"
        )
    whole = open_image(image).size
    if mask.size != whole:
        raise DataError(
            f"{path} is {mask.size[0]}x{mask.size[1]}, its image {image} is {whole[0]}x{whole[1]}; expected the same "
            f"size; resize the mask (nearest)"
        )
    numbers = np.asarray(mask).astype(np.int64)
    for number in (numbers.min(), numbers.max()):
        if not 0 <= number <= IGNORED:
            raise DataError(f"{path}: class number {number}; expected 0 to {IGNORED - 1}, or {IGNORED} to ignore")
    mask = Image.fromarray(numbers.astype(np.uint8))
    return np.asarray(mask if size is None else mask.resize((size, size), Image.Resampling.NEAREST))


def class_names(folder: Path, values: np.ndarray) -> tuple[str, ...]:
    """Return the names of the classes: those of ``classes.txt``, or their numbers."""
    highest, listed = int(values.max(initial=0)), folder / "classes.txt"
    if listed.is_file():
        with faults_named(listed, DataError, "expected the name of one class per line, in UTF-8"):
            lines = read_bounded(listed, MOST_NAMES).decode().splitlines()
        names = tuple(line.strip() for line in lines if line.strip())
        if highest >= len(names):
            raise DataError(
                f"{listed}: {len(names)} names, but masks have class {highest}; expected one name per class"
            )
        if len(names) > IGNORED:
            raise DataError(f"{listed}: {len(names):,} names; expected at most {IGNORED}, one per class")
        return names
    if len(values) == 0:
        raise DataError(f"{folder}: every pixel is {IGNORED}, which is ignored; expected class numbers from 0")
    if highest < 1:
        raise DataError(f"{folder}: every pixel has class 0; expected two or more classes; is it the right folder?")
    if highest + 1 > 2 * len(values) + 8:
        raise DataError(
            f"{folder}: masks have the values {', '.join(map(str, values[:8]))}...; expected class numbers 0 to K-1 "
            f"(255: ignored); number the classes from 0, or name them all in classes.txt"
        )
    return tuple(map(str, range(highest + 1)))
