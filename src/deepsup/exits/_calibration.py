"""A supervised net and validation samples in; out, an ``EarlyExit`` that is fast on this machine and accurate enough.

B batch, N samples, K classes.
"""

import math
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deepsup.errors import SupervisionError
from deepsup.exits._early_exit import OUTPUT, EarlyExit, check_net
from deepsup.exits._stage_times import measure_speed, measure_stages, multiply_adds
from deepsup.exits._thresholds import ExitJudgement, Point, ThresholdSearch, fitted_temperature
from deepsup.exits._timing import Ratio
from deepsup.insight import Measurement, measure
from deepsup.supervision import DeeplySupervised, describe

INCREASE = 0.1
CURVE = 8
"""Points of the curve that are kept."""


def calibrate(
    net: DeeplySupervised,
    validation: tuple[Tensor, Tensor] | Iterable[tuple[Tensor, Tensor]],
    *,
    max_error_increase: float | None = None,
    max_cost: float | None = None,
    batch_size: int | Sequence[int] = 32,
) -> EarlyExit:
    """Choose temperatures and thresholds on validation samples, and switch off the exits that do not pay here.

    Time is measured on this machine, by batch size. What is returned was timed beside the plain net and is not slower;
    where no exit pays, all are off and the plain net runs.

    net: a trained net with its companions.
    validation: inputs [N, ...] and labels [N] that the net was not trained on, or batches of them, e.g. a DataLoader.
    max_error_increase: how many percentage points the error may rise (default 0.1). It is estimated from
        above, with 95 % confidence, so that it holds for other samples too.
    max_cost: instead, the fraction of the plain net's time to stay within, at the lowest error.
    batch_size: the batches to be fast on: one size, or several, whose mean relative time counts.
    """
    check_net(net)
    increase, cost = require_goal(max_error_increase, max_cost)
    sizes = require_sizes(batch_size)
    inputs, labels = require_samples(net, validation)
    measured = measure(net, inputs, labels)
    temperatures = {}
    for name, scores in {**measured.companions, OUTPUT: measured.scores}.items():
        if not scores.isfinite().all():
            raise SupervisionError(
                f"the scores of {name!r} are not finite for some validation samples; expected finite numbers; check "
                f"the inputs for NaN, and that the net was trained without diverging"
            )
        temperatures[name] = fitted_temperature(scores, measured.labels)
    return Calibrating(net, inputs, measured, temperatures, sizes).run(increase, cost)


class Calibrating:
    """The steps of ``calibrate``: time the stages, search, time the result, and give up exits that do not pay."""

    def __init__(
        self, net: DeeplySupervised, inputs: Tensor, measured: Measurement, temperatures: dict[str, float],
        sizes: Sequence[int],
    ) -> None:  # fmt: skip
        self.net, self.inputs, self.temperatures, self.sizes = net, (inputs,), temperatures, sizes
        every = EarlyExit(net, [1.0] * len(net.taps), temperatures)
        every(inputs[:2])  # compares the stages with the plain net
        self.taps = every.names[:-1]
        self.judged = ExitJudgement.of(self.taps, measured.companions, measured.scores, measured.labels, temperatures)
        self.times = [measure_stages(every, self.inputs, size) for size in sizes]
        self.work = multiply_adds(every, self.inputs)
        self.factors = [1.0] * len(sizes)
        """Measured over predicted time, by batch size."""

    def run(self, increase: float | None, cost: float | None) -> EarlyExit:
        """Return the fastest or the most accurate ``EarlyExit`` that is, as measured, no slower than the plain net."""
        allowed = list(self.taps)
        for _ in range(2 * len(self.taps) + 1):
            search = ThresholdSearch(self.judged, self.cost, allowed).run()
            point = self.chosen(search, increase, cost)
            early = EarlyExit(self.net, dict(zip(self.taps, point.thresholds, strict=True)), self.temperatures)
            if not early.active:
                break
            speeds = [measure_speed(early, self.inputs, size) for size in self.sizes]
            times = [1 / speed.median for speed in speeds]
            if max(times) <= 1 and np.mean(times) <= 1.1 * (cost or 1):
                return self.described(early, point, search, speeds)
            if self.factors == [1.0] * len(self.sizes):  # once, scale the predictions to what was measured
                predicted = [each.cost(point.departures.reached.tolist(), point.thresholds) for each in self.times]
                self.factors = [time / each for time, each in zip(times, predicted, strict=True)]
            else:
                allowed.remove(self.least_useful(point))
        return self.described(early, search.off, search, [Ratio(1.0, 1.0, 1.0)] * len(self.sizes))

    def chosen(self, search: ThresholdSearch, increase: float | None, cost: float | None) -> Point:
        """Return the point that the goal asks for."""
        if increase is not None:
            return search.cross_fitted(increase)
        assert cost is not None
        point = search.most_accurate(cost)
        if point is None:
            least = min(each.cost for each in search.seen.values())
            raise SupervisionError(
                f"max_cost={cost:g} cannot be reached: the least is {least:.2f} of the plain net's time, with every "
                f"sample at the first exit; expected at least that; tap an earlier layer, or raise max_cost"
            )
        return point

    def cost(self, reached: Sequence[float], thresholds: Sequence[float | None]) -> float:
        """Return the mean relative time over the batch sizes."""
        if all(threshold is None for threshold in thresholds):
            return 1.0
        predicted = [times.cost(reached, thresholds) for times in self.times]
        return float(np.mean(np.multiply(self.factors, predicted)))

    def least_useful(self, point: Point) -> str:
        """Return the exit at which the fewest samples leave."""
        leaving = dict(zip(self.taps, -np.diff(point.departures.reached), strict=True))
        return min(
            (tap for tap, threshold in zip(self.taps, point.thresholds, strict=True) if threshold is not None),
            key=leaving.__getitem__,
        )

    def described(self, early: EarlyExit, point: Point, search: ThresholdSearch, speeds: Sequence[Ratio]) -> EarlyExit:
        """Attach what was measured."""
        early.calibration = {
            **self.about(point),
            "plain_error": self.judged.plain_error,
            "samples": point.departures.samples,
            "speedup": {str(size): speed.median for size, speed in zip(self.sizes, speeds, strict=True)},
            "temperatures": self.temperatures,
            "curve": [{**self.about(each), "cost": each.cost} for each in spread(search.frontier(), CURVE)],
        }
        return early

    def about(self, point: Point) -> dict[str, Any]:
        """Return the thresholds of a point, its error in percent, and its multiply-adds relative to the plain net."""
        return {
            "error": self.judged.plain_error + point.departures.increase,
            "multiply_adds": self.relative_work(point),
            "thresholds": dict(zip(self.taps, point.thresholds, strict=True)),
        }

    def relative_work(self, point: Point) -> float:
        """Return the mean multiply-adds of a sample, relative to the plain net."""
        stages, heads, plain = self.work
        heads = [work * (threshold is not None) for work, threshold in zip(heads, point.thresholds, strict=True)]
        return float(point.departures.reached @ np.add(stages, [*heads, 0]) / plain)


