"""The simulation of the paper's analysis against explicit loops, exact recursions and the definitions themselves."""

import json
import math
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepsup.errors import ConfigError
from deepsup.paper.theory import bounds, cases, findings, identity, study
from deepsup.paper.theory.cases import CASES, KNOWN, PLAIN, PRESETS, Case, Preset, holds, measure
from deepsup.paper.theory.convex import Convex, together
from deepsup.paper.theory.descent import Rate, descend, known_strength, plain
from deepsup.trainer.report._theory_figure import draw_theory

SMALL = Preset(60, 200)


def loop_sgd(function: Convex, rate: Rate, steps: int, noise: np.ndarray, radius: float) -> list[float]:
    """One run, number by number; noise [steps, d] of unit normals; squared distances of W_1, W_2, ..."""
    d = len(function.curvatures)
    u = [radius] + [0.0] * (d - 1)
    errors = [sum(x * x for x in u)]
    for t in range(1, steps + 1):
        for i in range(d):
            slope = float(function.curvatures[i]) * u[i] + function.bend * math.tanh(u[i])
            u[i] -= rate(t) * (slope + function.noise / math.sqrt(d) * float(noise[t - 1, i]))
        length = math.sqrt(sum(x * x for x in u))
        u = [x * min(1.0, radius / length) for x in u]
        errors.append(sum(x * x for x in u))
    return errors


@pytest.mark.parametrize("rate", [plain, known_strength(0.4)])
def test_sgd_equals_the_loop(rate: Rate) -> None:
    function = Convex(np.array([0.4, 1.0, 3.0]), bend=0.5, noise=0.7)
    times = [1, 2, 5, 21]
    ours = descend(function, rate, times, 4, np.random.default_rng(3))
    noise = np.random.default_rng(3).standard_normal((20, 4, 3))
    for run in range(4):
        slow = loop_sgd(function, rate, 20, noise[:, run], 1.0)
        np.testing.assert_allclose(ours[:, run], [slow[t - 1] for t in times], rtol=1e-12)


@pytest.mark.parametrize("strength", [0.1, 0.5, 1.5])
@pytest.mark.parametrize("step", [KNOWN, PLAIN])
def test_mean_error_follows_the_exact_recursion(strength: float, step: str) -> None:
    """Round, quadratic, never projected: e_{t+1} = (1 - eta lambda)^2 e_t + eta^2 sigma^2, nothing left out."""
    function = Convex(np.full(5, strength), noise=0.3)
    rate = cases.rate_of(step, function)
    times = [2, 10, 100]
    errors = descend(function, rate, times, 4000, np.random.default_rng(0), squared_radius=math.inf)
    exact = [1.0]
    for t in range(1, times[-1]):
        exact.append((1 - rate(t) * strength) ** 2 * exact[-1] + (rate(t) * 0.3) ** 2)
    gap = np.abs(errors.mean(1) - [exact[t - 1] for t in times])
    assert (gap <= 4 * cases.deviation(errors) + 1e-15).all()


def test_sgd_goes_down_and_not_up() -> None:
    """Without noise each step shrinks u by exactly 1 - eta lambda; a wrong sign would send it to the rim."""
    function = Convex(np.array([0.5, 0.5]), noise=0.0)
    errors = descend(function, plain, [1, 2, 3], 1, np.random.default_rng(0))
    np.testing.assert_allclose(errors[:, 0], [1, 0.5**2, (0.5 * 0.75) ** 2], rtol=1e-12)


@given(seed=st.integers(0, 10_000), index=st.integers(0, len(CASES) - 1))
@settings(max_examples=60, deadline=None)
def test_strong_convexity_is_what_the_definition_says(seed: int, index: int) -> None:
    generator = np.random.default_rng(seed)
    case = CASES[index]
    p, q, f = case.functions()
    assert (p.strength, q.strength) == (case.lambda1, case.lambda2)
    assert f.strength == pytest.approx(case.strength)
    here, there = generator.normal(size=(2, 50, cases.DIMENSIONS))
    for function in (p, q, f):
        gap = there - here
        linear = function.value(here) + (function.gradient(here) * gap).sum(1)
        least = linear + function.strength / 2 * (gap**2).sum(1)
        assert (function.value(there) >= least - 1e-12 * (1 + np.abs(least))).all()
        zero = np.zeros(cases.DIMENSIONS)
        np.testing.assert_array_equal(function.gradient(zero), zero)  # the optimum is common


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_gradients_are_unbiased_and_obey_g_on_the_ball(case: Case) -> None:
    generator = np.random.default_rng(0)
    directions = generator.normal(size=(20, cases.DIMENSIONS))
    points = np.vstack([directions / np.linalg.norm(directions, axis=1)[:, None], np.eye(cases.DIMENSIONS)])
    for function in case.functions():
        most = function.second_moment(1.0)
        assert ((function.gradient(points) ** 2).sum(1) + function.noise**2 <= most * (1 + 1e-12)).all()
        drawn = function.sample(np.tile(points[0], (20_000, 1)), generator)
        spread = function.noise / math.sqrt(cases.DIMENSIONS * len(drawn))
        assert (np.abs(drawn.mean(0) - function.gradient(points[0])) <= 5 * spread).all()
        assert ((drawn - drawn.mean(0)) ** 2).sum(1).mean() == pytest.approx(function.noise**2, rel=0.05)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 1.0])
def test_noise_of_the_sum_is_that_of_two_correlated_noises(correlation: float) -> None:
    p, q = Convex(np.ones(2), noise=1.0), Convex(np.ones(2), noise=3.0)
    first, other = np.random.default_rng(0).normal(size=(2, 200_000))
    both = first + 3 * (correlation * first + math.sqrt(1 - correlation**2) * other)
    assert together(p, q, correlation).noise == pytest.approx(both.std(), rel=0.01)


