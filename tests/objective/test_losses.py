"""Each loss against an explicit loop over samples and classes, value and gradient, in float64."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from deepsup.errors import ObjectiveError
from deepsup.objective._losses import LOSSES, find_loss

Row = list[float]


def loop_multiclass(s: Row, y: int, power: int) -> tuple[float, Row]:
    value, gradient = 0.0, [0.0] * len(s)
    for k in range(len(s)):
        slack = 1 - (s[y] - s[k])
        if k != y and slack > 0:
            value += slack**power
            slope = 2 * slack if power == 2 else 1.0
            gradient[k] += slope
            gradient[y] -= slope
    return value, gradient


def loop_one_vs_rest(s: Row, y: int, power: int) -> tuple[float, Row]:
    value, gradient = 0.0, [0.0] * len(s)
    for k in range(len(s)):
        t = 1 if k == y else -1
        slack = 1 - t * s[k]
        if slack > 0:
            value += slack**power
            gradient[k] -= t * (2 * slack if power == 2 else 1.0)
    return value, gradient


def loop_softmax(s: Row, y: int) -> tuple[float, Row]:
    top = max(s)
    exps = [math.exp(v - top) for v in s]
    total = sum(exps)
    gradient = [e / total - (1.0 if k == y else 0.0) for k, e in enumerate(exps)]
    return math.log(total) - (s[y] - top), gradient


LOOPS: dict[str, Callable[[Row, int], tuple[float, Row]]] = {
    "hinge": lambda s, y: loop_multiclass(s, y, 1),
    "squared_hinge": lambda s, y: loop_multiclass(s, y, 2),
    "hinge_ovr": lambda s, y: loop_one_vs_rest(s, y, 1),
    "squared_hinge_ovr": lambda s, y: loop_one_vs_rest(s, y, 2),
    "softmax": loop_softmax,
}


@st.composite
def batches(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Scores and labels of any shape, with ties, margins met exactly, batches of one class, K = 1."""
    b, k = draw(st.integers(1, 6)), draw(st.integers(1, 8))
    halves = st.integers(-6, 6).map(lambda n: n / 2)  # differences of exactly 0 and 1 are frequent
    values = draw(st.sampled_from([halves, st.floats(-30, 30, allow_nan=False)]))
    scores = [[draw(values) for _ in range(k)] for _ in range(b)]
    one = draw(st.booleans())
    first = draw(st.integers(0, k - 1))
    labels = [first if one else draw(st.integers(0, k - 1)) for _ in range(b)]
    return torch.tensor(scores, dtype=torch.float64), torch.tensor(labels)


@pytest.mark.parametrize("name", sorted(LOSSES))
@given(batch=batches())
@settings(max_examples=150, deadline=None)
def test_loss_equals_the_loop(name: str, batch: tuple[Tensor, Tensor]) -> None:
    scores, labels = batch
    scores.requires_grad_()
    losses = LOSSES[name](scores, labels)
    losses.sum().backward()
    expected = [LOOPS[name](row, y) for row, y in zip(scores.tolist(), labels.tolist(), strict=True)]
    assert losses.shape == labels.shape
    np.testing.assert_allclose(losses.detach(), [value for value, _ in expected], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(scores.grad, [gradient for _, gradient in expected], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_yardsticks_of_zero_scores_and_of_the_best_constant(classes: int) -> None:
    zeros, labels = torch.zeros(classes, classes), torch.arange(classes)
    for name in ("hinge", "squared_hinge"):
        assert LOSSES[name](zeros, labels).tolist() == [classes - 1] * classes
    for name in ("hinge_ovr", "squared_hinge_ovr"):
        assert LOSSES[name](zeros, labels).tolist() == [classes] * classes
    assert LOSSES["softmax"](zeros, labels).mean() == pytest.approx(math.log(classes))
    constant = torch.full((classes, classes), 2 / classes - 1, dtype=torch.float64)  # the same score everywhere
    mean = LOSSES["squared_hinge_ovr"](constant, labels).mean()
    assert mean == pytest.approx(4 * (classes - 1) / classes, rel=1e-12)


@pytest.mark.parametrize("name", ["hinge", "squared_hinge"])
def test_a_margin_met_exactly_costs_nothing(name: str) -> None:
    scores = torch.tensor([[2.0, 1.0, 1.0]], requires_grad=True)
    loss = LOSSES[name](scores, torch.tensor([0]))
    loss.sum().backward()
    assert loss.item() == 0
    assert scores.grad is not None
    assert scores.grad.tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("power", [1, 2])
def test_one_vs_rest_agrees_with_scikit_learn(power: int) -> None:
    """LinearSVC's objective, evaluated at its own solution, is 1/2 |w|^2 + C times our one-vs-rest loss."""
    svm = pytest.importorskip("sklearn.svm", reason="scikit-learn comes with the estimator's extra")
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(60, 4)), np.tile([0, 1, 2], 20)
    loss_name = {1: "hinge", 2: "squared_hinge"}[power]
    model = svm.LinearSVC(loss=loss_name, C=0.1, tol=1e-10, max_iter=1_000_000, fit_intercept=False).fit(x, y)
    ours = LOSSES[f"{loss_name}_ovr"]

    def objective(w: Tensor) -> Tensor:
        return 0.5 * w.square().sum() + 0.1 * ours(torch.tensor(x) @ w.T, torch.tensor(y)).sum()

    solution = torch.tensor(model.coef_)
    best = objective(solution)
    for _ in range(50):  # convex: the solution of theirs must be the minimum of ours
        assert objective(solution + 1e-2 * torch.randn_like(solution)) > best


def test_unknown_loss_names_the_nearest() -> None:
    with pytest.raises(ObjectiveError, match=r"loss='squared_hing' is not known; did you mean 'squared_hinge'"):
        find_loss("squared_hing")
