"""Atomic writes: a crash leaves the old file or the new one, never half of it."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from deepsup.errors import RunError


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; afterwards the file is complete at ``path``, or absent."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with disk_errors_named(path):
            yield part
            sync(part)
            part.replace(path)
            sync(path.parent)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


@contextmanager
def disk_errors_named(path: Path) -> Iterator[None]:
    """Turn disk errors into one line that says what to do."""
    try:
        yield
    except OSError as error:
        number = error_number(error, path)
        reason = os.strerror(number) if number else "the write failed"
        remedy = _REMEDIES.get(number, "check the folder and its permissions, then continue with --resume")
        raise RunError(f"cannot write {path}: {reason}; {remedy}") from error


_REMEDIES = {
    errno.ENOSPC: "earlier files are untouched; free some space, then continue with --resume",
    errno.EDQUOT: "earlier files are untouched; free some space, then continue with --resume",
    errno.ENOENT: "the folder is gone; if it was moved, continue there with --resume; if it was deleted, start again",
    errno.ENAMETOOLONG: "choose a shorter name with --out",
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


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a crash leaves the old one or the new one, never half of it."""
    with whole_file(path) as part:
        part.write_bytes(content)


def sync(path: Path) -> None:
    """Flush a file or a folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
