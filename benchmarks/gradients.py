"""Claim: gradient statistics at their default rate slow training by less than 5 %. Interleaved runs in, the table out.

    python benchmarks/gradients.py [rounds]

Each round trains an epoch of the same net with and without them, in changing order, so that what else the machine does
falls on both alike; compared are the medians of the seconds an epoch.
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch

from deepsup.config import Config
from deepsup.experiment.train import Experiment, Watch
from deepsup.record import Run
from deepsup.training.distributed import Processes

CASES = {
    "cnn, batch 50": Config(train_size=500, batch_size=50, epochs=1000),
    "cnn, batch 128": Config(batch_size=128, epochs=1000),
    "nin-mnist, batch 50": Config(train_size=100, batch_size=50, epochs=1000, network="nin-mnist"),
}


def seconds(config: Config, rounds: int) -> dict[int, list[float]]:
    """Return gradient_every -> seconds of each epoch."""
    rates = (0, Config().gradient_every)
    with tempfile.TemporaryDirectory() as scratch:
        trainings = {
            every: Experiment(replace(config, gradient_every=every), Run(Path(scratch)), Processes(), Watch()).training
            for every in rates
        }
        epochs = {every: training.epochs() for every, training in trainings.items()}
        times: dict[int, list[float]] = {every: [] for every in rates}
        for turn in range(rounds + 1):
            for every in rates if turn % 2 else rates[::-1]:
                times[every].append(next(epochs[every]).seconds)
    return {every: each[1:] for every, each in times.items()}  # the first is for warming up


def main() -> None:
    """Print the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    torch.set_num_threads(1)
    for name, config in CASES.items():
        without, with_ = (median(each) for each in seconds(config, rounds).values())
        slower = 100 * (with_ / without - 1)
        print(f"{name:22s} {1000 * without:8.1f} ms without  {1000 * with_:8.1f} ms with  {slower:+.1f} %")


if __name__ == "__main__":
    main()
