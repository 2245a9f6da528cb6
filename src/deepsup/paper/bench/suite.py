"""Run the whole bench: every ratio with its quartiles, every rate, and the environment."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import torch

from deepsup.exits import Ratio
from deepsup.paper.bench.companion_cost import INFERENCE_ROUNDS, measure_companions, network_of
from deepsup.paper.bench.data_speed import (
    can_tell_memory,
    cifar10,
    first,
    measure_load,
    measure_memory,
    measure_streams,
)
from deepsup.paper.bench.growth import Runs, measure_processes, measure_sizes, measure_statistics, measure_taps
from deepsup.paper.bench.limits import measure_limits
from deepsup.paper.bench.loops import Task, measure_bfloat16, measure_loops
from deepsup.paper.bench.packages import INSTALL
from deepsup.trainer.data import Dataset
from deepsup.trainer.runs import environment_now
from deepsup.trainer.training import bfloat16_on


@dataclass(frozen=True)
class Amount:
    """How much to measure: rounds, batches, images. The defaults are those of ``--quick``."""

    batch: int = 128
    """Images per step of the loops."""
    steps: int = 4
    """Steps per turn of a loop with ``fast``; one with NIN."""
    loop_rounds: int = 5
    nin_rounds: int = 3
    step_batch: int = 64
    """Images per step for the measurements of companions and FLOP/s."""
    step_rounds: int = 7
    matmul: int = 2048
    stream_images: int = 1280
    stream_rounds: int = 3
    load_tries: int = 2
    sizes: tuple[int, ...] = (512, 2048)
    size_rounds: int = 2
    tap_rounds: int = 3
    process_images: int = 1024
    process_rounds: int = 1
    statistics_rounds: int = 9
    nin: str = "nin-cifar10"
    fast: str = "fast"
    small: str = "cnn"
    """A network with so short a step that the overhead of a loop shows."""


QUICK = Amount()
FULL = Amount(
    steps=10,
    loop_rounds=15,
    nin_rounds=9,
    step_rounds=25,
    stream_images=2560,
    stream_rounds=7,
    load_tries=3,
    sizes=(1024, 4096, 16384),
    size_rounds=3,
    tap_rounds=9,
    process_images=2560,
    process_rounds=3,
    statistics_rounds=25,
)


NO_BFLOAT16: dict[str, Any] = {
    "ratios": {"loop_over_tutorial": None, "loop_over_tutorial_in_float32": None}, "images_per_second": {},
}  # fmt: skip
"""What is measured on a machine that is slow in it."""


class Bench:
    """One run of the bench. ``say`` is called with one line of text per measurement and per missing package."""

    def __init__(self, amount: Amount, say: Callable[[str], None]) -> None:
        self.amount, self.say = amount, say
        self.missing: dict[str, list[str]] = {}
        self.spread: dict[str, Any] = {}

    def run(self, images: tuple[Dataset, str] | None = None) -> dict[str, Any]:
        """Measure everything, on CIFAR-10 or on the given images of its shape with their description."""
        amount, began = self.amount, time.monotonic()
        self.say(f"reading data; {torch.get_num_threads()} threads")
        data, description = images or cifar10()
        loops = self.loops(Task(amount.fast, first(data, amount.steps * amount.batch), amount.batch), "")
        nin_loops = self.loops(Task(amount.nin, first(data, amount.batch), amount.batch), "nin.")
        companions = self.companions(amount.nin, "")
        limits = self.limits()
        answer = {
            **loops["ratios"],
            **companions,
            **limits.pop("ratios"),
            "nin": nin_loops["ratios"],
            "fast": self.companions(amount.fast, "fast."),
            "images_per_second": {
                amount.fast: loops["images_per_second"],
                amount.nin: nin_loops["images_per_second"],
            },
            "limits": limits,
            "data": self.data(data, description),
            "growth": self.growth(data),
        }
        about = {"seconds": time.monotonic() - began, "environment": self.environment(), "missing": self.missing}
        return answer | {"spread": self.spread} | about

    def medians(self, ratios: dict[str, Any], room: str) -> dict[str, float | None]:
        """Return the medians; add the quartiles to ``self.spread``."""
        spreads = {name: each for name, each in ratios.items() if isinstance(each, Ratio)}
        self.spread |= {f"{room}{name}": [each.low, each.high] for name, each in spreads.items()}
        return {name: spreads[name].median if name in spreads else None for name in ratios}

    def absent(self, key: str, packages: list[str]) -> None:
        """Report the packages that a value needs."""
        self.missing[key] = packages
        self.say(f"{key} is null: {', '.join(packages)} not installed; {INSTALL}")

    def loops(self, task: Task, room: str) -> dict[str, Any]:
        """Measure our loop and the others."""
        self.say(f"training {task.network} with each loop")
        rounds = self.amount.loop_rounds if not room else self.amount.nin_rounds
        answer = measure_loops(task, rounds, self.absent)
        fast, why = bfloat16_on("cpu")
        self.say(f"... {'in bfloat16' if fast else 'not in bfloat16'}: {why}")
        half = measure_bfloat16(task, rounds) if fast else NO_BFLOAT16
        rates = answer["images_per_second"] | half["images_per_second"]
        ratios = {"bfloat16": self.medians(half["ratios"], f"{room}bfloat16.")} | self.medians(answer["ratios"], room)
        return {**answer, "ratios": ratios, "images_per_second": rates}

    def companions(self, network: str, room: str) -> dict[str, float | None]:
        """Measure the cost of companions."""
        self.say(f"steps of {network} with and without companions")
        return self.medians(measure_companions(network, self.amount.step_batch, self.amount.step_rounds), room)

    def limits(self) -> dict[str, Any]:
        """Measure the FLOP/s of training relative to a matrix product."""
        amount = self.amount
        self.say(f"FLOP/s of {amount.nin} and of a matrix product")
        answer = measure_limits(amount.nin, amount.step_batch, amount.step_rounds, amount.matmul)
        return {**answer, "ratios": self.medians(answer["ratios"], "")}

    def data(self, data: Dataset, description: str) -> dict[str, Any]:
        """Measure reading, normalization, augmentation and memory."""
        amount = self.amount
        self.say("data: loading, normalization, augmentation; peak memory")
        streams = measure_streams(data, amount.stream_rounds, amount.stream_images)
        taps = network_of(amount.nin).taps
        memory = can_tell_memory()
        return {
            "what": description,
            "load": measure_load(amount.load_tries) if description == "CIFAR-10" and memory else None,
            **self.medians(streams["ratios"], "data."),
            "images_per_second": streams["images_per_second"],
            "step_peak_mb": measure_memory(amount.nin, taps, amount.step_batch) if memory else None,
        }

    def growth(self, data: Dataset) -> dict[str, Any]:
        """Measure how the time grows."""
        amount = self.amount
        self.say("growth: images, taps, processes")
        sizes = measure_sizes(data, amount.fast, amount.batch, amount.sizes, amount.size_rounds)
        taps = measure_taps(amount.nin, amount.step_batch, amount.tap_rounds)
        runs = Runs(amount.fast, amount.batch, amount.process_images, amount.process_rounds)
        processes = measure_processes(data, runs)
        small = first(data, min(10 * amount.batch, len(data.train)))
        statistics = measure_statistics(small, amount.small, amount.batch, amount.statistics_rounds)
        return {
            "training_set": {**sizes, "ratios": self.medians(sizes["ratios"], "growth.training_set.")},
            "step_by_taps": self.medians(dict(taps), "growth.step_by_taps."),
            "processes": {**processes, "ratios": self.medians(processes["ratios"], "growth.processes.")},
            **self.medians({"gradient_statistics_over_none": statistics}, "growth."),
        }

    def environment(self) -> dict[str, Any]:
        """Return the machine and the versions of the measurement."""
        packages = {}
        for name in ("torchvision", "pytorch-lightning", "skorch"):
            try:
                packages[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                packages[name] = "not installed"
        amount = self.amount
        return (
            environment_now()
            | packages
            | {
                "threads": torch.get_num_threads(),
                "load_average": [round(each, 2) for each in os.getloadavg()],
                "amount": "quick" if amount == QUICK else "full" if amount == FULL else "other",
                "rounds": {
                    "loops": amount.loop_rounds,
                    "nin": amount.nin_rounds,
                    "steps": amount.step_rounds,
                    "inference": INFERENCE_ROUNDS * amount.step_rounds,
                },
                "date": time.strftime("%Y-%m-%d"),
            }
        )
