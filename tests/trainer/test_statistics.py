"""Ratios and differences of errors over seeds, against values computed by hand, by enumeration and by scipy."""

from itertools import permutations, product
from math import exp, log, sqrt
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from deepsup.errors import ConfigError
from deepsup.trainer.statistics import (
    chance_error,
    equivalence,
    error_ratio,
    excludes,
    has_learned,
    holm,
    least_error,
    mean_test,
    paired,
    sign_test,
)
from deepsup.trainer.studies._comparison_table import compared, ratio_text

PAIRS = st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=8)
CHANCES = st.lists(st.floats(0, 1), max_size=8)


def test_the_ratio_is_a_geometric_mean_with_students_interval_on_the_logarithms() -> None:
    found = error_ratio([1.0, 3.0, 4.0, 2.0], [2.0, 6.0, 4.0, 8.0])
    assert found["ratio"] == pytest.approx(0.5)  # of 1/2, 1/2, 1, 1/4
    # the logarithms lie 0, 0, log 2 and -log 2 off their mean: deviation .565952; t of 3 degrees at 97.5 % is 3.182446
    half = 3.182446 * 0.565952 / 2
    assert found["interval"] == pytest.approx([0.5 * exp(-half), 0.5 * exp(half)], rel=1e-5)
    assert (found["pairs"], found["lower"]) == (4, 3)
    assert found["p"] == pytest.approx(2 / 8)  # three of three that differ


@pytest.mark.parametrize(
    ("lower", "higher", "p"), [(6, 0, 2 / 64), (5, 1, 2 * (1 + 6) / 64), (3, 3, 1.0), (0, 0, 1.0), (0, 5, 2 / 32)]
)
def test_the_sign_test_is_exact(lower: int, higher: int, p: float) -> None:
    ours, theirs = [1.0] * lower + [2.0] * higher + [3.0], [2.0] * lower + [1.0] * higher + [3.0]
    assert error_ratio(ours, theirs)["p"] == pytest.approx(p)


def test_one_pair_equal_pairs_and_errors_of_zero() -> None:
    assert error_ratio([3.0], [6.0]) == {
        "ratio": pytest.approx(0.5),
        "interval": None,
        "p_ratio": None,
        "pairs": 1,
        "lower": 1,
        "equal": 0,
        "p": 1.0,
    }
    assert error_ratio([1.0, 2.0], [2.0, 4.0])["interval"] == pytest.approx([0.5, 0.5])
    assert error_ratio([0.0, 1.0], [1.0, 1.0], least=0.5)["ratio"] == pytest.approx(exp(log(0.5) / 2))
    assert error_ratio([0.0], [0.0])["ratio"] == 1


@pytest.mark.parametrize("lower", range(8))
@pytest.mark.parametrize("higher", range(8))
def test_the_sign_test_counts_all_ways_in_which_coins_can_fall(lower: int, higher: int) -> None:
    falls = [sum(fall) for fall in product((0, 1), repeat=lower + higher)]
    as_uneven = [abs(2 * heads - lower - higher) >= abs(lower - higher) for heads in falls]
    assert sign_test(lower, higher) == pytest.approx(mean(as_uneven))


def test_an_error_of_zero_counts_as_half_an_image_and_smaller_ones_too() -> None:
    found = error_ratio([0.0, 0.001, 2.0], [0.0, 0.002, 2.0], least_error(5000))
    assert (found["lower"], found["equal"], found["p"], found["ratio"]) == (0, 3, 1.0, 1.0)
    assert error_ratio([0.0], [1.0], least_error(1000))["ratio"] == pytest.approx(0.05)


@given(PAIRS)
def test_swapping_the_methods_inverts_the_ratio(pairs: list[tuple[float, float]]) -> None:
    ours, theirs = zip(*pairs, strict=True)
    one, other = error_ratio(ours, theirs), error_ratio(theirs, ours)
    assert one["ratio"] == pytest.approx(1 / other["ratio"])
    assert (one["equal"], one["p"]) == (other["equal"], other["p"])
    assert one["lower"] + other["lower"] + one["equal"] == len(pairs)
    if one["interval"] is None:
        assert other["interval"] is one["p_ratio"] is None
    else:
        assert one["interval"] == pytest.approx([1 / end for end in reversed(other["interval"])])
        assert one["p_ratio"] == pytest.approx(other["p_ratio"])
        assert one["interval"][0] <= one["ratio"] <= one["interval"][1]


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=8), st.sampled_from([0.9, 0.95]))
def test_the_interval_and_p_of_a_mean_are_those_of_scipy(values: list[float], confidence: float) -> None:
    found = mean_test(values, confidence)
    if found["error"] == 0:
        assert max(values) - min(values) < 1e-7
        return
    test = stats.ttest_1samp(values, 0)
    assert found["p"] == pytest.approx(test.pvalue, rel=1e-6)
    assert found["interval"] == pytest.approx(list(test.confidence_interval(confidence)), rel=1e-6, abs=1e-9)


@given(PAIRS, st.floats(1.01, 3))
def test_methods_are_equivalent_where_the_90_percent_interval_lies_within_the_bounds(
    pairs: list[tuple[float, float]], bound: float
) -> None:
    ours, theirs = zip(*pairs, strict=True)
    found = equivalence(ours, theirs, bound)
    if len(pairs) == 1:
        assert found["interval"] is found["p"] is found["equivalent"] is None
        return
    low, high = found["interval"]
    assert found["equivalent"] == (found["p"] <= 0.05)
    if min(abs(low * bound - 1), abs(high / bound - 1)) > 1e-6:  # not on the edge itself
        assert found["equivalent"] == (1 / bound < low and high < bound)


