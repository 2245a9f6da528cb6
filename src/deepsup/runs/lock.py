"""A run folder -> its owner: one process trains a run, and a second one learns which process that is.

The operating system holds the lock (flock) and releases it when the process ends, however it ends. So a lock never
outlives a kill or a reboot, and no clock is compared. The file beside it only says who owns it.
"""

import json
import logging
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from deepsup.errors import RunError
from deepsup.files import disk_errors_named
from deepsup.training.distributed import Processes

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"
logger = logging.getLogger("deepsup")


class LockedError(RunError):
    """A run folder in which another process trains."""


@contextmanager
def owned(folder: Path, processes: Processes) -> Iterator[None]:
    """Own a run folder within this block; make it if there is none. Of several processes the first one owns it."""
    refused, lock, new = None, None, not folder.exists()
    if processes.first:
        try:
            lock = acquire(folder)
        except RunError as error:
            refused = error
    if processes.any(refused is not None):
        raise refused or RunError(f"the first process cannot train in {folder}; it says why")
    try:
        yield
    finally:
        if lock is not None:
            with suppress(OSError):
                (folder / NAME).unlink(missing_ok=True)
            os.close(lock)
        if lock is not None and new:
            with suppress(OSError):
                folder.rmdir()  # only if nothing was written


def acquire(folder: Path) -> int:
    """Return the open, locked file; refuse where another process has the lock."""
    path = folder / NAME
    with disk_errors_named(path):
        while True:
            folder.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                lock(file, path)
                if path.exists() and os.path.samestat(os.fstat(file), path.stat()):
                    os.truncate(file, 0)
                    os.write(file, json.dumps({"pid": os.getpid(), "machine": platform.node()}).encode())
                    return file
            except BaseException:
                os.close(file)
                raise
            os.close(file)  # its owner removed it meanwhile: lock the new one


def lock(file: int, path: Path) -> None:
    """Lock an open file without waiting."""
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LockedError(
            f"{path.parent} is being trained by {owner(path)}; wait until that has ended, or choose another --out"
        ) from None
    except OSError as error:  # some network file systems have no locks
        logger.warning("cannot lock %s (%s); make sure that no other process trains there", path, error.strerror)


def owner(path: Path) -> str:
    """Return who wrote a lock file, in words."""
    for _ in range(50):  # between locking the file and writing a name into it, it is empty
        with suppress(OSError):
            if path.stat().st_size:
                break
        time.sleep(0.01)
    try:
        who = json.loads(path.read_bytes())
        here = who["machine"] == platform.node()
        return f"process {int(who['pid'])}{'' if here else ' on ' + str(who['machine'])[:80]}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
