"""Search thresholds: judged samples and measured costs in; out, points of error against cost, and the best of them.

T taps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from deepsup.exits._judgement import Departures, ExitJudgement, together

LEVELS = 48
PRICES = 32
FOLDS = 4
"""Thresholds to try per tap, prices of an error to search with, and folds to judge them by."""
Thresholds = tuple[float | None, ...]
Cost = Callable[[Sequence[float], Thresholds], float]
"""Fractions of the samples that reach each exit [T+1] and thresholds -> cost relative to the plain net."""


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
        """Price of an error -> the best point that was found for it."""

    def point(self, thresholds: Thresholds) -> Point:
        """Return one point, from memory if it was visited."""
        if thresholds not in self.seen:
            left = self.judged.departures(thresholds)
            self.seen[thresholds] = Point(thresholds, left, self.cost(left.reached.tolist(), thresholds))
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

    def cheapest(self, most_increase: float) -> Point:
        """Return the point of the lowest cost whose error is at most so many points above the plain net's."""
        fits = [each for each in self.seen.values() if each.departures.cautious_increase <= most_increase]
        start = min([*fits, self.off], key=lambda point: point.cost)
        return self.descend(
            start, lambda p: p.cost if p.departures.cautious_increase <= most_increase or p is self.off else np.inf
        )

    def cross_fitted(self, most_increase: float) -> Point:
        """Return the cheapest point whose price keeps the error of unseen samples within so many points.

        The best of thousands of thresholds on some samples is partly luck. So each price is judged on samples that
        its thresholds were not chosen on, fold by fold; then all samples choose the thresholds of the cheapest price.
        """
        unseen: dict[float, list[Departures]] = {price: [] for price in self.by_price}
        for fold in range(FOLDS):
            chosen, judged = self.judged.without(fold, FOLDS), self.judged.only(fold, FOLDS)
            for price, point in ThresholdSearch(chosen, self.cost, self.allowed).run().by_price.items():
                unseen[price].append(judged.departures(point.thresholds))
        fits = [
            self.by_price[price] for price, each in unseen.items() if together(each).cautious_increase <= most_increase
        ]
        fits = [point for point in fits if point.departures.cautious_increase <= most_increase]
        return min([*fits, self.off], key=lambda point: point.cost)

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
