"""Measure an ``EarlyExit`` on this machine: the time of each stage, and that of the whole beside the plain net.

B batch, T taps.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from deepsup.exits._early_exit import EarlyExit
from deepsup.exits._timing import Ratio, Turn, ratio, seconds_of, take_turns

SHARES = (0.125, 0.25, 0.5, 1.0)
"""Fractions of a batch at which stages are timed: later stages get only what has not left."""
LEAST_SECONDS = 0.02
"""The least duration of a timed turn: single samples are timed in blocks."""


@dataclass(frozen=True, eq=False)
class StageTimes:
    """Seconds of each stage and exit on so many samples, and of the plain net on a whole batch."""

    batch: int
    sizes: tuple[int, ...]
    stages: list[list[float]]
    """[T+1][sizes]."""
    exits: list[list[float]]
    """[T][sizes]: the companion, its softmax, and gathering what stays."""
    plain: float

    def cost(self, reached: Sequence[float], thresholds: Sequence[float | None]) -> float:
        """Return the predicted time relative to the plain net; reached: fractions of the samples [T+1]."""
        total = 0.0
        for number, fraction in enumerate(reached):
            total += self.at(self.stages[number], fraction)
            if number < len(thresholds) and thresholds[number] is not None:
                total += self.at(self.exits[number], fraction)
        return total / self.plain

    def at(self, seconds: Sequence[float], fraction: float) -> float:
        """Return the seconds for a fraction of the batch, between the measured sizes."""
        return float(np.interp(fraction * self.batch, [0, *self.sizes], [0.0, *seconds]))


def measure_stages(early: EarlyExit, inputs: Sequence[Tensor], batch: int, rounds: int = 7) -> StageTimes:
    """Time every stage of an ``EarlyExit`` whose exits are all on."""
    whole = samples(inputs, 0, batch)
    sizes = tuple(sorted({max(1, round(share * batch)) for share in SHARES}))
    values: Sequence[Any] = whole
    with torch.inference_mode():
        turns: dict[str, Turn] = {"plain": repeated(partial(early.model, *whole))}
        for number, stage in enumerate(early.stages):
            for size in sizes:
                part = [value[:size].clone() for value in values]
                turns[f"stage {number} {size}"] = repeated(partial(stage.module, *part))
            if stage.tap is not None:
                features, *values = stage.module(*values)
                for size in sizes:
                    some, carried = features[:size].clone(), [value[:size].clone() for value in values]
                    turns[f"exit {number} {size}"] = repeated(partial(early.decide, number, some, carried))
        seconds = {name: float(np.median(each)) for name, each in take_turns(turns, rounds).items()}
    return StageTimes(
        batch,
        sizes,
        [[seconds[f"stage {number} {size}"] for size in sizes] for number in range(len(early.stages))],
        [[seconds[f"exit {number} {size}"] for size in sizes] for number in range(len(early.stages) - 1)],
        seconds["plain"],
    )


def repeated(call: Callable[[], Any]) -> Turn:
    """Return a turn that calls something so often that it can be timed, and returns the seconds of one call."""
    repeat(call, 1)
    times = max(1, min(50, int(LEAST_SECONDS / max(seconds_of(partial(repeat, call, 1)), 1e-7))))
    return lambda: seconds_of(partial(repeat, call, times)) / times


def repeat(call: Callable[[], Any], times: int) -> None:
    """Call something so often."""
    for _ in range(times):
        call()


def measure_speed(early: EarlyExit, inputs: Sequence[Tensor], batch: int, rounds: int = 9) -> Ratio:
    """Return the time of the plain net over that of an ``EarlyExit``: their images per second, the other way round."""
    seconds = seconds_per_sample({"plain": plain_labels(early), "early": early_labels(early)}, inputs, batch, rounds)
    return ratio(seconds["plain"], seconds["early"])


def plain_labels(early: EarlyExit) -> Callable[..., Tensor]:
    """Return what gives the labels of the plain net."""
    return lambda *inputs: early.scores(early.model(*inputs)).argmax(1)


def early_labels(early: EarlyExit) -> Callable[..., Tensor]:
    """Return what gives the labels with exits."""
    return lambda *inputs: early(*inputs).labels


def seconds_per_sample(
    classify: Mapping[str, Callable[..., Any]], inputs: Sequence[Tensor], batch: int, rounds: int = 9
) -> dict[str, list[float]]:
    """Return the seconds of several classifiers per sample, in turns, round by round.

    Each round takes other samples, the same for all; small batches are timed in blocks of 64 samples.
    """
    batches = max(1, 64 // batch)

    def turn(call: Callable[..., Any]) -> Turn:
        starts = itertools.count(0, batch * batches)

        def run() -> float:
            first = next(starts)
            blocks = iter([samples(inputs, first + number * batch, batch) for number in range(batches)])
            return seconds_of(partial(repeat, lambda: call(*next(blocks)), batches)) / (batch * batches)

        return run

    with torch.inference_mode():
        return take_turns({name: turn(call) for name, call in classify.items()}, rounds)


def samples(inputs: Sequence[Tensor], first: int, count: int) -> list[Tensor]:
    """Return ``count`` samples from ``first`` on, from the beginning again where they end."""
    rows = torch.arange(first, first + count) % len(inputs[0])
    return [each[rows.to(each.device)] for each in inputs]


def multiply_adds(early: EarlyExit, inputs: Sequence[Tensor]) -> tuple[list[int], list[int], int]:
    """Return the multiply-adds of one sample: of each stage, of each companion, and of the plain net."""
    values: Sequence[Any] = samples(inputs, 0, 1)
    stages, heads = [], []
    with torch.no_grad():
        plain = counted(partial(early.model, *values))[0]
        for number, stage in enumerate(early.stages):
            spent, output = counted(partial(stage.module, *values))
            stages.append(spent)
            if stage.tap is not None:
                features, *values = output
                heads.append(counted(partial(early.heads[number], features))[0])
    return stages, heads, plain


def counted(call: Callable[[], Any]) -> tuple[int, Any]:
    """Return the multiply-adds of a call, and what it returns."""
    with FlopCounterMode(display=False) as counter:
        output = call()
    return counter.get_total_flops() // 2, output
