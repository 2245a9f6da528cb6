"""Time several functions in turns, and form the ratio of two of them with its quartiles.

Other load on the machine affects all turns of a round, so ratios are formed within a round. Every other round runs in
reverse order, so that no function always follows the same other one.
"""

import gc
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

Turn = Callable[[], float | None]
"""One turn of a round. It may return its seconds; otherwise the whole call is timed."""


class Ratio(NamedTuple):
    """The median over the rounds, and the quartiles."""

    median: float
    low: float
    high: float


def take_turns(turns: dict[str, Turn], rounds: int, warm_up: int = 1) -> dict[str, list[float]]:
    """Return the seconds of every turn in every round, after ``warm_up`` rounds that do not count."""
    seconds: dict[str, list[float]] = {name: [] for name in turns}
    gc.collect()
    gc.freeze()  # existing objects need not be collected again
    try:
        for number in range(-warm_up, rounds):
            for name in list(turns) if number % 2 == 0 else reversed(list(turns)):
                gc.collect()  # the garbage of one turn is not collected in the next
                began = time.perf_counter()
                own = turns[name]()
                if number >= 0:
                    seconds[name].append(time.perf_counter() - began if own is None else float(own))
    finally:
        gc.unfreeze()
    return seconds


def ratio(above: list[float], below: list[float]) -> Ratio:
    """Return the ratio of two lists, round by round.

    >>> ratio([2.0, 6.0, 4.0], [1.0, 2.0, 2.0])
    Ratio(median=2.0, low=2.0, high=2.5)
    """
    each = [a / b for a, b in zip(above, below, strict=True)]
    if len(each) == 1:
        return Ratio(each[0], each[0], each[0])
    low, median, high = statistics.quantiles(each, n=4, method="inclusive")
    return Ratio(median, low, high)
