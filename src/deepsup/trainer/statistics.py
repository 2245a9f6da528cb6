"""Errors of two methods over the same seeds -> how they compare: ratio or difference, intervals and tests."""

import math
from collections.abc import Sequence
from statistics import mean, stdev
from typing import TypedDict

from deepsup.errors import ConfigError

LEAST = 0.01
"""Percent: smaller errors count as this one in a ratio, unless the number of test images says what half of one is."""


def chance_error(classes: int) -> float:
    """Return the error of guessing among so many classes, in percent.

    >>> chance_error(10)
    90.0
    """
    return 100 * (classes - 1) / classes


def has_learned(error: float, classes: int) -> bool:
    """Whether an error is well below that of guessing: a tenth of it at least, or right twice as often as guessing.

    The second is what counts with many classes: of 100, a tenth below guessing would be right 11 times as often.

    >>> has_learned(80.0, 10), has_learned(82.0, 10), has_learned(95.0, 100), has_learned(98.5, 100)
    (True, False, True, False)
    """
    chance = chance_error(classes)
    return error <= max(0.9 * chance, 2 * chance - 100)


def least_error(images: int) -> float:
    """Return the percent of half an image, as which an error of 0 counts in a ratio; LEAST if their number is unknown.

    >>> least_error(10_000), least_error(0)
    (0.005, 0.01)
    """
    return 50 / images if images else LEAST


def log_ratios(ours: Sequence[float], theirs: Sequence[float], least: float = LEAST) -> list[float]:
    """Return the logarithm of the ratio of two methods' errors, seed by seed; below 0, ours is better.

    least: percent; smaller errors count as this one, since the logarithm of 0 is infinite.
    """
    return [math.log(max(a, least) / max(b, least)) for a, b in zip(ours, theirs, strict=True)]


class MeanTest(TypedDict):
    """The mean of values beside 0, by Student's t; None for one value."""

    mean: float
    error: float | None
    """The standard error."""
    interval: list[float] | None
    p: float | None


class PairedTest(TypedDict):
    """The mean difference of two methods' errors, seed by seed; below 0, the first is better."""

    mean: float
    interval: list[float] | None
    p: float | None


class RatioTest(TypedDict):
    """The ratio of two methods' errors, seed by seed; below 1, the first is better."""

    ratio: float
    """The geometric mean."""
    interval: list[float] | None
    """95 %, by Student's t on the logarithms; None for one seed."""
    p_ratio: float | None
    """By the same test."""
    pairs: int
    lower: int
    """In how many pairs the first method's error is lower."""
    equal: int
    p: float
    """Of the exact sign test."""


class Equivalence(TypedDict):
    """Whether the errors of two methods are the same up to a factor; the last three are None for one seed."""

    ratio: float
    bound: float
    """The factor."""
    pairs: int
    interval: list[float] | None
    """90 %, of the ratio."""
    p: float | None
    """The larger one of the two one-sided tests."""
    equivalent: bool | None
    """Whether p is at most 0.05; the interval then lies within the bounds."""


def error_ratio(ours: Sequence[float], theirs: Sequence[float], least: float = LEAST) -> RatioTest:
    """Return the ratio of two methods' errors, ``ours`` to ``theirs``, seed by seed, on the log scale.

    least: percent; smaller errors count as this one, since the logarithm of 0 is infinite.
    """
    logs = log_ratios(ours, theirs, least)
    test = mean_test(logs)
    lower, equal = sum(log < 0 for log in logs), sum(log == 0 for log in logs)
    return {
        "ratio": math.exp(test["mean"]),
        "interval": None if test["interval"] is None else [math.exp(end) for end in test["interval"]],
        "p_ratio": test["p"],
        "pairs": len(logs),
        "lower": lower,
        "equal": equal,
        "p": sign_test(lower, len(logs) - lower - equal),
    }


