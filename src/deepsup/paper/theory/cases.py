"""A case, the lambdas and the noise of P and Q, in; measured errors of SGD on P and on P + Q beside all bounds out.

D = |W_1 - W*|^2 = 1 is also the squared radius of the set that the iterates are projected onto.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deepsup.paper.theory import bounds
from deepsup.paper.theory.convex import Array, Convex, together
from deepsup.paper.theory.descent import Rate, descend, known_strength, plain

DIMENSIONS = 5
SQUARED_RADIUS = 1.0  # D
SURE = 3.0
"""A bound is called broken where the measured mean is more than so many standard errors above it."""
KNOWN, PLAIN = "1/(lambda t)", "1/t"
STEPS = (KNOWN, PLAIN)


@dataclass(frozen=True)
class Case:
    """P and Q of a simulation: round quadratics with noise 1 and independent batches, unless it says otherwise."""

    name: str
    lambda1: float
    lambda2: float
    stretch: float = 1.0
    """Largest curvature over the smallest."""
    bend: float = 0.0
    noises: tuple[float, float] = (1.0, 1.0)
    correlation: float = 0.0

    def functions(self) -> tuple[Convex, Convex, Convex]:
        """Return P, Q and F = P + Q, all with their flattest direction along the first axis."""
        shape = np.linspace(1.0, self.stretch, DIMENSIONS)
        p = Convex(self.lambda1 * shape, self.bend, self.noises[0])
        q = Convex(self.lambda2 * shape, self.bend, self.noises[1])
        return p, q, together(p, q, self.correlation)

    @property
    def strength(self) -> float:
        """The lambda of F."""
        return self.lambda1 + self.lambda2

    @property
    def label(self) -> str:
        """The case in a row's words."""
        return f"{self.name}, lambda1 = {self.lambda1:g}, lambda2 = {self.lambda2:g}"


CASES = (
    Case("round", 0.1, 0.2),
    Case("round, one batch", 0.3, 0.6, correlation=1.0),
    Case("round", 0.75, 0.75),
    Case("round", 0.1, 5.0),
    Case("stretched", 0.3, 0.6, stretch=5.0),
    Case("bent", 0.75, 0.75, bend=0.5),
    Case("quiet", 0.05, 0.05, noises=(0.05, 0.05)),
    Case("Q = 9 P", 0.1, 0.9, noises=(1.0, 9.0), correlation=1.0),
    Case("noisy Q", 0.3, 0.3, noises=(1.0, 10.0)),
)


@dataclass(frozen=True)
class Preset:
    """How long and how often SGD runs."""

    time: int
    repetitions: int

    def times(self) -> list[int]:
        """Return the times of measurement: four a decade, from 2 on."""
        grid = np.geomspace(2, self.time, round(4 * math.log10(self.time / 2)) + 1)
        return sorted({round(t) for t in grid})


PRESETS = {"smoke": Preset(200, 40), "cpu": Preset(10_000, 400), "paper": Preset(100_000, 1000)}


@dataclass(frozen=True, eq=False)
class Measured:
    """Errors of SGD on P and on F under one step rule, at rising times, beside the bounds for F."""

    case: Case
    step: str
    times: list[int]
    p: Array
    """[times, R]: |W_T - W*|^2 of P alone."""
    f: Array
    """[times, R]: the same of P + Q, with the same random numbers."""
    printed: Array
    """[times]: Lemma 2 or Lemma 3 for F."""
    printed_p: Array
    """[times]: the same for P alone, with lambda1 and P's own G."""
    corrected: Array
    """[times]: the closed form that can be proved, for F."""
    recursion: Array
    """[times]: the one-step inequality, run; for F."""
    moments: tuple[float, float]
    """G^2, common to P and Q, and G_F^2."""

    @property
    def ratio(self) -> Array:
        """[times]: error(P) / error(F)."""
        return np.asarray(self.p.mean(1) / self.f.mean(1))

    @property
    def ratio_deviation(self) -> Array:
        """[times]: the standard error of the ratio; the runs are paired, so P's and F's errors move together."""
        rest = (self.p - self.ratio[:, None] * self.f) / self.f.mean(1)[:, None]
        return np.asarray(rest.std(1, ddof=1) / math.sqrt(rest.shape[1]))

    def exponent(self) -> float:
        """Return the slope of log ratio over log T, in the last two decades."""
        late = np.array(self.times) >= self.times[-1] / 100
        slope, _ = np.polyfit(np.log(np.array(self.times)[late]), np.log(self.ratio[late]), 1)
        return float(slope)


