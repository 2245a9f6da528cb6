"""Every file that this package reads from a stranger or writes: read within stated bounds, written whole or not at all.

Reading: only regular files are opened, sizes are checked before memory is taken, the decoded structure is compared with
the expected one, and whatever else fails names the file.

Writing: a file is complete at its path, or it is not there. No link is followed: not at the path, not at the temporary
name, and not on the way from the folder that the user has named.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

from deepsup.errors import ConfigError, DeepsupError, RunError, WriteError, extras_named

MOST_YAML = 2**16
"""Bytes of a YAML file: a config has about 2,000."""
MOST_JSON = 2**26
"""Bytes of a JSON file: the split of 800,000 images has about so many."""
MOST_MEMORY = 3 * 2**28
"""Bytes that the values of JSON texts may take once they are decoded: of one file, or of all on one page."""
MOST_HEADER = 2**22
"""Bytes that list the tensors of a safetensors file, the arrays of an .npz or the records of a checkpoint: each entry
becomes an object, and 50 bytes in the file a thousand in memory."""
LONGEST_NAME = 150
"""Bytes of a file name that is made from a name in another file."""


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file to write to; afterwards it is complete at ``path``, or ``path`` is as it was.

    It is written under a random name that is free. A link or a FIFO at ``path`` is replaced, not followed.
    """
    part = path.with_name(f".{secrets.token_hex(8)}.part")
    with disk_errors_named(path):
        try:
            with part.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            move_whole(part, path)
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)


def move_whole(source: Path, target: Path) -> None:
    """Give a finished file its name on the same disk."""
    source.replace(target)
    sync(target.parent)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a crash leaves the old one or the new one, never half of it."""
    with whole_file(path) as file:
        file.write(content)


def sorted_metadata(content: bytes) -> bytes:
    """Return a safetensors file with its metadata in order: the package writes them in a new one each time.

    Equal weights are then equal files.
    """
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


def append_line(path: Path, line: str) -> None:
    """Add a line to a file, or make it; afterwards it is on the disk."""
    with disk_errors_named(path), open_to_change(path) as file:
        file.write(f"{line}\n".encode())
        file.flush()
        os.fsync(file.fileno())


def open_to_change(path: Path) -> IO[bytes]:
    """Open a regular file to read and to append to, or make it; refuse links, FIFOs and devices."""

    def careful(name: str, flags: int) -> int:
        # O_NONBLOCK: a FIFO would wait for its other end
        flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        file = os.open(name, flags, 0o666)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise WriteError(f"cannot write {path}: it is a FIFO, a socket or a device", "move it out of the way")
        return file

    return open(path, "a+b", opener=careful)


def below(root: Path, *names: str) -> Path:
    """Return a path below a folder; refuse names that lead elsewhere, and links on the way.

    Names may come from a file, and the folder from a stranger: whatever is read or written there has to be in it.
    """
    path = root
    for part in (part for name in names for part in name.split("/")):
        if part in ("", ".", "..") or set(part) & set("\\:\0"):
            raise RunError(f"{root} names a file or folder {part!r}; expected the name of one that is in it")
        path = path / part
        if path.is_symlink():
            raise RunError(
                f"{path} is a link, which may lead out of {root}; expected a file or folder of its own; remove the "
                f"link, or put a copy in its place"
            )
    return path


def folder_below(root: Path, *names: str) -> Path:
    """Make a folder below another one, and return it; refuse links on the way."""
    path = below(root, *names)
    with disk_errors_named(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


def with_block(page: str, begin: str, end: str, block: str) -> str:
    """Return a page with another text between its two marks.

    >>> with_block("a <!-- b --> old <!-- e --> z", "<!-- b -->", "<!-- e -->", " new ")
    'a <!-- b --> new <!-- e --> z'
    """
    before, mark, rest = page.partition(begin)
    _, closing, after = rest.partition(end)
    if not mark or not closing:
        raise RunError(f"the page has no place for the text; expected the lines {begin} and {end} in it")
    return f"{before}{begin}{block}{end}{after}"


def remove(path: Path) -> None:
    """Remove a file, if it is there; of a link, the link."""
    with disk_errors_named(path):
        path.unlink(missing_ok=True)


@contextmanager
def disk_errors_named(path: Path) -> Iterator[None]:
    """Turn disk errors into one line that says what to do."""
    try:
        yield
    except OSError as error:
        number = error_number(error, path)
        why = _REASONS.get(number) or (os.strerror(number) if number else "the write failed")
        if number in (errno.EEXIST, errno.ENOTDIR) and (file := next(filter(Path.is_file, path.parents), None)):
            why = f"{file} is a file, expected a folder"
        raise WriteError(f"cannot write {path}: {why}", _REMEDIES.get(number, _CHECK)) from error


_FREE = "earlier files are untouched; free some space"
_CHECK = "check the folder and its permissions"
_REASONS = {errno.ELOOP: "it is a link", errno.EISDIR: "it is a folder", errno.ENXIO: "it is a FIFO or a socket"}
_REMEDIES = {
    errno.ENOSPC: _FREE,
    errno.EDQUOT: _FREE,
    errno.ENOENT: "the folder is gone; bring it back, or go where it was moved",
    errno.ENAMETOOLONG: "choose a shorter name",
    **dict.fromkeys((errno.ELOOP, errno.EISDIR, errno.EEXIST, errno.ENOTDIR, errno.ENXIO), "move it out of the way"),
}


def error_number(error: BaseException | None, path: Path) -> int:
    """Return the number of the operating system's error behind an error, 0 if there is none.

    torch reports a failed write in words of its own; then a disk without space is the cause to look for.
    """
    given = error
    while error is not None:
        if isinstance(error, OSError) and error.errno:
            return error.errno
        error = error.__cause__ or error.__context__
    with suppress(OSError):
        if given is not None and shutil.disk_usage(path.parent).free < 2**16:
            return errno.ENOSPC
    return 0


def sync(path: Path) -> None:
    """Flush a file or a folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_name(name: str) -> str:
    r"""Return a name from a file as the name of a file: letters, digits and ``-_.`` only, not too long, no dot first.

    >>> file_name("slice-lr"), file_name("slice-x/../../home")
    ('slice-lr', 'slice-x-..-..-home-0288127b')
    """
    safe = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name).lstrip(".")
    safe = safe.encode()[:LONGEST_NAME].decode(errors="ignore")
    if safe == name:
        return name
    return f"{safe}-{hashlib.blake2b(name.encode(errors='surrogatepass'), digest_size=4).hexdigest()}"


