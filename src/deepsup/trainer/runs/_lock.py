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
from typing import IO

from deepsup.errors import RunError
from deepsup.io import disk_errors_named, open_to_change
from deepsup.trainer.training import Processes

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"
LONGEST = 1000
"""Bytes of a lock file that are read."""
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
            lock.close()
        if lock is not None and new:
            with suppress(OSError):
                folder.rmdir()  # only if nothing was written


def acquire(folder: Path) -> IO[bytes]:
    """Return the open, locked file; refuse where another process has the lock."""
    path = folder / NAME
    with disk_errors_named(path):
        while True:
            folder.mkdir(parents=True, exist_ok=True)
            file = open_to_change(path)
            try:
                lock(file, path)
                if is_here(file, path):
                    file.truncate(0)
                    file.write(json.dumps({"pid": os.getpid(), "machine": platform.node()}).encode())
                    file.flush()
                    return file
            except BaseException:
                file.close()
                raise
            file.close()  # its owner removed it meanwhile: lock the new one


def is_here(file: IO[bytes], path: Path) -> bool:
    """Whether an open file is the one at a path, and only there; one that has another name too loses this one."""
    facts = os.fstat(file.fileno())
    with suppress(FileNotFoundError):
        here = os.path.samestat(facts, path.lstat())
        if here and facts.st_nlink > 1:
            path.unlink()
            return False
        return here
    return False


def lock(file: IO[bytes], path: Path) -> None:
    """Lock an open file without waiting."""
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LockedError(
            f"{path.parent} is being trained by {owner(file)}; wait until that has ended, or choose another --out"
        ) from None
    except OSError as error:  # some network file systems have no locks
        logger.warning("cannot lock %s (%s); make sure that no other process trains there", path, error.strerror)


def owner(file: IO[bytes]) -> str:
    """Return who wrote a lock file, in words."""
    for _ in range(50):  # between locking the file and writing a name into it, it is empty
        if os.fstat(file.fileno()).st_size:
            break
        time.sleep(0.01)
    try:
        file.seek(0)
        who = json.loads(file.read(LONGEST))
        here = who["machine"] == platform.node()
        return f"process {int(who['pid'])}{'' if here else ' on ' + str(who['machine'])[:80]}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "another process"