def deviation(errors: Array) -> Array:
    """Return the standard error of the mean over the repetitions, [times]."""
    return np.asarray(errors.std(1, ddof=1) / math.sqrt(errors.shape[1]))


def holds(errors: Array, bound: Array) -> NDArray[np.bool_]:
    """Whether each bound stands: the mean is not above it by more than ``SURE`` standard errors; [times]."""
    rounding = 1e-9  # iterates on the rim of the ball have an error of D, give or take the last digit
    return np.asarray(errors.mean(1) - SURE * deviation(errors) <= bound * (1 + rounding))


def measure(case: Case, step: str, preset: Preset, seed: int) -> Measured:
    """Run SGD on P and on F under one step rule."""
    p, q, f = case.functions()
    times, common = preset.times(), max(p.second_moment(SQUARED_RADIUS), q.second_moment(SQUARED_RADIUS))
    sum_moment = f.second_moment(SQUARED_RADIUS)
    assert sum_moment <= bounds.SUM_FACTOR * common * (1 + 1e-12), "G_F^2 <= 4 G^2 is what every correction rests on"

    def errors(function: Convex) -> Array:
        # the same random numbers for P and F, so that their ratio is not blurred by luck
        generator = np.random.default_rng(seed)
        return descend(
            function, rate_of(step, function), times, preset.repetitions, generator,
            start=SQUARED_RADIUS, squared_radius=SQUARED_RADIUS,
        )  # fmt: skip

    return Measured(
        case, step, times, errors(p), errors(f),
        printed=printed(step, times, f.strength, common),
        printed_p=printed(step, times, p.strength, p.second_moment(SQUARED_RADIUS)),
        corrected=corrected(step, times, f.strength, sum_moment),
        recursion=bounds.recursion(times, f.strength, sum_moment, SQUARED_RADIUS, rate_of(step, f)),
        moments=(common, sum_moment),
    )  # fmt: skip


def rate_of(step: str, function: Convex) -> Rate:
    """Return the step rule of that name for a function."""
    return known_strength(function.strength) if step == KNOWN else plain


def printed(step: str, times: list[int], strength: float, moment: float) -> Array:
    """Return the paper's bound at each time."""
    if step == KNOWN:
        return np.array([bounds.lemma2(t, strength, moment) for t in times])
    return np.array([bounds.lemma3(t, strength, moment, SQUARED_RADIUS) for t in times])


def corrected(step: str, times: list[int], strength: float, moment: float) -> Array:
    """Return the bound that can be proved at each time; ``moment`` is G_F^2."""
    if step == KNOWN:
        return np.array([bounds.corrected_lemma2(t, strength, moment) for t in times])
    return np.array([bounds.corrected_lemma3(t, strength, moment, SQUARED_RADIUS) for t in times])


def shifted_error(preset: Preset, seed: int) -> tuple[float, float, float]:
    """Return the last error of SGD on F to P's optimum where Q's lies 0.5 away: measured, exact limit, Lemma 2's bound.

    For round quadratics the optimum of F lies lambda2 / (lambda1 + lambda2) of the way from P's to Q's.
    """
    case = Case("round", 0.2, 0.6)
    p, q, f = case.functions()
    target = np.zeros(DIMENSIONS)
    target[0] = -case.lambda2 / case.strength * 0.5  # P's optimum, seen from F's
    generator = np.random.default_rng(seed)
    rate = known_strength(f.strength)
    errors = descend(f, rate, [preset.time], preset.repetitions, generator, target=target)
    moment = max(p.second_moment(SQUARED_RADIUS), q.second_moment(SQUARED_RADIUS))
    return float(errors.mean()), float(target[0] ** 2), bounds.lemma2(preset.time, f.strength, moment)
