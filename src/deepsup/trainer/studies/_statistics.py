"""Errors of two methods over the same seeds -> how they compare: the ratio seed by seed, or the difference."""

import math
from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

LEAST = 0.01
"""Percent: smaller errors count as this one in a ratio."""


def chance_error(classes: int) -> float:
    """Return the error of guessing among so many classes, in percent.

    >>> chance_error(10)
    90.0
    """
    return 100 * (classes - 1) / classes


def has_learned(error: float, classes: int) -> bool:
    """Whether an error is well below that of guessing: a tenth of it at least.

    >>> has_learned(80.0, 10), has_learned(82.0, 10)
    (True, False)
    """
    return error <= 0.9 * chance_error(classes)


def error_ratio(ours: Sequence[float], theirs: Sequence[float], least: float = LEAST) -> dict[str, Any]:
    """Return the ratio of two methods' errors, ``ours`` to ``theirs``, seed by seed, on the log scale.

    least: percent; smaller errors count as this one, since the logarithm of 0 is infinite.

    The answer has the geometric mean of the ratios, its 95 % interval (Student's t on the logarithms; None for one
    seed), the number of pairs, in how many of them ours is lower, and p of the exact sign test (pairs that are equal
    do not count). Below 1, ours is better.
    """
    from scipy import stats

    pairs = list(zip(ours, theirs, strict=True))
    logs = [math.log(max(a, least) / max(b, least)) for a, b in pairs]
    interval = None
    if len(logs) > 1:
        half = float(stats.t.ppf(0.975, len(logs) - 1)) * stdev(logs) / math.sqrt(len(logs))
        interval = [math.exp(mean(logs) - half), math.exp(mean(logs) + half)]
    lower, higher = sum(a < b for a, b in pairs), sum(a > b for a, b in pairs)
    return {
        "ratio": math.exp(mean(logs)),
        "interval": interval,
        "pairs": len(pairs),
        "lower": lower,
        "p": float(stats.binomtest(lower, lower + higher).pvalue) if lower + higher else 1.0,
    }


def paired(ours: Sequence[float], theirs: Sequence[float], confidence: float = 0.95) -> dict[str, Any]:
    """Return the mean difference over seeds, its interval and p (Student's t); below 0, ours is better."""
    from scipy import stats

    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    middle = mean(differences)
    if len(differences) < 2:
        return {"mean": middle, "interval": None, "p": None}
    if stdev(differences) < 1e-9:  # scipy warns, and has no p where all differences are 0
        return {"mean": middle, "interval": [middle, middle], "p": float(abs(middle) < 1e-9)}
    test = stats.ttest_rel(ours, theirs)
    return {
        "mean": middle,
        "interval": [float(end) for end in test.confidence_interval(confidence)],
        "p": float(test.pvalue),
    }
