"""Let the process keep freed memory while it trains.

A training step allocates the same large blocks as the one before. glibc returns blocks above 32 MB to the system at
once and requests them again; these page faults took a tenth of a step on the CPU (dev/LOG.md).
"""

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

# names from glibc's malloc.h
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -2, -3, -4
_KEEP = {_MMAP_MAX: 0, _TRIM_THRESHOLD: 2**31 - 1, _TOP_PAD: 2**26}
# the thresholds are the maxima of glibc's own adjustment after a large block was freed
_USUAL = {_MMAP_MAX: 65536, _MMAP_THRESHOLD: 2**25, _TRIM_THRESHOLD: 2**26, _TOP_PAD: 2**17}
_within = 0


@contextmanager
def kept_memory() -> Iterator[None]:
    """Keep freed memory within this block, and return it at its end; without glibc, do nothing.

    The setting applies to the whole process: blocks may be nested, and the outermost one counts. Malloc settings in the
    environment take precedence.
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
    """Whether malloc is glibc's and the environment does not configure it."""
    chosen = any(name.startswith("MALLOC_") for name in os.environ) or "GLIBC_TUNABLES" in os.environ
    return platform.libc_ver()[0] == "glibc" and not chosen


def _set(options: dict[int, int]) -> bool:
    if not can_keep():
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all(mallopt(option, value) == 1 for option, value in options.items())
