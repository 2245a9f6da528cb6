"""Long use -> what goes wrong in the long run: answers of another thread, memory that grows, files left open."""

import gc
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from command import content
from crashes import Record
from nets import CLASSES, LEARNED, ConvNet, images
from threads import hammer, restless

from deepsup import Config, supervise, train
from deepsup.trainer.training._callbacks import Callback

GROWTH = 32 * 2**20
"""Bytes that memory may grow by from the first tenth to the last; a leak of 20 KiB per epoch would show."""


def two_threads(_folder: Path, calls: int, seed: int = 0) -> Record:
    """Two threads call one supervised net; every fourth call computes gradients."""
    torch.manual_seed(seed)
    net = supervise(
        ConvNet().eval(), at=["conv1", "pool1", "conv2"], num_classes=CLASSES, companion=LEARNED, example=images(1)
    )
    began = time.monotonic()
    with restless():
        wrong = hammer(net, [images(2) for _ in range(8)], calls // 2)
    return record("two threads in one net, calls", calls // 2 * 2, wrong, time.monotonic() - began)


def record(fault: str, tries: int, lost: int, seconds: float, **more: Any) -> Record:
    """Return one line of the table; nothing has to recover, so the time is that of all tries."""
    return {"fault": fault, "tries": tries, "lost": lost, "worst_seconds": None, "seconds": round(seconds, 1), **more}


def in_use() -> tuple[int, int]:
    """Return the bytes of memory and the number of open files of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), len(list(Path("/proc/self/fd").iterdir()))


def grown(marks: list[tuple[int, int]]) -> dict[str, float]:
    """Return by how much memory and open files grew from the first tenth of the marks to the last one.

    >>> grown([(9 * 2**20, 5)] + [(2**20, 3)] * 9 + [(3 * 2**20, 4)])
    {'grown_mib': 2.0, 'files_left_open': 1}
    """
    (before, files), (after, files_after) = marks[max(1, len(marks) // 10)], marks[-1]
    return {"grown_mib": round((after - before) / 2**20, 1), "files_left_open": files_after - files}


def leaked(growth: dict[str, float]) -> int:
    """Return 1 if the growth is a leak."""
    return int(growth["grown_mib"] * 2**20 > GROWTH or growth["files_left_open"] > 0)


def tiny(folder: Path, **more: Any) -> Config:
    """Return a run on 16 images of 8x8 pixels, one step per epoch."""
    path, draw = folder / "tiny.npz", np.random.default_rng(0)
    np.savez(path, images=draw.integers(0, 255, (20, 8, 8), dtype=np.uint8), labels=np.arange(20) % 2)
    net = {"network": "plain", "network_options": {"depth": 6, "widths": [4, 4, 4], "init": "he"}}
    return Config(data=str(path), batch_size=16, lr=0.01, tensorboard=False, **net, **more)


class Meter(Callback):
    """Notes what is in use, some twenty times in all."""

    def __init__(self, epochs: int) -> None:
        self.every = max(1, epochs // 20)
        self.marks: list[tuple[int, int]] = []

    def epoch_ended(self, training: Any, record: dict[str, Any]) -> None:  # noqa: ARG002
        if record["epoch"] % self.every == 0:
            self.marks.append(in_use())


def long_run(folder: Path, epochs: int, seed: int = 0) -> Record:
    """One run of very many epochs: memory and open files stay as they are, and every epoch has its record."""
    meter, began = Meter(epochs), time.monotonic()
    run = train(tiny(folder, epochs=epochs, seed=seed), folder / "long", callbacks=[meter])
    growth = grown(meter.marks)
    whole = [each["epoch"] for each in run.metrics] == list(range(epochs))
    return record("one long run, epochs", epochs, leaked(growth) or int(not whole), time.monotonic() - began, **growth)


def many_trainings(folder: Path, tries: int, seed: int = 0) -> Record:
    """Many trainings in one process: memory and open files stay as they are, and all give the same."""
    marks, began, results = [], time.monotonic(), []
    for number in range(tries):
        run = train(tiny(folder, epochs=5, seed=seed), folder / f"run{number}")
        results.append(content(run.folder))
        shutil.rmtree(folder / f"run{number}")
        marks.append(in_use())
    growth = grown(marks)
    different = sum(each != results[0] for each in results)
    return record("trainings in one process", tries, leaked(growth) + different, time.monotonic() - began, **growth)


ENDURANCE = {"two_threads": (two_threads, 20_000), "long_run": (long_run, 2000), "many_trainings": (many_trainings, 50)}
"""Name -> the test of endurance, and how often the long form repeats it."""