def spread(points: Sequence[Point], count: int) -> list[Point]:
    """Return so many points, evenly spread over the cost, with both ends."""
    if len(points) <= count:
        return list(points)
    costs = np.array([point.cost for point in points])
    places = [int(np.abs(costs - goal).argmin()) for goal in np.linspace(costs[0], costs[-1], count)]
    return [points[place] for place in sorted(set(places))]


def require_goal(increase: float | None, cost: float | None) -> tuple[float | None, float | None]:
    """Return the one goal that is given; by default the increase of the error."""
    if increase is not None and cost is not None:
        raise SupervisionError(
            f"max_error_increase={increase} and max_cost={cost}; expected one of them: the other is made as small as "
            f"possible"
        )
    if cost is None:
        increase = INCREASE if increase is None else increase
        if not is_finite(increase) or not 0 <= increase <= 100:
            raise SupervisionError(f"max_error_increase={increase!r}; expected percentage points within 0 and 100")
        return float(increase), None
    if not is_finite(cost) or not 0 < cost <= 1:
        raise SupervisionError(f"max_cost={cost!r}; expected a fraction of the plain net's time, above 0 and at most 1")
    return None, float(cost)


def is_finite(given: object) -> bool:
    """Whether something is a finite number."""
    return isinstance(given, Real) and not isinstance(given, bool) and math.isfinite(given)


def require_sizes(given: int | Sequence[int]) -> list[int]:
    sizes = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    if not sizes or not all(isinstance(each, Integral) and not isinstance(each, bool) and each > 0 for each in sizes):
        raise SupervisionError(f"batch_size={given!r}; expected a whole number of at least 1, or several")
    return [int(each) for each in sizes]


def require_samples(net: DeeplySupervised, given: Any) -> tuple[Tensor, Tensor]:
    """Return inputs and labels of the validation samples."""
    pairs = [given] if is_pair(given) else list(given) if isinstance(given, Iterable) else []
    if not pairs or not all(is_pair(each) for each in pairs):
        raise SupervisionError(
            f"validation is a {type(given).__name__} without samples; expected inputs [N, ...] and labels [N], or "
            f"batches of them"
        )
    inputs, labels = torch.cat([each[0] for each in pairs]), torch.cat([each[1] for each in pairs])
    if len(inputs) == 0 or labels.shape != inputs.shape[:1] or labels.is_floating_point():
        raise SupervisionError(
            f"validation has inputs {describe(inputs)} and labels {describe(labels)}; expected at least one sample and "
            f"one class number for each"
        )
    if int(labels.min()) < 0 or int(labels.max()) >= net.num_classes:
        raise SupervisionError(
            f"validation has labels from {int(labels.min())} to {int(labels.max())}; expected class numbers from 0 to "
            f"{net.num_classes - 1}"
        )
    if bool((labels == labels[0]).all()):
        raise SupervisionError(
            f"validation has one class only, {int(labels[0])}, so no threshold can be judged; expected samples of "
            f"several classes, drawn as the net will see them"
        )
    return inputs, labels.long()


def is_pair(given: Any) -> bool:
    """Whether something is a pair of tensors: inputs and labels."""
    return isinstance(given, list | tuple) and len(given) == 2 and all(isinstance(each, Tensor) for each in given)