def test_equivalence_is_two_one_sided_tests() -> None:
    ours, theirs = [5.0, 5.2, 4.9, 5.1, 5.3], [5.1, 5.1, 5.0, 5.0, 5.4]
    logs = [log(a / b) for a, b in zip(ours, theirs, strict=True)]
    above = stats.ttest_1samp(logs, -log(1.1), alternative="greater").pvalue
    below = stats.ttest_1samp(logs, log(1.1), alternative="less").pvalue
    found = equivalence(ours, theirs, 1.1)
    assert found["p"] == pytest.approx(max(above, below))
    assert found["equivalent"]
    assert not equivalence(ours, [2 * each for each in theirs], 1.1)["equivalent"]
    assert equivalence([2.0, 4.0], [2.0, 4.0], 1.1)["p"] == 0  # no deviation: the mean alone decides
    assert equivalence([2.0, 4.0], [1.0, 2.0], 1.1)["p"] == 1


@pytest.mark.parametrize("bound", [1.0, 0.9, 0.0, float("nan"), float("inf")])
def test_a_bound_that_bounds_nothing_is_refused(bound: float) -> None:
    with pytest.raises(ConfigError, match=r"bound=.*expected a factor above 1, such as 1\.1"):
        equivalence([1.0, 2.0], [1.0, 2.0], bound)


@given(CHANCES)
def test_holm_is_the_step_down_procedure(ps: list[float]) -> None:
    corrected = holm(ps)
    assert all(p <= each <= 1 for p, each in zip(ps, corrected, strict=True))
    assert all(a <= b for p, a in zip(ps, corrected, strict=True) for q, b in zip(ps, corrected, strict=True) if p < q)
    for level in (0.01, 0.05, 0.3):
        rejected, left = set[int](), sorted(range(len(ps)), key=lambda place: ps[place])
        while left and min(1.0, ps[left[0]] * len(left)) <= level:  # the step-down, as Holm has it
            rejected.add(left.pop(0))
        assert {place for place, each in enumerate(corrected) if each <= level} == rejected


def test_holm_does_not_depend_on_the_order() -> None:
    ps = [0.04, 0.01, 0.03, 0.5]
    for order in permutations(range(4)):
        assert holm([ps[place] for place in order]) == [holm(ps)[place] for place in order]
    assert holm(ps) == pytest.approx([0.09, 0.04, 0.09, 0.5])


def test_what_an_interval_leaves_out() -> None:
    assert [excludes(each, 1) for each in ([0.2, 0.9], [1.1, 3.0], [0.9, 1.0], [0.5, 2.0], None)] == [
        True, True, False, False, False,
    ]  # fmt: skip
    logs = [log(0.5), log(0.6), log(0.4)]
    ratio = error_ratio([5.0, 6.0, 4.0], [10.0, 10.0, 10.0])
    assert excludes(ratio["interval"], 1) == (abs(mean(logs)) > 4.302653 * stats.tstd(logs) / sqrt(3))
    assert excludes(ratio["interval"], 1) == (ratio["p_ratio"] < 0.05)


def test_the_interval_of_wild_errors_stays_above_zero() -> None:
    low, high = error_ratio([5.0, 6.0, 5.0], [20.0, 90.0, 7.0])["interval"]
    assert 0 < low < 1 < high


def test_paired_differences_with_students_interval() -> None:
    found = paired([1.0, 2.0, 3.0, 4.5], [1.5, 2.0, 4.0, 5.0])
    assert found["mean"] == pytest.approx(-0.5)
    # deviation of (-.5, 0, -1, -.5) is .408248; t of 3 degrees at 97.5 % is 3.182446
    assert found["interval"] == pytest.approx(
        [-0.5 - 3.182446 * 0.408248 / 2, -0.5 + 3.182446 * 0.408248 / 2], rel=1e-5
    )
    assert found["p"] == pytest.approx(0.0917, abs=1e-4)  # t = 2.449490 of 3 degrees
    assert paired([1.0], [2.0]) == {"mean": -1.0, "interval": None, "p": None}
    assert paired([1.0, 1.0], [1.0, 1.0])["p"] == 1
    assert paired([1.0, 2.0], [2.0, 3.0])["p"] == 0


def test_near_chance_is_not_learned() -> None:
    assert [chance_error(classes) for classes in (2, 4, 10)] == [50, 75, 90]
    assert [has_learned(error, 2) for error in (30, 44, 46, 50)] == [True, True, False, False]
    assert [has_learned(error, 10) for error in (57.4, 80, 85, 90)] == [True, True, False, False]
    assert [has_learned(error, 100) for error in (60, 93, 97.9, 98.1, 99)] == [True, True, True, False, False]


def test_a_divergence_counts_as_guessing_and_is_said() -> None:
    table = compared({"CNN-Softmax": [None, 86.0, 10.0], "DSN-Softmax": [5.0, 5.0, 5.0]}, [3, 4, 5], 10, 1000)
    assert table["methods"]["CNN-Softmax"]["errors"] == [90, 86, 10]
    assert table["ratios"]["DSN-Softmax / CNN-Softmax"] == error_ratio([5.0, 5.0, 5.0], [90.0, 86.0, 10.0], 0.05)
    assert table["notes"] == [
        "CNN-Softmax, seed 3: diverged, counted as guessing (90 % error); lower the rate",
        "CNN-Softmax, seed 4: did not learn (guessing has 90 % error); train longer or raise the rate",
    ]


def test_a_ratio_in_words() -> None:
    assert ratio_text(error_ratio([2.0] * 6, [4.0] * 6)) == (
        "0.50 times the error, 95 % interval 0.50 to 0.50, lower in 6 of 6 seeds (sign test p = 0.031)"
    )
    assert ratio_text(error_ratio([2.0], [4.0])) == "0.50 times the error; one seed says nothing about chance"
