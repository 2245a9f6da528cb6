"""Read CIFAR files: the binary version, and the Python version through an unpickler that imports nothing.

A binary record is one label byte (CIFAR-10) or a coarse and a fine one (CIFAR-100), then 3,072 bytes: a red, a green
and a blue plane of 32 x 32.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deepsup.errors import DataError
from deepsup.trainer.data._dataset import Images, Part, check_labels
from deepsup.trainer.data._pickles import PlainUnpickler, check_operations
from deepsup.trainer.data._storage import md5

_PIXELS = 3 * 32 * 32
_MOST_BYTES = 2**29


def read_binary(paths: Sequence[Path], label_bytes: int, classes: int) -> tuple[Part, dict[Path, str]]:
    """Read records of ``label_bytes`` labels (the last one counts) and an image from all files, in their order."""
    record = label_bytes + _PIXELS
    counts = []
    for path in paths:
        size = path.stat().st_size
        if size == 0 or size % record:
            raise DataError(
                f"{path}: {size:,} bytes; expected a multiple of {record:,}, the size of a record; "
                f"move {path.name} away and get it again"
            )
        counts.append(size // record)
    images, labels, digests = _empty(sum(counts)), np.empty(sum(counts), np.int64), {}
    for path, start, count in zip(paths, np.cumsum([0, *counts]), counts, strict=False):
        data = path.read_bytes()
        records = np.frombuffer(data, np.uint8).reshape(count, record)
        images[start : start + count] = _planes_last(records[:, label_bytes:])
        labels[start : start + count] = records[:, label_bytes - 1]
        check_labels(labels[start : start + count], classes, str(path))
        digests[path] = md5(data)
    return Part(images.transpose(0, 3, 1, 2), labels), digests


def read_python(paths: Sequence[Path], label_key: bytes, classes: int) -> tuple[Part, dict[Path, str]]:
    """Read the batches of the python version: pickled dictionaries with ``data`` [N,3072] and a list of labels."""
    images, labels, digests = [], [], {}
    for path in paths:
        data = path.read_bytes()
        batch = unpickle(path, data)
        pixels, marks = batch.get(b"data"), batch.get(label_key)
        if not (isinstance(pixels, _Array) and isinstance(marks, list) and all(type(m) is int for m in marks)):
            raise DataError(f"{path}: expected an array 'data' and a list of ints {label_key.decode()!r} in it")
        rows = pixels.rows(path)
        if len(rows) != len(marks):
            raise DataError(f"{path}: {len(rows):,} images but {len(marks):,} labels; expected the same number")
        if any(not 0 <= mark < classes for mark in marks):
            check_labels(np.array(marks, object), classes, str(path))
        images.append(_planes_last(rows))
        labels.append(np.array(marks, np.int64))
        digests[path] = md5(data)
    return Part(np.concatenate(images).transpose(0, 3, 1, 2), np.concatenate(labels)), digests


def _empty(count: int) -> Images:
    return np.empty((count, 32, 32, 3), np.uint8)


def _planes_last(rows: Images) -> Images:
    """[N,3072] planes -> [N,32,32,3]: the memory order that torch calls channels_last."""
    images = _empty(len(rows))
    images[...] = rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return images


class _Array:
    """A stand-in for a numpy array in a pickle: it keeps the bytes and calls no numpy code."""

    shape = dtype = fortran = raw = None

    def __setstate__(self, state: Any) -> None:
        _, self.shape, self.dtype, self.fortran, self.raw = state

    def rows(self, path: Path) -> Images:
        """Return the array as bytes [N,3072]."""
        shape, raw = self.shape, self.raw
        # Python 2 wrote the bytes as a string, which the pickle of Python 3 hands over as bytes.
        if not (
            isinstance(self.dtype, _Type)
            and self.dtype.code in ("u1", b"u1", "uint8")
            and isinstance(raw, bytes)
            and isinstance(shape, tuple)
            and [type(length) for length in shape] == [int, int]
            and shape[1] == _PIXELS
            and len(raw) == shape[0] * _PIXELS
        ):
            raise DataError(f"{path}: 'data' is not an array of bytes [N,{_PIXELS}]")
        flat = np.frombuffer(raw, np.uint8)
        return flat.reshape(shape[::-1]).T if self.fortran else flat.reshape(shape)


class _Type:
    """A stand-in for a numpy dtype in a pickle."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        pass


def _reconstruct(*_: Any) -> _Array:
    return _Array()


_ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Type,
}


class _Unpickler(PlainUnpickler):
    """Admits arrays too, as stand-ins."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return self.encode
        if (module, name) not in _ADMITTED:
            return super().find_class(module, name)
        return _ADMITTED[module, name]


def unpickle(path: Path, data: bytes) -> dict[bytes, Any]:
    """Read a pickled dictionary with keys as bytes, whichever Python wrote it."""
    if len(data) > _MOST_BYTES:
        raise DataError(f"{path}: {len(data):,} bytes; expected at most {_MOST_BYTES:,} for a CIFAR batch")
    try:
        check_operations(data)
        batch = _Unpickler(data).load()
        if isinstance(batch, dict):
            return {key.encode() if isinstance(key, str) else key: value for key, value in batch.items()}
    except Exception as error:  # a hostile or broken pickle can raise anything
        raise DataError(
            f"{path}: refused ({' '.join(str(error).split()) or type(error).__name__}); expected a pickle of arrays, "
            "lists, dictionaries, bytes, strings and ints; get the file from its publisher again"
        ) from error
    raise DataError(f"{path}: holds a {type(batch).__name__}; expected a dictionary with 'data' and labels")
