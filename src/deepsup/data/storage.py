"""Names and bytes in, files under the data folder out: each appears whole or not at all, and none is written over."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from deepsup.errors import DataError, DeepsupError, StorageError
from deepsup.reading import reason


def data_folder() -> Path:
    """Return the folder that data live in: ``$DEEPSUP_DATA``, or the platform's cache folder for deepsup."""
    named = os.environ.get("DEEPSUP_DATA")
    if named:
        return Path(named).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("deepsup")) / "data"


@contextlib.contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """Give a fresh folder beside the final place of files; it is gone afterwards, whatever happened."""
    with disk_errors_named():
        folder.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=".part-", dir=folder))
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


@contextlib.contextmanager
def disk_errors_named() -> Iterator[None]:
    """Turn what the disk refuses into one line that says what to do."""
    try:
        yield
    except OSError as error:
        raise storage_error(error) from error


def storage_error(error: OSError) -> StorageError:
    """Return what the disk refused (full, read-only, no folder) as a mistake that a user can mend."""
    return StorageError(
        f"cannot write to the data folder {data_folder()}: {error.strerror or error}; "
        "free some space or make it writable, or set DEEPSUP_DATA to another folder"
    )


@contextlib.contextmanager
def read_errors_named(source: object) -> Iterator[None]:
    """Turn a file that the system will not hand over, or that no reader understands, into one line that names it."""
    try:
        yield
    except DeepsupError:
        raise
    except OSError as error:
        raise DataError(f"cannot read {error.filename or source}: {error.strerror or error}") from error
    except Exception as error:  # a damaged file can make its decoder raise anything
        raise DataError(f"cannot read {source}: {reason(error)}; get it again, or remove it") from error


def put(source: Path, target: Path) -> bool:
    """Move a finished file to its place on the same disk, at once and for good; False if one is there already."""
    if target.exists():
        return False
    with disk_errors_named():
        target.parent.mkdir(parents=True, exist_ok=True)
        source.chmod(0o644)  # temporary files are made for their owner alone
        with source.open("r+b") as file:
            os.fsync(file.fileno())
        source.replace(target)
    return True


def write(target: Path, data: bytes) -> bool:
    """Write a whole file beside its place and move it there; False if one is there already."""
    if target.exists():
        return False
    with staging(target.parent) as stage:
        with disk_errors_named():
            (stage / target.name).write_bytes(data)
        return put(stage / target.name, target)


def md5_of_file(path: Path) -> str:
    """Return the digest of a file without holding it in memory: SVHN's extra part has 1.3 GB."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def md5(data: bytes | memoryview) -> str:
    """Return the digest that the publishers of these sets give."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
