"""Read the numeric arrays of a MATLAB 5 file.

scipy is not used because its compiled reader crashes the process (a segmentation fault in 1.17) on files with a few
changed bytes. The format: 128 bytes of header, then elements of a type, a size and a payload; an array is an
element of elements (flags, axes, name, values), and may be packed by zlib, whose checksum then covers it.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_NAME, _AXES, _FLAGS, _ARRAY, _PACKED = 1, 5, 6, 14, 15
_VALUES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_LEAST_ROOM, _MOST_RATIO = 2**26, 16
"""What the packed arrays of a small file may unpack to, and how many times its size those of a large one."""


class NotMatlab(Exception):  # noqa: N818 - the caller names the file
    """Why the bytes are not a readable MATLAB 5 file."""


def read_mat(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return every numeric array of a file."""
    with path.open("rb") as file:
        if path.stat().st_size < 128:
            raise NotMatlab("it ends inside its header")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as data:
            order = {b"IM": "<", b"MI": ">"}.get(bytes(data[126:128]))
            if order is None or bytes(data[:10]) != b"MATLAB 5.0":
                raise NotMatlab(f"it begins with {bytes(data[:10])!r}; expected b'MATLAB 5.0'")
            return dict(_arrays(data, order, max(_LEAST_ROOM, _MOST_RATIO * len(data))))


def _arrays(data: memoryview, order: str, room: int) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    at = 128
    while at < len(data):
        with data[at:] as rest:
            kind, begin, size = _tag(rest, order)
            with rest[begin : begin + size] as payload:
                if kind == _PACKED:
                    unpacked = _unpacked(payload, order, room)
                    room -= len(unpacked)
                    yield _array(unpacked, order)
                elif kind == _ARRAY:
                    # a copy, because the mapping ends with the file
                    yield _array(memoryview(bytes(payload)), order)
                else:
                    raise NotMatlab(f"an element of type {kind}")
        at += begin + size


def _tag(data: memoryview, order: str) -> tuple[int, int, int]:
    """Return type, begin and size of the payload of the element that the bytes begin with."""
    if len(data) < 8:
        raise NotMatlab("it ends inside an element")
    kind, size = struct.unpack_from(f"{order}II", data)
    begin = 8
    if kind >> 16:  # up to four bytes stand in the tag itself
        kind, size, begin = kind & 0xFFFF, kind >> 16, 4
    if begin + size > len(data) or (begin == 4 and size > 4):
        raise NotMatlab("it ends inside an element")
    return kind, begin, size


def _unpacked(payload: memoryview, order: str, room: int) -> memoryview:
    try:
        head = zlib.decompressobj().decompress(payload, 8)
        if len(head) < 8:
            raise NotMatlab("a packed element ends inside its tag")
        kind, size = struct.unpack(f"{order}II", head)
        if kind != _ARRAY:
            raise NotMatlab("a packed element that is no array")
        if size > room:
            raise NotMatlab(f"a packed element of {size:,} bytes, expected at most {room:,} for a file of this size")
        stream = zlib.decompressobj()
        whole = stream.decompress(payload, 8 + size + 1)
    except zlib.error as error:
        raise NotMatlab(str(error)) from error
    if not stream.eof or len(whole) != 8 + size:
        raise NotMatlab("a packed element of the wrong size")
    return memoryview(whole)[8:]


def _array(data: memoryview, order: str) -> tuple[str, npt.NDArray[Any]]:
    """Read flags, axes, name and values, in this order."""
    parts: list[tuple[int, memoryview]] = []
    at = 0
    for expected in (_FLAGS, _AXES, _NAME, None):
        kind, begin, size = _tag(data[at:], order)
        if kind != expected and (expected is not None or kind not in _VALUES):
            raise NotMatlab(f"an array whose part {len(parts) + 1} is of type {kind}")
        parts.append((kind, data[at + begin : at + begin + size]))
        at += 8 if begin == 4 else 8 + -(-size // 8) * 8
    (_, flags), (_, axes), (_, name), (kind, values) = parts
    kind_of_values = _CLASSES.get(flags[0] if order == "<" else flags[3]) if len(flags) == 8 else None
    shape = np.frombuffer(axes, f"{order}i4") if len(axes) % 4 == 0 else np.array([-1])
    if kind_of_values is None or (shape < 0).any():
        raise NotMatlab("an array of no numeric kind or shape")
    dtype = np.dtype(order + _VALUES[kind])
    if len(values) != dtype.itemsize * int(np.prod(shape, dtype=object)):
        raise NotMatlab(f"an array of shape {shape.tolist()} with {len(values):,} bytes of values")
    array = np.frombuffer(values, dtype).reshape(tuple(shape), order="F")
    return bytes(name).decode("latin1"), array.astype(kind_of_values, copy=False)
