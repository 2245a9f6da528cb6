"""Read image files as uint8 arrays: upright, transparent pixels on white, in one size and mode."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from deepsup.errors import DataError
from deepsup.io import faults_named, reason, size_of_regular
from deepsup.trainer.data._dataset import Images

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "TGA", "ICO", "JPEG2000")
"""What is read; pillow starts a helper program for some other formats, whatever a file's name ends in."""
MOST_PIXELS, MOST_SIDE = 2**26, 2**16
"""Of one image file: 8,192 x 8,192. Decoded it takes at most 1 GiB; scaling a longer side down takes as much again."""
MOST_SCANS = 100
"""Of a progressive JPEG, which has about 10. A scan may take 70 bytes, and each goes over all pixels."""


def _opened(path: Path) -> Image.Image:
    """Open a regular file of a format that pillow reads by itself, and of a size that fits into memory."""
    from PIL import Image

    size_of_regular(path)
    image = Image.open(path, formats=FORMATS)
    if image.width * image.height > MOST_PIXELS:
        image.close()
        raise ValueError(f"{image.width}x{image.height} pixels, expected at most {MOST_PIXELS:,}; resize it")
    if max(image.size) > MOST_SIDE:
        image.close()
        raise ValueError(f"{image.width}x{image.height} pixels, expected at most {MOST_SIDE:,} on a side; resize it")
    if image.format in ("JPEG", "MPO") and (scans := scans_in(path)) > MOST_SCANS:
        image.close()
        raise ValueError(f"{scans:,} scans, expected at most {MOST_SCANS}; save it again")
    return image


def scans_in(path: Path) -> int:
    """Return how many scans a JPEG has: within one, their mark does not occur."""
    count, last = 0, b""
    with path.open("rb") as file:
        while part := file.read(2**20):
            count += (last + part).count(b"\xff\xda")
            last = part[-1:]
    return count


def open_image(path: Path) -> Image.Image:
    """Return one image, upright; raise an error if the file is not an image."""
    from PIL import ImageOps, UnidentifiedImageError

    try:
        with _opened(path) as image:
            # cameras may store an image rotated, with a tag
            upright = ImageOps.exif_transpose(image)
            upright.load()
            upright.format = image.format  # a copy has none
            return upright
    except FileNotFoundError:
        raise DataError(f"no file {path}; expected an image file") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder; expected image files, e.g. {path}/*.png") from None
    except UnidentifiedImageError:
        raise DataError(
            f"{path}: not a readable image: it is of no known format; expected {', '.join(FORMATS)}; convert it or "
            "remove it"
        ) from None
    except Exception as error:  # pillow raises many kinds for damaged files, none of them common to all
        raise DataError(f"{path}: not a readable image ({reason(error)}); repair it or remove it") from error


def is_grey(path: Path) -> bool:
    """Whether an image file has no colour, by its mode; transparent or not."""
    try:
        with _opened(path) as image:
            return image.mode in ("1", "L", "LA", "I;16")
    except Exception:
        open_image(path)
        raise


def read_images(files: Sequence[Path], channels: int, size: int | None) -> Images:
    """Read files of one size as [N,C,H,W], or resize all to ``size`` x ``size``."""
    first: tuple[Path, tuple[int, int]] | None = None
    arrays = []
    for path in files:
        image = _pixels(path, channels, None if size is None else (size, size))
        first = first or (path, image.size)
        if image.size != first[1]:
            (a, b), (c, d) = first[1], image.size
            raise DataError(
                f"mixed sizes: {first[0]} is {a}x{b} and {path} is {c}x{d}; expected one size; resize all images to "
                "one: image_size=64, or --image-size 64"
            )
        arrays.append(np.asarray(image).reshape(image.size[1], image.size[0], channels))
    return np.stack(arrays).transpose(0, 3, 1, 2)


def read_image_files(files: Sequence[Path], shape: Sequence[int]) -> Images:
    """Read image files as [N,C,H,W], each resized to ``shape`` = [C,H,W]."""
    channels, height, width = shape
    images = np.empty((len(files), height, width, channels), np.uint8)
    for index, path in enumerate(files):
        images[index] = np.asarray(_pixels(path, channels, (width, height))).reshape(height, width, channels)
    return images.transpose(0, 3, 1, 2)


def _pixels(path: Path, channels: int, size: tuple[int, int] | None) -> Image.Image:
    """One image with 8 bits per channel, grey or RGB, in a size (width, height) or its own."""
    with faults_named(path, DataError, "repair it or remove it"):
        image = _in_mode(open_image(path), path, "L" if channels == 1 else "RGB")
        return image if size is None else image.resize(size)


def _in_mode(image: Image.Image, path: Path, mode: str) -> Image.Image:
    from PIL import Image

    if image.mode.startswith("I;16"):
        # pillow would cut values above 255 off instead of scaling them
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise DataError(
            f"{path}: pixels of mode {image.mode!r} have no fixed range; expected 8 or 16 bits per channel; convert it"
        )
    return _on_white(image).convert(mode)


def _on_white(image: Image.Image) -> Image.Image:
    """Draw a transparent image on white: its hidden pixels, mostly black, are not what people see."""
    from PIL import Image

    if image.mode not in ("RGBA", "RGBa", "LA", "PA") and "transparency" not in image.info:
        return image
    image = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
