"""Nothing in, a process that keeps the memory it frees out, for as long as it trains.

A training step asks for the same large blocks as the one before. glibc gives blocks above 32 MB back to the system at
once and asks for them anew; the page faults of that were a tenth of a step on the CPU (LOG.md).
"""

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

# the names of glibc's malloc.h
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -2, -3, -4
_KEEP = {_MMAP_MAX: 0, _TRIM_THRESHOLD: 2**31 - 1, _TOP_PAD: 2**26}
# the thresholds are where glibc's own adjustment ends in any process that once freed a large block
_USUAL = {_MMAP_MAX: 65536, _MMAP_THRESHOLD: 2**25, _TRIM_THRESHOLD: 2**26, _TOP_PAD: 2**17}
_within = 0


@contextmanager
def kept_memory() -> Iterator[None]:
    """Keep freed memory within this block, and give it back at its end; elsewhere than in glibc, do nothing.

    It is the whole process's: blocks may lie within each other, and the outermost one counts. Whoever has set malloc
    by its environment is left alone.
    """
    global _within
    _within += 1
    if _within == 1:
        _set(_KEEP)
    try:
        yield
    finally:
        _within -= 1
        if _within == 0 and _set(_USUAL):
            ctypes.CDLL(None).malloc_trim(0)


def can_keep() -> bool:
    """Whether memory is glibc's and its user has not decided about it."""
    chosen = any(name.startswith("MALLOC_") for name in os.environ) or "GLIBC_TUNABLES" in os.environ
    return platform.libc_ver()[0] == "glibc" and not chosen


def _set(options: dict[int, int]) -> bool:
    if not can_keep():
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all(mallopt(option, value) == 1 for option, value in options.items())
