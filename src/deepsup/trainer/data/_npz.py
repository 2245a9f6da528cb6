"""An .npz file -> the arrays asked for, after its headers have said that they fit into memory.

numpy would load every member, and take the memory that a header claims before it reads the values.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy.typing as npt
from numpy.lib import format as npy

from deepsup.io import check_zip_list

MOST_BYTES = 2**29
"""What the arrays of a small file may take; those of a large one may take ``MOST_RATIO`` times its size."""
MOST_RATIO = 32

_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_arrays(
    path: Path, names: Collection[str] | None = None, most: int | None = None
) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of these names, as far as they are there; by default all of them.

    most: bytes that they may take.
    """
    size = check_zip_list(path)
    room = max(MOST_BYTES, MOST_RATIO * size) if most is None else most
    with zipfile.ZipFile(path) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        chosen = {name: info for name, info in members.items() if names is None or name in names}
        total = sum(info.file_size for info in chosen.values())
        if total > room:
            raise ValueError(
                f"its arrays take {total:,} bytes, expected at most {room:,}; write larger ones with numpy.savez, "
                "without compression"
            )
        return {name: _array(archive, info) for name, info in chosen.items()}


class StoredArrays(Mapping[str, npt.NDArray[Any]]):
    """The arrays of a file, each read when it is asked for, within a bound: many files take the memory of one array."""

    def __init__(self, path: Path, most: int = MOST_BYTES // 4) -> None:
        self.path, self.most = path, most
        self.names = frozenset(names_in(path))

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        if name not in self.names:
            raise KeyError(name)
        return read_arrays(self.path, [name], self.most)[name]

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def names_in(path: Path) -> list[str]:
    """Return the names of the arrays in a file, without reading them."""
    check_zip_list(path)
    with zipfile.ZipFile(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> npt.NDArray[Any]:
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"its member {info.filename!r} is packed in a way that numpy does not use")
    with archive.open(info) as file:
        _check_header(file, info)
    with archive.open(info) as file:
        array: npt.NDArray[Any] = npy.read_array(file, allow_pickle=False)
        if file.read(1):
            raise ValueError(f"its member {info.filename!r} is longer than its header says")
    return array


def _check_header(file: IO[bytes], info: zipfile.ZipInfo) -> None:
    """Compare what the header of an array claims with the size of the member."""
    version = npy.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"its member {info.filename!r} has npy version {version}, expected 1.0 or 2.0")
    shape, _, dtype = _HEADERS[version](file)
    if dtype.hasobject:
        raise ValueError(f"its member {info.filename!r} holds pickled objects, which are never read")
    if math.prod(shape) * dtype.itemsize != info.file_size - file.tell():
        raise ValueError(f"its member {info.filename!r} does not match its header")
