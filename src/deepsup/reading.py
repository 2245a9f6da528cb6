"""A file that may come from a stranger -> plain values within stated bounds, or one line that says what is wrong.

Every reader of this package goes through here: only regular files are opened, sizes are checked before memory is
taken, the decoded structure is compared with the expected one, and whatever else fails names the file.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from deepsup.errors import ConfigError, DeepsupError, RunError

MOST_YAML = 2**16
"""Bytes of a YAML file: a config has about 2,000."""
MOST_JSON = 2**26
"""Bytes of a JSON file: the split of 800,000 images has about so many."""
MOST_CONTAINERS = 2**18
"""Lists and objects in a JSON file: each takes 20 times the memory of the two characters that stand for it."""


@contextmanager
def file_named(path: str | os.PathLike[str], kind: type[DeepsupError]) -> Iterator[None]:
    """Name the file in an error about what it holds, unless the error names it or its folder by itself."""
    try:
        yield
    except DeepsupError as error:
        folder = str(Path(path).parent)
        if os.fspath(path) in str(error) or (folder != "." and folder in str(error)):
            raise
        raise kind(f"{os.fspath(path)}: {error}") from error


@contextmanager
def faults_named(path: str | os.PathLike[str], kind: type[DeepsupError], remedy: str) -> Iterator[None]:
    """Turn whatever a damaged file makes its decoder raise into one line that names the file."""
    try:
        with file_named(path, kind):
            yield
    except DeepsupError:
        raise
    except Exception as error:  # decoders raise many classes that have no common root
        raise kind(f"cannot read {os.fspath(path)}: {reason(error)}; {remedy}") from error


def reason(error: Exception) -> str:
    """Return why something failed, in a few words on one line."""
    if isinstance(error, MemoryError):
        return "it asks for more memory than there is"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    said = str(error.strerror if isinstance(error, OSError) and error.strerror else error)
    if isinstance(error, KeyError):
        said = f"it has no {said}"
    return " ".join(said.split())[:200] or type(error).__name__


def size_of_regular(path: str | os.PathLike[str]) -> int:
    """Return the size of a regular file; a FIFO would block its reader, and a device may never end."""
    facts = Path(path).stat()
    if stat.S_ISDIR(facts.st_mode):
        raise IsADirectoryError(None, "it is a folder", os.fspath(path))
    if not stat.S_ISREG(facts.st_mode):
        raise OSError(None, "it is a FIFO, a socket or a device, not a regular file", os.fspath(path))
    return facts.st_size


def read_bounded(path: str | os.PathLike[str], most: int) -> bytes:
    """Return the bytes of a regular file that has at most so many."""
    size = size_of_regular(path)
    if size > most:
        raise ValueError(f"it has {size:,} bytes, expected at most {most:,}")
    with Path(path).open("rb") as file:
        return file.read(most)


def read_json(path: Path, shape: Any = None, remedy: str = "expected a file that deepsup wrote") -> dict[str, Any]:
    """Return the object in a JSON file, whose values are of this shape (see ``check``)."""
    with faults_named(path, RunError, remedy):
        value = decoded(read_bounded(path, MOST_JSON))
        check(value, {} if shape is None else shape)
    found: dict[str, Any] = value
    return found


def decoded(text: bytes) -> Any:
    """Return the value of a JSON text, if it has not too many lists and objects."""
    if text.count(b"[") + text.count(b"{") > MOST_CONTAINERS:
        raise ValueError(f"it has more than {MOST_CONTAINERS:,} lists and objects")
    return json.loads(text)


def check(value: Any, shape: Any, where: str = "it") -> None:
    """Refuse a decoded value that is not of the expected shape; the message says where.

    A shape is a type or a tuple of types; ``[shape]``, a list of such; ``{"name": shape, "name?": shape, "*": shape}``,
    an object that has these names, perhaps has those with a question mark, and whose every value is of the last shape.

    >>> check({"epochs": 3, "companions": {"conv1": 2.5}}, {"epochs": int, "companions": {"*": float}, "error?": float})
    """
    if isinstance(shape, list):
        _of_type(value, list, where)
        for index, each in enumerate(value):
            check(each, shape[0], f"{where}[{index}]")
    elif isinstance(shape, dict):
        _of_type(value, dict, where)
        names = [name for name in shape if name != "*"]
        for name in names:
            key = name.removesuffix("?")
            if key in value:
                check(value[key], shape[name], f"{key!r}")
            elif key == name:
                raise ValueError(f"{where} has no {name!r}")
        if "*" in shape:
            for key, each in value.items():
                _of_type(key, str, f"a key of {where}")
                check(each, shape["*"], f"{key!r}")
    else:
        _of_type(value, shape, where)


def _of_type(value: Any, kinds: Any, where: str) -> None:
    """Refuse other types; a whole number may stand for a float, and a truth value for no number."""
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    accepted = (*kinds, int) if float in kinds else kinds
    if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in kinds):
        expected = " or ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)
        raise ValueError(f"{where} is a {type(value).__name__}, expected {expected}")


class _NoAliases(yaml.SafeLoader):
    """Refuses aliases: nine lines of them can stand for a billion values."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it has an alias (*name); write the value out")
        return super().compose_node(parent, index)


def read_yaml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the keys and values of a YAML file of settings, in plain types."""
    with faults_named(path, ConfigError, "expected a YAML file of settings"):
        text = read_bounded(path, MOST_YAML)
        try:
            given = yaml.load(text.decode(), _NoAliases) or {}
        except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
            raise ConfigError(f"{path} is not YAML: {reason(error)}") from error
        if not isinstance(given, dict):
            raise ConfigError(f"{path} holds a {type(given).__name__}; expected keys and values, e.g. 'epochs: 20'")
        _check_plain(given)
    return given


def _check_plain(value: Any) -> None:
    """Refuse what no setting is: dates, bytes, sets, keys that are no words, numbers of more than 64 bits."""
    if isinstance(value, dict):
        for key, each in value.items():
            if not isinstance(key, str):
                raise ValueError(f"a key is {str(key)[:50]!r}, expected a word")
            _check_plain(each)
    elif isinstance(value, list):
        for each in value:
            _check_plain(each)
    elif isinstance(value, int):
        if abs(value) >= 2**63:
            raise ValueError("it has a whole number of more than 64 bits")
    elif not isinstance(value, str | float | None):
        raise ValueError(f"it has a {type(value).__name__}, expected words, numbers, lists and keys with values")
