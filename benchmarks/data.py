"""CIFAR-10 from disk to a ready tensor, and the augmented batch stream beside what a user would write instead.

    python benchmarks/data.py [--json]

The other side is torch's DataLoader over a data set that transforms each sample by torchvision: pad, crop, mirror, to
tensor, normalise. One thread each (the workers of a DataLoader are further processes). Both sides take turns in one
run; rates are medians over the turns. Where CIFAR-10 is not in the data folder, arrays of the same shape stand in, and
the answer says so.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deepsup.data import KNOWN, Dataset, Part, is_present, load_data
from deepsup.preprocess import AUGMENTATIONS, fit, to_tensor
from deepsup.training import Batches

BATCH = 128
TURNS = 5
IMAGES_A_TURN = {"deepsup": 25_600, "DataLoader": 2_560, "DataLoader, 2 workers": 5_120}

# torchvision 0.28 beside a CPU build of torch does not import until two operators that it misses are declared
_library = torch.library.Library("torchvision", "DEF")
for _name in ("nms", "qnms"):
    _library.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

# A fresh process, so that its peak is that of loading alone: Python, numpy and torch included.
LOAD = r"""
import pathlib, re, time
import torch
from deepsup.data import load_data
from deepsup.preprocess import to_tensor
start = time.perf_counter()
data = load_data("cifar10", download=False)
parts = [to_tensor(part.images) for _, part in data.parts()]
labels = [torch.from_numpy(part.labels) for _, part in data.parts()]
seconds = time.perf_counter() - start
# not getrusage, which counts what the parent held when it forked
print(seconds, int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1]) / 1024)
"""


def measure_load() -> dict[str, float]:
    """Return the seconds (best of three) and the peak of resident memory in MB from disk to tensors."""
    runs = []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=True)
        runs.append([float(word) for word in done.stdout.split()])
    return {"seconds": min(run[0] for run in runs), "resident_mb": max(run[1] for run in runs)}


def synthetic() -> Dataset:
    """Return random images of CIFAR-10's shape."""
    rng = np.random.default_rng(0)
    parts = [
        Part(rng.integers(0, 256, (n, 32, 32, 3), np.uint8).transpose(0, 3, 1, 2), rng.integers(0, 10, n))
        for n in (50_000, 10_000)
    ]
    return Dataset("synthetic", KNOWN["cifar10"].classes, parts[0], parts[1])


def our_stream(data: Dataset) -> Iterator[Tensor]:
    """Yield augmented batches without end."""
    labels = torch.from_numpy(data.train.labels)
    batches = Batches(
        to_tensor(data.train.images),
        labels,
        BATCH,
        normalize=fit("standardize", data),
        augment=AUGMENTATIONS["crop-flip"],
    )
    epoch = 0
    while True:
        for images, _ in batches.epoch(epoch):
            yield images
        epoch += 1


def their_stream(data: Dataset, workers: int) -> Iterator[Tensor]:
    """Yield the batches of a DataLoader with per-sample transforms without end."""
    from PIL import Image
    from torchvision import transforms

    mean, deviation = fit("standardize", data).arrays[0].values()
    transform = transforms.Compose(
        [
            transforms.RandomCrop(32, padding=4),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(mean.tolist(), deviation.tolist()),
        ]
    )

    class Samples(torch.utils.data.Dataset[tuple[Tensor, int]]):
        images = np.ascontiguousarray(data.train.images.transpose(0, 2, 3, 1))

        def __len__(self) -> int:
            return len(self.images)

        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            return transform(Image.fromarray(self.images[index])), int(data.train.labels[index])

    loader = torch.utils.data.DataLoader(Samples(), BATCH, shuffle=True, num_workers=workers)
    while True:
        for images, _ in loader:
            yield images


def measure_streams(data: Dataset) -> dict[str, float]:
    """Return images a second of each stream: turn by turn, the median of the turns."""
    streams = {
        "deepsup": our_stream(data),
        "DataLoader": their_stream(data, workers=0),
        "DataLoader, 2 workers": their_stream(data, workers=2),
    }
    rates: dict[str, list[float]] = {name: [] for name in streams}
    for stream in streams.values():
        next(stream)
    for _ in range(TURNS):
        for name, stream in streams.items():
            rates[name].append(rate(stream, IMAGES_A_TURN[name]))
    return {name: statistics.median(held) for name, held in rates.items()}


def rate(stream: Iterator[Tensor], count: int) -> float:
    """Take so many images from a stream and return how many came a second."""
    start, taken = time.perf_counter(), 0
    while taken < count:
        taken += len(next(stream))
    return taken / (time.perf_counter() - start)


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    wants_json = parser.parse_args().json
    torch.set_num_threads(1)
    real = is_present(KNOWN["cifar10"])
    data = load_data("cifar10", download=False) if real else synthetic()
    rates = measure_streams(data)
    answer = {
        "data": "CIFAR-10" if real else "synthetic arrays of its shape: CIFAR-10 is not in the data folder",
        "load": measure_load() if real else None,
        "images_per_second": rates,
        "times_faster": {name: rates["deepsup"] / held for name, held in rates.items() if name != "deepsup"},
    }
    print(json.dumps(answer) if wants_json else as_text(answer))


def as_text(answer: dict[str, Any]) -> str:
    """Return the answer as lines for people."""
    lines = [f"data: {answer['data']}; batches of {BATCH}"]
    if answer["load"]:
        load = answer["load"]
        lines.append(
            f"from disk to tensors: {load['seconds']:.2f} s, {load['resident_mb']:.0f} MB resident at its peak"
        )
    for name, held in answer["images_per_second"].items():
        times = answer["times_faster"].get(name)
        lines.append(f"{name:22} {held:10,.0f} images/s" + (f"  (deepsup: {times:.1f} times)" if times else ""))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