_JOINERS = "\u200c\u200d"
"""Invisible, but words of some languages need them."""


def printable(text: str) -> str:
    r"""Return text of a stranger for a terminal or a page: control codes and the like are spelled out.

    >>> printable("cat\x1b[2J")
    'cat\\x1b[2J'
    """
    return "".join(
        char if char in "\n\t" or not _is_control(char) else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )


def one_line(text: object) -> str:
    r"""Return text of a stranger for one cell of a table: a name with a line break must not look like two lines.

    >>> one_line("cat\nall is well")
    'cat\\nall is well'
    """
    return printable(str(text)).replace("\n", "\\n").replace("\t", "\\t")


def _is_control(char: str) -> bool:
    """Whether a character is invisible, acts on the text around it, or cannot be written in UTF-8 or XML."""
    hidden = unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") and char not in _JOINERS
    return hidden or char in "\ufffe\uffff"


@contextmanager
def file_named(path: str | os.PathLike[str], kind: type[DeepsupError]) -> Iterator[None]:
    """Name the file in an error about what it holds, unless the error names it or its folder by itself."""
    try:
        yield
    except WriteError:
        raise
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
    text = str(error.strerror if isinstance(error, OSError) and error.strerror else error)
    if isinstance(error, KeyError):
        text = f"it has no {text}"
    return " ".join(text.split())[:200] or type(error).__name__


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
    if (size := size_of_regular(path)) > most:
        raise ValueError(f"it has {size:,} bytes, expected at most {most:,}")
    with Path(path).open("rb") as file:
        return file.read(most)


