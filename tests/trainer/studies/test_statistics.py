"""Ratios and differences of errors over seeds, against values computed by hand."""

from math import exp, log

import pytest

from deepsup.trainer.studies._comparison_table import compared, ratio_text
from deepsup.trainer.studies._statistics import chance_error, error_ratio, has_learned, paired


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
        "pairs": 1,
        "lower": 1,
        "p": 1.0,
    }
    assert error_ratio([1.0, 2.0], [2.0, 4.0])["interval"] == pytest.approx([0.5, 0.5])
    assert error_ratio([0.0, 1.0], [1.0, 1.0], least=0.5)["ratio"] == pytest.approx(exp(log(0.5) / 2))
    assert error_ratio([0.0], [0.0])["ratio"] == 1


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
