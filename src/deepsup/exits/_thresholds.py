"""Scores of all exits on labelled samples and measured costs in; out, temperatures, and the best thresholds.

N samples, K classes, T taps.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

LEVELS, PRICES, FOLDS = 48, 32, 4
"""Thresholds to try per tap, prices of an error to search with, and folds to judge them by."""
Thresholds = tuple[float | None, ...]
Cost = Callable[[Sequence[float], Thresholds], float]
"""Fractions of the samples that reach each exit [T+1] and thresholds -> cost relative to the plain net."""

HOT, COLD = 20.0, 0.05
"""Bounds of a temperature, in deviations of the scores: for scores that say nothing it would be infinite, for scores
without an error 0."""

RESERVE = 1.645
"""Standard errors, 95 % on one side. A few lucky gains must not pay for losses: with the plain difference and one
standard error, thresholds for +0.1 points on 5,000 digits lost 0.14 points on others."""


def fitted_temperature(scores: Tensor, labels: Tensor) -> float:
    """Return the temperature at which the softmax of scores [N,K] gives labels [N] the highest likelihood."""
    scores = scores.double()
    spread = float((scores - scores.mean(1, keepdim=True)).square().mean().sqrt())
    if spread == 0:
        return 1.0
    scores = scores / spread

    def loss(log: float) -> float:
        return float(torch.nn.functional.cross_entropy(scores / np.exp(log), labels))

    return spread * float(np.exp(lowest(loss, np.log(COLD), np.log(HOT))))


def lowest(function: Callable[[float], float], low: float, high: float, tolerance: float = 1e-6) -> float:
    """Return where a function with one minimum between two bounds is lowest, by golden section."""
    golden = (5**0.5 - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = function(left), function(right)
    while high - low > tolerance:
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = function(right)
    return (low + high) / 2


@dataclass(frozen=True, eq=False)
class Departures:
    """How many samples reach each exit, and what leaving early does to the error."""

    reached: npt.NDArray[np.float64]
    """[T+1], the fraction of the samples that reach each exit."""
    losses: int
    """Samples that the output has right and their exit has wrong."""
    gains: int
    """Samples that the output has wrong and their exit has right."""
    samples: int

    @property
    def increase(self) -> float:
        """The increase of the error, in points."""
        return 100 * (self.losses - self.gains) / self.samples

    @property
    def cautious_increase(self) -> float:
        """An upper estimate of the increase, in points: the losses from above and the gains from below, at 95 %."""
        losses = self.losses + RESERVE * np.sqrt(self.losses)
        gains = max(0.0, self.gains - RESERVE * np.sqrt(self.gains))
        return float(100 * (losses - gains) / self.samples)


@dataclass(frozen=True, eq=False)
class ExitJudgement:
    """Confidence and correctness of every exit on N samples."""

    taps: tuple[str, ...]
    """In the order in which they run."""
    confidences: npt.NDArray[np.float64]
    """[T,N], of the companions."""
    right: npt.NDArray[np.bool_]
    """[T+1,N], the last of the output."""

    @staticmethod
    def of(
        taps: Sequence[str], companions: Mapping[str, Tensor], output: Tensor, labels: Tensor,
        temperatures: Mapping[str, float],
    ) -> "ExitJudgement":  # fmt: skip
        """Judge scores [N,K] of companions and output by labels [N]."""
        sure = [(companions[tap] / temperatures[tap]).softmax(1).amax(1).double().numpy() for tap in taps]
        right = [(scores.argmax(1) == labels).numpy() for scores in (*(companions[tap] for tap in taps), output)]
        return ExitJudgement(tuple(taps), np.stack(sure), np.stack(right))

    @property
    def plain_error(self) -> float:
        """The error of the output in percent."""
        return 100 * float(1 - self.right[-1].mean())

    def exits(self, thresholds: Sequence[float | None]) -> npt.NDArray[np.intp]:
        """Return the number of the exit of each sample, [N]; T is the output."""
        exits = np.full(self.right.shape[1], len(self.taps))
        for number in reversed(range(len(self.taps))):
            threshold = thresholds[number]
            if threshold is not None:
                exits[self.confidences[number] > threshold] = number
        return exits

    def part(self, rows: npt.NDArray[np.bool_]) -> "ExitJudgement":
        """Return the judgement of some of the samples."""
        return ExitJudgement(self.taps, self.confidences[:, rows], self.right[:, rows])

    def departures(self, exits: npt.NDArray[np.intp]) -> Departures:
        """Return what leaving at these exits [N] does."""
        count = len(exits)
        answered = self.right[exits, np.arange(count)]
        left = np.bincount(exits, minlength=len(self.taps) + 1)
        reached = 1 - (np.cumsum(left) - left) / count
        losses, gains = (self.right[-1] & ~answered).sum(), (~self.right[-1] & answered).sum()
        return Departures(reached, int(losses), int(gains), count)


@dataclass(frozen=True, eq=False)
class Point:
    """Thresholds, what leaves where with them, and their cost relative to the plain net."""

    thresholds: Thresholds
    departures: Departures
    cost: float


class ThresholdSearch:
    """Coordinate descent on cost + price * errors, for many prices; every point that it visits is kept."""

    def __init__(self, judged: ExitJudgement, cost: Cost, allowed: Sequence[str]) -> None:
        self.judged, self.cost, self.allowed = judged, cost, allowed
        self.levels = [
            candidates(sure, tap in allowed) for tap, sure in zip(judged.taps, judged.confidences, strict=True)
        ]
        self.seen: dict[Thresholds, Point] = {}
        self.off = self.point((None,) * len(judged.taps))
        self.by_price: dict[float, Point] = {}
        """Price of an error -> the best point for it."""

    def point(self, thresholds: Thresholds) -> Point:
        """Return one point, from memory if it was visited."""
        if thresholds not in self.seen:
            departures = self.judged.departures(self.judged.exits(thresholds))
            cost = self.cost(departures.reached.tolist(), thresholds)
            self.seen[thresholds] = Point(thresholds, departures, cost)
        return self.seen[thresholds]

    def run(self) -> "ThresholdSearch":
        """Visit the points that are best for each price of an error, from expensive to cheap."""
        now = self.off
        for price in np.geomspace(300, 0.1, PRICES):
            now = self.by_price[float(price)] = self.descend(now, partial(priced, price))
        return self

    def descend(self, start: Point, value: Callable[[Point], float]) -> Point:
        """Improve one threshold after the other until none can be."""
        best = start
        while True:
            before = best
            for place, levels in enumerate(self.levels):
                tried = [
                    self.point((*best.thresholds[:place], level, *best.thresholds[place + 1 :])) for level in levels
                ]
                best = min([best, *tried], key=value)
            if best is before:
                return best

    def cross_fitted(self, most_increase: float) -> Point:
        """Return the cheapest point whose price keeps the error of unseen samples within so many points.

        The best of thousands of thresholds on some samples is partly luck. So each price is judged on samples that
        its thresholds were not chosen on, fold by fold; then all samples choose the thresholds of the cheapest price.
        """
        folds = np.arange(self.judged.right.shape[1]) % FOLDS
        exits = {price: np.empty_like(folds) for price in self.by_price}
        for fold in range(FOLDS):
            unseen = folds == fold
            others = ThresholdSearch(self.judged.part(~unseen), self.cost, self.allowed).run()
            for price, point in others.by_price.items():
                exits[price][unseen] = self.judged.part(unseen).exits(point.thresholds)
        fits = [self.off]
        for price, point in self.by_price.items():
            both = point.departures, self.judged.departures(exits[price])
            if all(departures.cautious_increase <= most_increase for departures in both):
                fits.append(point)
        return min(fits, key=lambda point: point.cost)

    def most_accurate(self, most_cost: float) -> Point | None:
        """Return the point of the lowest error whose cost is at most so much; None if none is that cheap."""
        fits = [each for each in self.seen.values() if each.cost <= most_cost]
        if not fits:
            return None
        start = min(fits, key=lambda point: point.departures.cautious_increase)
        return self.descend(start, lambda p: p.departures.cautious_increase if p.cost <= most_cost else np.inf)

    def frontier(self) -> list[Point]:
        """Return the points that no other beats in cost and error, from the plain net to the cheapest."""
        points: list[Point] = []
        for point in sorted(self.seen.values(), key=lambda each: (each.cost, each.departures.increase)):
            if not points or point.departures.increase < points[-1].departures.increase:
                points.append(point)
        return points[::-1]


def priced(price: float, point: Point) -> float:
    """Return cost + price * errors."""
    return point.cost + price * point.departures.cautious_increase / 100


def candidates(sure: np.ndarray, allowed: bool) -> list[float | None]:
    """Return the thresholds to try at a tap: just below quantiles of its confidences, 0 (all leave), and off."""
    if not allowed:
        return [None]
    fractions = np.concatenate([np.linspace(0, 0.9, LEVELS * 2 // 3), np.linspace(0.9, 0.999, LEVELS // 3)])
    below = np.nextafter(np.quantile(sure, fractions).astype(np.float32), np.float32(0))
    return [None, 0.0, *sorted({float(value) for value in below})]
