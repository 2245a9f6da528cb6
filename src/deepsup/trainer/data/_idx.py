"""Read idx and idx.gz files, the format of MNIST, and compute their digests.

The format: two zero bytes, a type (8: unsigned byte), the number of axes, each axis as four bytes (the highest first),
the values.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import IO

import numpy as np

from deepsup.errors import DataError
from deepsup.trainer.data._dataset import Images, Labels, Part
from deepsup.trainer.data._storage import md5

_UNSIGNED_BYTE = 8
_MOST_BYTES = 2**28
"""Values of a file: MNIST has 47,040,000."""


def read_idx(path: Path, axes: int) -> tuple[Images, str]:
    """Read one file of unsigned bytes with ``axes`` axes."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            header, values = _read(file, path, axes)  # type: ignore[arg-type]
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: damaged gzip file ({error}); {_again(path)}") from error
    shape = struct.unpack(f">{axes}I", header[4:])
    return np.frombuffer(values, np.uint8).reshape(shape), md5(header + values)


def _read(file: IO[bytes], path: Path, axes: int) -> tuple[bytes, bytes]:
    header = file.read(4 + 4 * axes)
    expected = bytes([0, 0, _UNSIGNED_BYTE, axes])
    if header[:4] != expected:
        raise DataError(
            f"{path}: begins with {header[:4].hex(' ') or 'nothing'}; expected {expected.hex(' ')}, the mark of an idx "
            f"file of bytes with {axes} axes; {_again(path)}"
        )
    if len(header) < 4 + 4 * axes:
        raise DataError(f"{path}: ends inside its header; {_again(path)}")
    count = math.prod(struct.unpack(f">{axes}I", header[4:]))
    if count > _MOST_BYTES:
        raise DataError(f"{path}: its header claims {count:,} values; expected at most {_MOST_BYTES:,}; {_again(path)}")
    # One byte more than claimed shows a longer file, and makes gzip reach its checksum.
    values = file.read(count + 1)
    if len(values) != count:
        longer = len(values) > count
        size = f"more than {count:,}" if longer else f"only {len(values):,}"
        raise DataError(f"{path}: its header claims {count:,} values but it holds {size}; {_again(path)}")
    return header, values


def read_pair(images: Path, labels: Path) -> tuple[Part, dict[Path, str]]:
    """Read an image file and its label file into a part with one channel, and the digest of each."""
    pixels, pixels_md5 = read_idx(images, axes=3)
    marks, marks_md5 = read_idx(labels, axes=1)
    if len(pixels) != len(marks):
        raise DataError(
            f"{images.name} has {len(pixels):,} images but {labels.name} has {len(marks):,} labels "
            f"(in {images.parent}); expected the same number; {_again(images)}"
        )
    y: Labels = marks.astype(np.int64)
    return Part(pixels[:, None], y), {images: pixels_md5, labels: marks_md5}


def pack_idx(values: Images) -> bytes:
    """Return an array of bytes as the bytes of an idx file.

    >>> pack_idx(np.array([7, 8], np.uint8)).hex(" ")
    '00 00 08 01 00 00 00 02 07 08'
    """
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, _UNSIGNED_BYTE, values.ndim, *values.shape)
    return header + values.tobytes()


def _again(path: Path) -> str:
    return f"move {path.name} away and get it again"