@given(strength=st.floats(0.05, 6), moment=st.floats(0.01, 50), last=st.integers(2, 400))
@settings(max_examples=100, deadline=None)
def test_corrected_closed_forms_are_above_the_recursion(strength: float, moment: float, last: int) -> None:
    """The proofs in the docstrings, checked: from the same one-step inequality no closed form may come out lower."""
    radius = moment / strength**2  # the largest D that a G allows
    known = bounds.recursion([last], strength, moment, radius, known_strength(strength))[0]
    assert known <= bounds.corrected_lemma2(last, strength, moment) * (1 + 1e-9)
    simple = bounds.recursion([last], strength, moment, radius, plain)[0]
    assert simple <= bounds.corrected_lemma3(last, strength, moment, radius) * (1 + 1e-9)


def test_printed_bounds_at_a_point_worked_by_hand() -> None:
    assert bounds.lemma2(10, 0.5, 2.0) == pytest.approx(9.6)
    assert bounds.lemma3(2, 1.0, 3.0, 5.0) == pytest.approx(5 * math.exp(-2 * (math.log(2) + 0.578)) + 3)
    assert bounds.lemma3(101, 1.5, 2.0, 0.0) == pytest.approx(2 / 100**2)
    assert bounds.theorem1_known(0.1, 0.9) == pytest.approx(82)


def test_a_multiple_of_p_as_companion_changes_no_step() -> None:
    """Q = c P meets all assumptions, and SGD with the step 1/(lambda t) does not notice it."""
    case = next(case for case in CASES if case.name == "Q = 9 P")
    run = measure(case, KNOWN, SMALL, 0)
    np.testing.assert_allclose(run.p, run.f, rtol=1e-9)


def test_lemma_3_is_judged_by_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = [case for case in CASES if case.label == "round, lambda1 = 0.75, lambda2 = 0.75"]

    def verdict() -> str:
        return findings.lemma3([measure(case, PLAIN, SMALL, 0) for case in chosen])["verdict"]

    assert verdict() == findings.AFTER_CORRECTION
    monkeypatch.setattr(bounds, "lemma3", lambda *_: 10.0)
    assert verdict() == findings.AS_PRINTED
    monkeypatch.setattr(bounds, "lemma3", lambda *_: 1e-9)
    monkeypatch.setattr(bounds, "corrected_lemma3", lambda *_: 1e-9)
    assert verdict() == findings.NOT_AS_PRINTED


def test_lemma_2_is_judged_by_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [measure(case, KNOWN, SMALL, 0) for case in CASES[:3]]
    assert findings.lemma2(runs)["verdict"] == findings.AS_PRINTED
    # with G of one part for the G of the sum, and no slack, it would break: the 4 is needed
    monkeypatch.setattr(bounds, "lemma2", lambda t, strength, moment: moment / (strength**2 * t))
    runs = [measure(case, KNOWN, SMALL, 0) for case in CASES[:3]]
    assert findings.lemma2(runs)["verdict"] == findings.AFTER_CORRECTION


def test_a_bound_is_broken_only_beyond_the_error_of_the_mean() -> None:
    errors = np.array([[0.9, 1.1], [1.0, 1.0]])
    assert holds(errors, np.array([0.8, 1.0])).tolist() == [True, True]
    assert holds(errors, np.array([0.6, 0.999])).tolist() == [False, False]


@pytest.mark.parametrize("depth", [1, 4])
def test_lemma_1_copies_the_bracket(depth: int) -> None:
    low, high = identity.copied_brackets(depth, seed=1)
    assert high == pytest.approx(low, rel=1e-6)
    assert low > 0


@pytest.mark.parametrize("counter", identity.counters(), ids=lambda counter: counter.name)
def test_lemma_1_cannot_pass_these_layers(counter: identity.Counter) -> None:
    lowest = identity.lowest_bracket(counter, seed=0)
    slack = 0.03 if "dropout" in counter.name else 1e-6  # its floor is one of the mean over draws
    assert counter.floor - slack <= lowest <= counter.floor + 0.1


@pytest.mark.parametrize(("sign", "wide"), [(1.0, False), (-1.0, False), (1.0, True)])
def test_below_these_layers_gamma_is_met(sign: float, wide: bool) -> None:
    features, weight = identity.separable(sign, wide)
    assert identity.bracket(features, weight, identity.LABELS).item() == pytest.approx(0.01)


def test_study_is_quick_plain_and_repeatable(tmp_path: Path) -> None:
    start = time.process_time()
    record = study("smoke")
    assert time.process_time() - start < 10
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert study("smoke") == record
    assert {row["verdict"] for row in record["rows"]} == {"holds", "does not hold"}
    keys = {"row", "paper", "values", "mean", "deviation", "seeds", "verdict", "differs"}
    assert all(row.keys() == keys for row in record["rows"])
    assert len({row["row"] for row in record["rows"]}) == len(record["rows"])
    verdicts = {finding["statement"]: finding["verdict"] for finding in record["findings"]}
    assert verdicts["Lemma 2"] == findings.AS_PRINTED
    assert verdicts["Lemma 3"] == findings.AFTER_CORRECTION
    picture = draw_theory(record, tmp_path)
    assert picture == tmp_path / "theory.png"
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_unknown_preset_names_the_nearest() -> None:
    assert set(PRESETS) == {"smoke", "cpu", "paper"}
    with pytest.raises(ConfigError, match=r"^preset='smok'; did you mean 'smoke'\?$"):
        study("smok")
