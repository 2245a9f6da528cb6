"""Write files in the data folder atomically; existing files are never overwritten."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from deepsup.errors import DataError, DeepsupError, StorageError, WriteError
from deepsup.io import move_whole, reason, sync, write_whole


def data_folder() -> Path:
    """Return the data folder: ``$DEEPSUP_DATA``, or the platform's cache folder for deepsup."""
    named = os.environ.get("DEEPSUP_DATA")
    if named:
        return Path(named).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("deepsup")) / "data"


@contextlib.contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder on the same disk as the files; it is always removed afterwards."""
    with disk_errors_named():
        folder.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=".part-", dir=folder))
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


@contextlib.contextmanager
def disk_errors_named() -> Iterator[None]:
    """Turn disk errors into one line that says what to do."""
    try:
        yield
    except OSError as error:
        raise storage_error(error) from error
    except WriteError as error:
        cause = error.__cause__
        raise storage_error(cause if isinstance(cause, OSError) else OSError(str(error))) from error


def storage_error(error: OSError) -> StorageError:
    """Return a disk error (full, read-only, not a folder) as a user error."""
    return StorageError(
        f"cannot write to the data folder {data_folder()}: {error.strerror or error}; "
        "free some space or make it writable, or set DEEPSUP_DATA to another folder"
    )


@contextlib.contextmanager
def read_errors_named(source: object) -> Iterator[None]:
    """Turn an error of reading a file, or a damaged file, into one line that names it."""
    try:
        yield
    except DeepsupError:
        raise
    except OSError as error:
        raise DataError(f"cannot read {error.filename or source}: {error.strerror or error}") from error
    except Exception as error:  # a damaged file can make its decoder raise anything
        raise DataError(f"cannot read {source}: {reason(error)}; get it again, or remove it") from error


def put(source: Path, target: Path) -> bool:
    """Move a finished file to its path on the same disk, atomically; return False if the path exists."""
    if target.exists():
        return False
    with disk_errors_named():
        target.parent.mkdir(parents=True, exist_ok=True)
        source.chmod(0o644)  # temporary files are readable only by their owner
        sync(source)
        move_whole(source, target)
    return True


def write(target: Path, data: bytes) -> bool:
    """Write a file whole; return False if the path exists."""
    if target.exists():
        return False
    with disk_errors_named():
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, data)
    return True


def md5_of_file(path: Path) -> str:
    """Return the digest of a file without loading it at once: SVHN's extra part has 1.3 GB."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def md5(data: bytes | memoryview) -> str:
    """Return the digest that the publishers of these sets give."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
