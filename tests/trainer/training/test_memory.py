"""Freed memory stays within the block, and goes back to the system after it."""

import platform
import subprocess
import sys

import pytest

from deepsup.trainer.training import _memory as memory
from deepsup.trainer.training._memory import can_keep, kept_memory

FAULTS = """
import os, resource, torch
from deepsup.trainer.training._memory import kept_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        torch.zeros(2**24)  # 64 MB: 16,384 pages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(faults())
with kept_memory():
    faults()
    with kept_memory():
        pass
    print(faults())
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc is not glibc's")
def test_a_block_asked_for_again_costs_no_page_faults(monkeypatch):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    # huge pages, where the system gives them to all, would make few faults of many
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    before, within, after = (int(word) for word in done.stdout.split())
    assert within < before / 10
    assert after > before / 10  # given back; a free block of the heap may still be taken again


def test_whoever_has_set_malloc_is_left_alone(monkeypatch):
    called = []
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda _: called.append(1))
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    with kept_memory():
        pass
    monkeypatch.delenv("MALLOC_ARENA_MAX")
    monkeypatch.setattr(memory.platform, "libc_ver", lambda: ("", ""))  # musl, macOS, Windows
    assert not can_keep()
    with kept_memory():
        pass
    assert called == []


def test_an_error_ends_it_too():
    with pytest.raises(ZeroDivisionError), kept_memory():
        raise ZeroDivisionError
    assert memory._within == 0
