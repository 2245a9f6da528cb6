"""How the time grows with training images, taps, processes and gradient statistics."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deepsup.errors import TrainingError
from deepsup.exits import Ratio, ratio, take_turns
from deepsup.paper.bench.companion_cost import batch_of, net_of, network_of, step_of, summed
from deepsup.paper.bench.data_speed import first
from deepsup.paper.bench.loops import Task, ours
from deepsup.trainer.data import Dataset


def measure_sizes(data: Dataset, network: str, batch: int, sizes: tuple[int, ...], rounds: int) -> dict[str, Any]:
    """Return the microseconds per image by the size of the training set, and the ratio of the largest to the smallest.

    A turn is an epoch, so it is longer with more images; the time per image is compared.
    """
    turns = {str(size): ours(Task(network, first(data, size), batch)).turn for size in sizes}
    seconds = take_turns(dict(turns), rounds)
    each = {size: [s / int(size) for s in values] for size, values in seconds.items()}
    ends = [str(max(sizes)), str(min(sizes))]
    return {
        "microseconds_an_image": {size: 1e6 * float(np.median(values)) for size, values in each.items()},
        "ratios": {"largest_over_smallest": ratio(each[ends[0]], each[ends[1]])},
    }


def measure_taps(network: str, batch: int, rounds: int) -> dict[str, Ratio]:
    """Return the time of a step by the number of taps (the first, the first two, ...) over that without taps."""
    images, labels = batch_of(batch)
    taps = network_of(network).taps
    seconds = take_turns(
        {str(n): step_of(summed(net_of(network, taps[:n])), images, labels) for n in range(len(taps) + 1)}, rounds
    )
    return {count: ratio(values, seconds["0"]) for count, values in seconds.items()}


def measure_statistics(data: Dataset, network: str, batch: int, rounds: int) -> Ratio:
    """Return the time of an epoch with gradient statistics at the default interval over one without."""
    task = Task(network, data, batch)
    seconds = take_turns({"with": ours(task).turn, "without": ours(task, gradient_every=0).turn}, rounds)
    return ratio(seconds["with"], seconds["without"])


@dataclass(frozen=True)
class Runs:
    """A short run of ``deepsup train``, repeated with one process and with two."""

    network: str
    batch: int
    images: int
    rounds: int


def measure_processes(data: Dataset, runs: Runs) -> dict[str, Any]:
    """Return images per second of one and of two processes (torchrun), one thread each."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        part = data.train.take(np.arange(runs.images))
        np.savez(folder / "images.npz", images=part.images, labels=part.labels)
        numbers = iter(range(2 * runs.rounds))
        rates = take_turns(
            {str(n): lambda n=n: rate_of(folder, next(numbers), n, runs) for n in (1, 2)},  # type: ignore[misc]
            runs.rounds,
            warm_up=0,  # each is a new process, whose first epoch is the warm-up
        )
    return {
        "images_per_second": {count: float(np.median(values)) for count, values in rates.items()},
        "ratios": {"two_over_one": ratio(rates["2"], rates["1"])},
    }


def rate_of(folder: Path, number: int, processes: int, runs: Runs) -> float:
    """Train for two epochs in new processes; return the images per second of the second epoch."""
    out = folder / f"run{number}"
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
    command = [sys.executable, *launcher, "-m", "deepsup", "train", f"--data={folder / 'images.npz'}", f"--out={out}"]
    command += [f"--network={runs.network}", f"--batch-size={runs.batch}", "--at=none", "--loss=softmax"]
    command += ["--augment=crop-flip", "--epochs=2", "--test=False", "--tensorboard=False", "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise TrainingError(f"deepsup train with {processes} processes ended with code {done.returncode}: {last}")
    lines = (out / "metrics.jsonl").read_text().splitlines()
    return float(json.loads(lines[-1])["images_per_second"])