def sign_test(lower: int, higher: int) -> float:
    """Return the two-sided p of the exact sign test: how likely a split at least as uneven is for a fair coin.

    Pairs that are equal count for neither side and are left out; without any other, p is 1.

    >>> sign_test(6, 0), sign_test(5, 1), sign_test(0, 0)
    (0.03125, 0.21875, 1.0)
    """
    pairs, fewer = lower + higher, min(lower, higher)
    as_uneven = 2 * sum(math.comb(pairs, count) for count in range(fewer + 1))
    return min(1.0, as_uneven / int(2**pairs))


def equivalence(ours: Sequence[float], theirs: Sequence[float], bound: float, least: float = LEAST) -> Equivalence:
    """Return whether the errors of two methods are the same up to a factor, by two one-sided tests on the log scale.

    bound: the factor, above 1, fixed before the runs; the ratio is to lie within 1 / bound and bound.
    """
    from scipy import stats

    if not 1 < bound < math.inf:
        raise ConfigError(f"bound={bound:g}; expected a factor above 1, such as 1.1")
    logs = log_ratios(ours, theirs, least)
    test = mean_test(logs, 0.90)
    ratio, interval = math.exp(test["mean"]), test["interval"]
    if interval is None:
        return {"ratio": ratio, "bound": bound, "pairs": len(logs), "interval": None, "p": None, "equivalent": None}
    error = test["error"]
    if error:
        nearest_bound = math.log(bound) - abs(test["mean"])
        p = float(stats.t.sf(nearest_bound / error, len(logs) - 1))
    else:
        p = float(abs(test["mean"]) >= math.log(bound))
    ends = [math.exp(end) for end in interval]
    return {"ratio": ratio, "bound": bound, "pairs": len(logs), "interval": ends, "p": p, "equivalent": p <= 0.05}


def mean_test(values: Sequence[float], confidence: float = 0.95) -> MeanTest:
    """Return the mean of values, its standard error, its interval and p for a mean of 0, by Student's t.

    Interval, error and p are None for one value. Values that are all equal have an interval of no width.
    """
    from scipy import stats

    middle = mean(values)
    if len(values) < 2:
        return {"mean": middle, "error": None, "interval": None, "p": None}
    error = stdev(values) / math.sqrt(len(values))
    if error < 1e-9 * max(1.0, abs(middle)):  # rounding alone
        return {"mean": middle, "error": 0.0, "interval": [middle, middle], "p": float(abs(middle) < 1e-9)}
    half = float(stats.t.ppf((1 + confidence) / 2, len(values) - 1)) * error
    p = 2 * float(stats.t.sf(abs(middle) / error, len(values) - 1))
    return {"mean": middle, "error": error, "interval": [middle - half, middle + half], "p": p}


def excludes(interval: Sequence[float] | None, value: float) -> bool:
    """Whether an interval leaves out a value: 1 for a ratio, 0 for a difference. No interval leaves out nothing.

    >>> excludes([0.5, 0.9], 1), excludes([0.5, 1.1], 1), excludes(None, 1)
    (True, False, False)
    """
    return interval is not None and not interval[0] <= value <= interval[1]


def holm(ps: Sequence[float]) -> list[float]:
    """Return the p-values of several tests, in their order, corrected for their number (Holm 1979).

    The smallest is multiplied by the number of tests, the next one by one less, and so on; none falls below the one
    before it, and none is above 1. Tests whose corrected p is at most 0.05 hold together at the level 0.05.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected, least = [0.0] * len(ps), 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=lambda place: ps[place])):
        least = max(least, min(1.0, (len(ps) - rank) * ps[place]))
        corrected[place] = least
    return corrected


def paired(ours: Sequence[float], theirs: Sequence[float], confidence: float = 0.95) -> PairedTest:
    """Return the mean difference over seeds, its interval and p (Student's t); below 0, ours is better."""
    test = mean_test([a - b for a, b in zip(ours, theirs, strict=True)], confidence)
    return {"mean": test["mean"], "interval": test["interval"], "p": test["p"]}
