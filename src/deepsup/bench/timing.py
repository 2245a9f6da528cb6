"""Things to time -> the seconds of each, taken in turns, and the ratio of two of them with its quartiles.

What else a machine does slows all sides of a round alike, so ratios are formed within a round; every other round goes
backwards, so that no side always comes behind the same other one.
"""

import gc
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

Turn = Callable[[], float | None]
"""Does one side's share of a round. It may return the seconds that count; else those of the whole call do."""


class Ratio(NamedTuple):
    """The median over the rounds, and the quartiles around it."""

    median: float
    low: float
    high: float


def take_turns(sides: dict[str, Turn], rounds: int, warm_up: int = 1) -> dict[str, list[float]]:
    """Return the seconds of every side in every round, after ``warm_up`` rounds that do not count."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    gc.collect()
    gc.freeze()  # what is there already need not be looked at again
    try:
        for number in range(-warm_up, rounds):
            for name in list(sides) if number % 2 == 0 else reversed(list(sides)):
                gc.collect()  # one side's rubbish is not the next one's work
                spent = seconds_of(sides[name])
                if number >= 0:
                    seconds[name].append(spent)
    finally:
        gc.unfreeze()
    return seconds


def seconds_of(turn: Turn) -> float:
    """Take one turn and return its seconds."""
    began = time.perf_counter()
    own = turn()
    return time.perf_counter() - began if own is None else float(own)


def ratio(above: list[float], below: list[float]) -> Ratio:
    """Return one side's numbers over another's, round by round.

    >>> ratio([2.0, 6.0, 4.0], [1.0, 2.0, 2.0])
    Ratio(median=2.0, low=2.0, high=2.5)
    """
    each = [a / b for a, b in zip(above, below, strict=True)]
    if len(each) == 1:
        return Ratio(each[0], each[0], each[0])
    low, median, high = statistics.quantiles(each, n=4, method="inclusive")
    return Ratio(median, low, high)
