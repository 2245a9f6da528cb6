"""A file that torch.save wrote -> whether torch may read it: what checkpoints hold and nothing else, within bounds.

torch's reader for files of strangers (``weights_only``) imports nothing. Yet a file of a few bytes can have it make an
array of ten gigabytes, or hash a key for ever. So the structure is first read with stand-ins for all that torch makes.
"""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from deepsup.io import check_zip_list
from deepsup.trainer.data import PlainUnpickler, check_operations

MOST_STRUCTURE = 3 * 2**20
"""Bytes of all but the values of tensors: about 100 per tensor. A single byte can stand for an object of a hundred."""
MOST_OPERATIONS = 2**20
"""Steps that make the structure, and values in it: a tensor takes about 25."""
PICKLES = 5
"""In a file of old versions of torch, before the values of the tensors."""


def check_saved(path: Path) -> None:
    """Refuse a file whose structure is not one that torch.save writes for tensors, numbers and text."""
    with path.open("rb") as file:
        if file.read(4) == b"PK\3\4":  # as torch tells the kinds apart
            check_zip(path)
            return
        file.seek(0)
        begin = file.read(MOST_STRUCTURE)
    if not begin.startswith(b"\x80"):  # the first byte of every pickle that torch writes
        raise ValueError("torch.save has not written it")
    for _ in range(PICKLES):
        begin = begin[check_pickle(begin) :]


def check_zip(path: Path) -> None:
    """Compare every record with its checksum, which torch writes but does not read; refuse packed records.

    torch stores records as they are, so that they never take more memory than the file has bytes. Two records of one
    name, or two ends, could be one file for this reader and another for torch's.
    """
    check_zip_list(path)
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        structures = [info for info in members if info.filename.endswith(".pkl")]
        longest = max((info.file_size for info in structures), default=0)
        if longest > MOST_STRUCTURE:
            raise ValueError(f"its structure has {longest:,} bytes, expected at most {MOST_STRUCTURE:,}")
        if any(info.compress_type != zipfile.ZIP_STORED for info in members):
            raise ValueError("it has packed records")
        if len({info.filename for info in members}) < len(members) or ends_of(path) != 1:
            raise ValueError("it has two records of one name, or two lists of them")
        for info in structures:
            check_pickle(archive.read(info))
        damaged = archive.testzip()
    if damaged is not None:
        raise ValueError(f"the checksum of its record {damaged!r} differs")


def ends_of(path: Path) -> int:
    """Return how many ends of a zip file there are where one may be."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 2**16 - 22))
        return len(re.findall(b"PK\5\6", file.read()))


def check_pickle(data: bytes) -> int:
    """Read one pickle with stand-ins; return where it ends."""
    end = check_operations(data, MOST_OPERATIONS)
    _Structure(data[:end]).load()
    return end


def check_tensors(value: Any) -> None:
    """Refuse tensors that claim more values than the file holds, and lists that stand for more than they have."""
    left, waiting = MOST_OPERATIONS, [value]
    while waiting:
        each = waiting.pop()
        left -= 1
        if left < 0:
            raise ValueError(f"its structure stands for more than {MOST_OPERATIONS:,} values")
        if isinstance(each, Tensor):
            if each.nbytes > each.untyped_storage().nbytes():
                raise ValueError(f"a tensor {list(each.shape)} has more values than are stored")
        elif isinstance(each, dict | list | tuple):
            waiting += each.values() if isinstance(each, dict) else each


class _Value:
    """A stand-in for a tensor."""

    def __setstate__(self, state: Any) -> None:
        pass


class _Dictionary(dict[Any, Any]):
    """A stand-in for an OrderedDict, which has attributes of its own."""

    def __setstate__(self, state: Any) -> None:
        pass


def _value(*_: Any) -> _Value:
    return _Value()


def _dictionary(*given: Any) -> _Dictionary:
    if not all(isinstance(each, dict) for each in given):
        raise pickle.UnpicklingError("a dictionary that is made of a list")
    return _Dictionary(*given)


_ADMITTED: dict[tuple[str, str], Callable[..., Any]] = {
    ("collections", "OrderedDict"): _dictionary,
    ("collections", "Counter"): _dictionary,
    ("torch", "Size"): _value,
    ("torch", "device"): _value,
    **{("torch._utils", f"_rebuild_{name}"): _value for name in ("tensor", "tensor_v2", "parameter")},
}


def _values(*_: Any) -> None:
    """Stand for a type of values, which a tensor names and nothing calls."""
    raise pickle.UnpicklingError("it makes values that are not in the file")


class _Structure(PlainUnpickler):
    """Reads what torch.save wrote, without the values of tensors."""

    KEYS: ClassVar[tuple[type, ...]] = (str, bytes, int, float, type(None))

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return self.encode
        if module in ("torch", "torch.storage") and (name.endswith("Storage") or is_type(name)):
            return _values
        if (module, name) not in _ADMITTED:
            return super().find_class(module, name)
        return _ADMITTED[module, name]

    def persistent_load(self, pid: Any) -> Any:  # noqa: ARG002 - the name of the base class
        return _Value()


def is_type(name: str) -> bool:
    """Whether torch has a type of numbers of this name."""
    return isinstance(getattr(torch, name, None), torch.dtype)
