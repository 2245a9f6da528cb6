"""Atomic writes: a crash leaves the old file or the new one, never half of it."""

import os
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
        raise RunError(
            f"cannot write {path}: {error.strerror or error}; what was there before is untouched; free some space or "
            f"check the folder's permissions, then go on with --resume"
        ) from error


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
