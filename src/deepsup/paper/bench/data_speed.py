"""The speed of reading, normalizing and augmenting CIFAR-10, compared with a DataLoader.

All use one thread (the workers of a DataLoader are further processes): these are many small operations, in which
threads wait for each other.
"""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deepsup.exits import Ratio, Turn, ratio, take_turns
from deepsup.paper.bench.loops import Task, loader_of
from deepsup.paper.bench.packages import missing
from deepsup.trainer.data import KNOWN, Dataset, Part, is_present, load_data
from deepsup.trainer.preprocess import AUGMENTATIONS, fit, to_tensor
from deepsup.trainer.training import Batches

BATCH = 128

# In a new process, so that the peak is that of this code alone, with Python, numpy and torch.
LOAD = """
import time
import torch
from deepsup.paper.bench.data_speed import peak_mb
from deepsup.trainer.data import load_data
from deepsup.trainer.preprocess import to_tensor
start = time.perf_counter()
data = load_data("cifar10", download=False)
parts = [to_tensor(part.images) for _, part in data.parts()]
labels = [torch.from_numpy(part.labels) for _, part in data.parts()]
print(time.perf_counter() - start, peak_mb())
"""
STEPS = """
import sys
from deepsup.paper.bench.companion_cost import FLAT, POOLED, batch_of, net_of, step_of, summed
from deepsup.paper.bench.data_speed import peak_mb
name, pool, taps, batch = sys.argv[1], sys.argv[2], sys.argv[3:-1], int(sys.argv[-1])
step = step_of(summed(net_of(name, taps, POOLED if pool == "avg" else FLAT)), *batch_of(batch))
step(), step()
print(peak_mb())
"""


def peak_mb() -> float:
    """Return the peak memory of this process in MB; getrusage would include that of its parent."""
    line = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert line is not None
    return int(line[1]) / 1024


def in_new_process(code: str, *arguments: str) -> list[float]:
    """Run code in a new process; return the numbers that it prints."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def can_tell_memory() -> bool:
    """Whether the system reports the peak memory of a process (Linux does)."""
    return Path("/proc/self/status").is_file()


def measure_load(tries: int) -> dict[str, float]:
    """Return the seconds (best) and the peak memory (largest) from CIFAR-10's files to tensors."""
    runs = [in_new_process(LOAD) for _ in range(tries)]
    return {"seconds": min(run[0] for run in runs), "peak_mb": max(run[1] for run in runs)}


def measure_memory(name: str, taps: tuple[str, ...], batch: int) -> dict[str, float]:
    """Return the peak memory of two training steps: plain, with flat and with pooled companions."""
    variants: dict[str, tuple[str, ...]] = {"plain": ("none",), "supervised": ("none", *taps), "pooled": ("avg", *taps)}
    return {variant: in_new_process(STEPS, name, *rest, str(batch))[0] for variant, rest in variants.items()}


def cifar10() -> tuple[Dataset, str]:
    """Return CIFAR-10 or random images of its shape, and a description; nothing is downloaded."""
    if is_present(KNOWN["cifar10"]):
        return load_data("cifar10", download=False), "CIFAR-10"
    return stand_in(50_000, 10_000), "random arrays of CIFAR-10's shape: it is not in the data folder"


def stand_in(train: int, test: int) -> Dataset:
    """Return random images of CIFAR-10's shape."""
    rng = np.random.default_rng(0)
    parts = [
        Part(rng.integers(0, 256, (n, 32, 32, 3), np.uint8).transpose(0, 3, 1, 2), rng.integers(0, 10, n))
        for n in (train, test)
    ]
    return Dataset("synthetic", KNOWN["cifar10"].classes, parts[0], parts[1])


def first(data: Dataset, count: int) -> Dataset:
    """Return the data set with its first ``count`` training images only."""
    return Dataset(data.name, data.classes, data.train.take(np.arange(count)), data.test)


def our_stream(data: Dataset) -> Iterator[Tensor]:
    """Yield augmented batches endlessly."""
    normalize, augment = fit("standardize", data), AUGMENTATIONS["crop-flip"]
    labels = torch.from_numpy(data.train.labels)
    batches = Batches(to_tensor(data.train.images), labels, BATCH, normalize=normalize, augment=augment)
    epoch = 0
    while True:
        for images, _ in batches.epoch(epoch):
            yield images
        epoch += 1


def their_stream(data: Dataset, workers: int) -> Iterator[Tensor]:
    """Yield the batches of a DataLoader with per-sample transforms endlessly."""
    loader = loader_of(Task("fast", data, BATCH), workers)
    while True:
        for images, _ in loader:
            yield images


def measure_streams(data: Dataset, rounds: int, images: int) -> dict[str, Any]:
    """Return images per second of each stream and of our steps; ``images`` per turn of the slow ones."""
    streams = {"deepsup": our_stream(data)}
    if not missing(("torchvision",)):
        streams |= {"dataloader": their_stream(data, 0), "dataloader_with_workers": their_stream(data, 2)}
    counts = {name: images * (10 if name == "deepsup" else 1) for name in streams}
    turns: dict[str, Turn] = {name: turn_of(stream, counts[name]) for name, stream in streams.items()}
    normalize, augment = fit("standardize", data), AUGMENTATIONS["crop-flip"]
    assert augment is not None
    raw = to_tensor(data.train.images[:BATCH]).contiguous(memory_format=torch.channels_last)
    ready, generator = normalize(raw), torch.Generator().manual_seed(0)
    coins = torch.zeros(len(raw), dtype=torch.int64)
    turns["normalize"] = repeated(lambda: normalize(raw), counts["deepsup"])
    turns["augment"] = repeated(lambda: augment(ready, augment.draw(coins, 0, generator)), counts["deepsup"])
    with one_thread():
        seconds = take_turns(turns, rounds)
    each = {name: [counts.get(name, counts["deepsup"]) / s for s in values] for name, values in seconds.items()}
    ratios: dict[str, Ratio] = {
        f"stream_over_{name}": ratio(each["deepsup"], each[name]) for name in streams if name != "deepsup"
    }
    return {"ratios": ratios, "images_per_second": {name: float(np.median(values)) for name, values in each.items()}}


def turn_of(stream: Iterator[Tensor], count: int) -> Turn:
    """Return a turn that takes ``count`` images from a stream."""

    def turn() -> None:
        left = count
        while left > 0:
            left -= len(next(stream))

    return turn


def repeated(work: Callable[[], Tensor], count: int) -> Turn:
    """Return a turn that repeats work on a batch until ``count`` images are done."""

    def turn() -> float:
        began, done = time.perf_counter(), 0
        while done < count:
            done += len(work())
        return (time.perf_counter() - began) * count / done

    return turn


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