def check_tensor_list(path: str | os.PathLike[str]) -> None:
    """Refuse a safetensors file that lists too many tensors; its first 8 bytes are the length of the list."""
    size_of_regular(path)
    with Path(path).open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
    if length > MOST_HEADER:
        raise ValueError(f"its header has {length:,} bytes, expected at most {MOST_HEADER:,}")


def check_zip_list(path: str | os.PathLike[str]) -> int:
    """Refuse a zip file that lists too many members, before zipfile makes an object of each; return its size."""
    size = size_of_regular(path)
    with Path(path).open("rb") as file:
        file.seek(max(0, size - 2**16 - 200))  # where a zip file ends: its comment has at most 2**16 bytes
        end = file.read()
    for mark, offset, width in ((b"PK\5\6", 12, 4), (b"PK\6\6", 40, 8)):  # the second one has what exceeds 4 bytes
        for match in re.finditer(re.escape(mark), end):
            at = match.start() + offset
            length = int.from_bytes(end[at : at + width], "little")
            if length > MOST_HEADER and (width, length) != (4, 2**32 - 1):
                raise ValueError(f"its list of members has {length:,} bytes, expected at most {MOST_HEADER:,}")
    return size


@dataclass
class Budget:
    """The memory that is left for values from files."""

    left: int = MOST_MEMORY

    def spend(self, text: bytes) -> None:
        """Take what the values of a JSON text need at most; refuse where that is not left."""
        values = 120 * (text.count(b"[") + text.count(b"{")) + 40 * text.count(b'"') + 32 * text.count(b",")
        self.left -= len(text) + values
        if self.left < 0:
            raise ValueError(
                f"its values take more memory than the {MOST_MEMORY / 2**20:,.0f} MiB that there are for them"
            )


def read_json(
    path: Path,
    shape: Any = None,
    remedy: str = "expected a file that deepsup wrote",
    budget: Budget | None = None,
) -> dict[str, Any]:
    """Return the object in a JSON file, whose values are of this shape (see ``check``)."""
    with faults_named(path, RunError, remedy):
        value = decoded(read_bounded(path, MOST_JSON), budget)
        check(value, {} if shape is None else shape)
    record: dict[str, Any] = value
    return record


def decoded(text: bytes, budget: Budget | None = None) -> Any:
    """Return the value of a JSON text, if its values fit into what memory is left for them."""
    (budget or Budget()).spend(text)
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


def shape_of(kind: Any) -> Any:
    """Return the shape that ``check`` expects of a record: a TypedDict, or the type of one of its values.

    >>> shape_of(dict[str, list[int]]), shape_of(float | None)
    ({'*': [<class 'int'>]}, (<class 'float'>, <class 'NoneType'>))
    """
    if is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True)
        optional = {name: get_origin(hint) is NotRequired for name, hint in hints.items()}
        return {
            f"{name}?" if optional[name] else name: shape_of(get_args(hint)[0] if optional[name] else hint)
            for name, hint in hints.items()
        }
    parts = get_args(kind)
    if get_origin(kind) is dict:
        return {} if parts[1] is Any else {"*": shape_of(parts[1])}
    return [shape_of(parts[0])] if get_origin(kind) is list else parts or kind


def _of_type(value: Any, kinds: Any, where: str) -> None:
    """Refuse other types; a whole number may stand for a float, and a truth value for no number."""
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    accepted = (*kinds, int) if float in kinds else kinds
    if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in kinds):
        expected = " or ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)
        raise ValueError(f"{where} is a {type(value).__name__}, expected {expected}")


def without_aliases(text: str) -> dict[str, Any]:
    """Return what a YAML text holds; refuse aliases: nine lines of them can stand for a billion values."""
    import yaml

    class NoAliases(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("it has an alias (*name); write the value out")
            return super().compose_node(parent, index)

    return yaml.load(text, NoAliases) or {}


def read_yaml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the keys and values of a YAML file of settings, in plain types."""
    with extras_named(os.fspath(path)):
        import yaml

    with faults_named(path, ConfigError, "expected a YAML file of settings"):
        text = read_bounded(path, MOST_YAML)
        try:
            given = without_aliases(text.decode())
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
