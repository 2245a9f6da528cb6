"""Scores of all exits on labelled samples -> what leaves where at given thresholds, and what that does to the error.

N samples, K classes, T taps.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

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
    """What leaves where at some thresholds."""

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


def together(parts: Sequence[Departures]) -> Departures:
    """Return what leaves where in several sets of samples."""
    samples = sum(each.samples for each in parts)
    reached = sum((each.samples * each.reached for each in parts), np.zeros_like(parts[0].reached)) / samples
    return Departures(reached, sum(each.losses for each in parts), sum(each.gains for each in parts), samples)


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
        taken = np.full(self.right.shape[1], len(self.taps))
        for number in range(len(self.taps) - 1, -1, -1):
            threshold = thresholds[number]
            if threshold is not None:
                taken[self.confidences[number] > threshold] = number
        return taken

    def without(self, fold: int, folds: int) -> "ExitJudgement":
        """Return all samples but every ``folds``-th from ``fold`` on."""
        return self._part(np.arange(self.right.shape[1]) % folds != fold)

    def only(self, fold: int, folds: int) -> "ExitJudgement":
        """Return every ``folds``-th sample from ``fold`` on."""
        return self._part(np.arange(self.right.shape[1]) % folds == fold)

    def _part(self, rows: npt.NDArray[np.bool_]) -> "ExitJudgement":
        return ExitJudgement(self.taps, self.confidences[:, rows], self.right[:, rows])

    def departures(self, thresholds: Sequence[float | None]) -> Departures:
        """Return what leaves where at some thresholds."""
        exits = self.exits(thresholds)
        count = len(exits)
        answered = self.right[exits, np.arange(count)]
        left = np.bincount(exits, minlength=len(self.taps) + 1)
        reached = 1 - (np.cumsum(left) - left) / count
        losses, gains = (self.right[-1] & ~answered).sum(), (~self.right[-1] & answered).sum()
        return Departures(reached, int(losses), int(gains), count)
