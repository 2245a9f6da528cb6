"""Faster and better, read off curves of which both are known."""

from math import exp, log
from statistics import mean

import numpy as np
import pytest
from scipy import stats

from deepsup.paper.budget_curves import distances, epochs_to, fraction_of_epochs, mean_distance
from deepsup.paper.row_id import RowId

EPOCHS = (15, 30, 60, 120, 240)


def power(epochs: float, scale: float = 100.0, slope: float = 0.5) -> float:
    """An error that is a straight line on the log-log scale."""
    return scale * epochs**-slope


def test_a_curve_that_needs_half_the_epochs_is_twice_as_fast() -> None:
    twin = [log(power(each)) for each in EPOCHS]
    ours = [log(power(2 * each)) for each in EPOCHS]
    found = mean_distance(EPOCHS, ours, twin)
    assert found is not None
    assert exp(found[0]) == pytest.approx(0.5)
    assert [exp(each) for each in found[1:]] == pytest.approx([power(240), power(30)])  # the errors that both have


def test_it_is_the_mean_over_levels_done_slowly() -> None:
    """Other curves, the distance at each level found by walking along both in small steps."""
    twin, ours = [60.0, 20.0, 9.0, 8.0, 7.9], [25.0, 12.0, 11.0, 6.0, 5.0]
    levels = np.exp(np.linspace(log(7.9), log(25.0), 101))
    fine = np.exp(np.linspace(log(15), log(240), 200_001))

    def walked(curve: list[float], level: float) -> float:
        errors = np.exp(np.interp(np.log(fine), np.log(EPOCHS), np.log(np.minimum.accumulate(curve))))
        return float(np.log(fine[np.argmax(errors <= level * (1 + 1e-9))]))

    slow = mean(walked(ours, level) - walked(twin, level) for level in levels)
    found = mean_distance(EPOCHS, np.log(ours), np.log(twin))
    assert found is not None
    assert found[0] == pytest.approx(slow, abs=1e-3)


def test_a_curve_that_rises_again_counts_as_its_lowest_so_far() -> None:
    assert epochs_to(log(5), (1, 2, 4), np.log([8.0, 5.0, 5.0])) == pytest.approx(log(2))
    rising, level = [50.0, 5.0, 9.0, 7.0, 4.0], [50.0, 5.0, 5.0, 5.0, 4.0]
    assert mean_distance(EPOCHS, np.log(rising), np.log(level)) == mean_distance(EPOCHS, np.log(level), np.log(level))


def test_curves_without_a_common_error_have_no_fraction() -> None:
    assert mean_distance((1, 2), [0.0, -1.0], [3.0, 2.0]) is None
    assert fraction_of_epochs({1: [1.0, 1.1], 2: [0.5, 0.6]}, {1: [9.0, 9.1], 2: [8.0, 8.1]}) is None
    assert fraction_of_epochs({1: [1.0]}, {1: [2.0]}) is None  # one budget is no curve


def test_the_interval_of_equal_seeds_is_a_point_and_of_others_holds_the_value() -> None:
    twin = {each: [power(each)] * 3 for each in EPOCHS}
    ours = {each: [power(2 * each)] * 3 for each in EPOCHS}
    found = fraction_of_epochs(ours, twin)
    assert found is not None
    assert [found["fraction"], *found["interval"]] == pytest.approx([0.5] * 3)
    factors = (1.5, 2, 3)  # each seed's own speed-up: the fraction's logarithm is their mean, its pseudo-values they
    spread = {each: [power(each * factor) for factor in factors] for each in EPOCHS}
    noisy = fraction_of_epochs(spread, twin)
    assert noisy is not None
    logs = [-log(factor) for factor in factors]
    assert noisy["fraction"] == pytest.approx(exp(mean(logs)))
    ends = stats.ttest_1samp(logs, 0).confidence_interval(0.95)
    assert noisy["interval"] == pytest.approx([exp(ends.low), exp(ends.high)])


def test_the_interval_of_equal_curves_holds_1_about_as_often_as_it_says() -> None:
    """300 pairs of curves with the same mean: 95 % of the intervals hold 1; the resamples' one held it in 84 %."""
    draw = np.random.default_rng(0)
    held = 0
    for _ in range(300):
        ours, theirs = (
            {each: [power(each) * noise for noise in np.exp(draw.normal(0, 0.1, 5))] for each in EPOCHS}
            for _ in range(2)
        )
        low, high = fraction_of_epochs(ours, theirs)["interval"]
        held += low <= 1 <= high
    assert 0.92 * 300 <= held <= 0.99 * 300


def test_rows_that_lack_seeds_are_cut_to_the_seeds_that_all_have() -> None:
    full = {("CNN-Softmax", 15): [10.0, 10.0], ("DSN-Softmax", 15): [5.0, 5.0]}
    rows = rows_of({**full, ("CNN-Softmax", 30): [4.0, 9.0], ("DSN-Softmax", 30): [2.5]})
    better, faster = distances(rows)["rows"]
    assert (better["values"], better["pairs"]) == (pytest.approx([2.5 / 4]), 1)
    assert faster["interval"] is None


def rows_of(errors: dict[tuple[str, int], list[float | None]]) -> dict[RowId, dict]:
    return {RowId(method, epochs=epochs): {"values": values, "guessing": 90.0, "mean": 1.0}
            for (method, epochs), values in errors.items()}  # fmt: skip


def test_both_distances_are_read_off_the_rows() -> None:
    errors = {(f"{kind}-Softmax", epochs): [power(epochs * faster)] * 3
              for kind, faster in (("CNN", 1), ("DSN", 2)) for epochs in EPOCHS}  # fmt: skip
    found = distances(rows_of(errors))
    better, faster = found["rows"]
    assert better["values"] == pytest.approx([0.5**0.5])
    assert faster["values"] == pytest.approx([0.5])
    assert (RowId.of(better).reading, RowId.of(faster).reading) == ("better", "faster")
    assert list(found["figure"]["panels"][0]["curves"]) == ["CNN-Softmax", "DSN-Softmax"]


def test_a_diverged_run_has_the_error_of_guessing_and_a_part_of_the_rows_will_do() -> None:
    rows = rows_of(
        {("CNN-Softmax", 15): [10.0, None], ("DSN-Softmax", 15): [5.0, 5.0], ("DSN-Softmax", 30): [4.0, 4.0]}
    )
    found = distances(rows)
    (better,) = found["rows"]
    assert better["values"] == pytest.approx([(0.5 * 5 / 90) ** 0.5])
    assert distances({}) == {"rows": [], "figure": {"kind": "budgets", "panels": []}}
