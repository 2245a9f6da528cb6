"""Measure an ``EarlyExit`` on this machine: the time of each stage, and that of the whole beside the plain net.

B batch, T taps.
"""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from deepsup.exits._early_exit import EarlyExit
from deepsup.exits._timing import Ratio, Turn, ratio, take_turns

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
            parts = [self.stages[number]]
            if number < len(thresholds) and thresholds[number] is not None:
                parts.append(self.exits[number])
            for seconds in parts:  # between the measured sizes
                total += float(np.interp(fraction * self.batch, [0, *self.sizes], [0.0, *seconds]))
        return total / self.plain


def measure_stages(early: EarlyExit, inputs: Sequence[Tensor], batch: int, rounds: int = 7) -> StageTimes:
    """Time every stage of an ``EarlyExit`` whose exits are all on."""
    values: Sequence[Any] = samples(inputs, 0, batch)
    sizes = tuple(sorted({max(1, round(share * batch)) for share in SHARES}))
    with torch.inference_mode():
        turns: dict[str, Turn] = {"plain": repeated(partial(early.model, *values))}
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
    mean_seconds(call, 1)
    return partial(mean_seconds, call, max(1, min(50, int(LEAST_SECONDS / max(mean_seconds(call, 1), 1e-7)))))


def mean_seconds(call: Callable[[], Any], times: int) -> float:
    """Call something so often; return the seconds of one call."""
    began = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - began) / times


def measure_speed(early: EarlyExit, inputs: Sequence[Tensor], batch: int, rounds: int = 9) -> Ratio:
    """Return the time of the plain net over that of an ``EarlyExit``: their images per second, the other way round."""
    seconds = seconds_per_sample(classifiers(early), inputs, batch, rounds)
    return ratio(seconds["plain"], seconds["early"])


def classifiers(early: EarlyExit) -> dict[str, Callable[..., Tensor]]:
    """Return what gives the labels of the plain net, and of the net with exits."""
    return {
        "plain": lambda *inputs: early.scores(early.model(*inputs)).argmax(1),
        "early": lambda *inputs: early(*inputs).labels,
    }


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
            return mean_seconds(lambda: call(*next(blocks)), batches) / batch

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
        plain, _ = count_multiply_adds(early.model, *values)
        for number, stage in enumerate(early.stages):
            work, output = count_multiply_adds(stage.module, *values)
            stages.append(work)
            if stage.tap is not None:
                features, *values = output
                heads.append(count_multiply_adds(early.heads[number], features)[0])
    return stages, heads, plain


def count_multiply_adds(module: Callable[..., Any], *inputs: Tensor) -> tuple[int, Any]:
    """Return the multiply-adds of a call, and what it returns."""
    with FlopCounterMode(display=False) as counter:
        output = module(*inputs)
    return counter.get_total_flops() // 2, output
