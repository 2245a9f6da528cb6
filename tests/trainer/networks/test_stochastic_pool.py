"""Stochastic pooling against its definition: probabilities a / sum(a), a draw a window, the expectation at the end."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from deepsup.errors import NetworkError
from deepsup.trainer.networks import StochasticPool2d


def windows(side: int, k: int, stride: int) -> list[range]:
    """The rows (or columns) of each window, in ceil mode, clipped to the map."""
    number = math.ceil((side - k) / stride) + 1
    return [range(i * stride, min(i * stride + k, side)) for i in range(number)]


def slow_expectation(x: Tensor, k: int, stride: int) -> Tensor:
    rows, columns = windows(x.shape[2], k, stride), windows(x.shape[3], k, stride)
    out = []
    for image in x:
        for plane in image:
            for ys in rows:
                for xs in columns:
                    cells = torch.stack([plane[y, c] for y in ys for c in xs])
                    total = cells.sum()
                    out.append((cells / total * cells).sum() if total > 0 else total * 0)
    return torch.stack(out).reshape(*x.shape[:2], len(rows), len(columns))


@pytest.mark.parametrize(("height", "width", "k", "stride"), [(6, 6, 3, 2), (7, 5, 3, 2), (4, 4, 2, 2), (5, 5, 3, 3)])
def test_evaluation_is_the_expectation(height: int, width: int, k: int, stride: int) -> None:
    x = torch.randn(2, 3, height, width, dtype=torch.float64).relu()
    x[0, 0] = 0  # whole windows without a positive cell
    x.requires_grad_()
    fast, slow = StochasticPool2d(k, stride).eval()(x), slow_expectation(x, k, stride)
    torch.testing.assert_close(fast, slow)
    weights = torch.randn_like(fast)
    ours, oracle = (torch.autograd.grad((y * weights).sum(), x)[0] for y in (fast, slow))
    torch.testing.assert_close(ours, oracle)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 4), st.data())
def test_a_draw_is_a_cell_of_its_window_and_takes_all_the_gradient(
    height: int, width: int, k: int, data: st.DataObject
) -> None:
    stride = data.draw(st.integers(1, k))
    if math.ceil((min(height, width) - k) / stride) + 1 < 1:
        return
    # all different and positive, so that a value names its cell
    x = (torch.randperm(2 * height * width).double() + 1).reshape(1, 2, height, width).requires_grad_()
    out = StochasticPool2d(k, stride)(x)
    weights = torch.randn_like(out)
    (gradient,) = torch.autograd.grad((out * weights).sum(), x)
    expected = torch.zeros_like(x)
    for plane in range(2):
        for i, ys in enumerate(windows(height, k, stride)):
            for j, xs in enumerate(windows(width, k, stride)):
                (cell,) = [(y, c) for y in ys for c in xs if x[0, plane, y, c] == out[0, plane, i, j]]
                expected[0, plane, cell[0], cell[1]] += weights[0, plane, i, j]
    torch.testing.assert_close(gradient, expected)


def test_cells_are_drawn_in_proportion() -> None:
    """40,000 draws of one window: each frequency within 4.5 of its own deviations of a / sum(a)."""
    window = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 0.0], [5.0, 6.0, 7.0]])
    n = 40_000
    drawn = StochasticPool2d(3, 2)(window.expand(n, 1, 3, 3)).flatten()
    for value in window.unique():
        p = (value / window.sum()).item()
        frequency = (drawn == value).double().mean().item()
        assert abs(frequency - p) <= 4.5 * math.sqrt(p * (1 - p) / n), value
    assert drawn.mean().item() == pytest.approx((window.square().sum() / window.sum()).item(), abs=0.05)


def test_overlapping_windows_draw_independently() -> None:
    """Two windows share a column of cells; both draw from it as often as p * p says, within 4.5 deviations."""
    maps = torch.ones(1, 1, 3, 5)
    maps[..., 2] = 2.0
    n, p = 40_000, 6 / 12
    drawn = StochasticPool2d(3, 2)(maps.expand(n, 1, 3, 5))[:, 0, 0] == 2.0
    both = drawn.all(1).double().mean().item()
    assert abs(both - p * p) <= 4.5 * math.sqrt(p * p * (1 - p * p) / n)


def test_zero_and_negative_windows_give_zero() -> None:
    layer, x = StochasticPool2d(2), torch.zeros(2, 1, 4, 4)
    assert not layer(x).any()
    assert not layer.eval()(x).any()
    assert not layer(x - 3).any()
    assert not layer.train()(x - 3).any()


def test_shapes_are_those_of_max_pooling_in_ceil_mode() -> None:
    for side in range(2, 20):
        x = torch.rand(1, 1, side, side)
        for layer in (StochasticPool2d(3, 2), StochasticPool2d(3, 2).eval()):
            assert layer(x).shape == F.max_pool2d(x, 3, 2, ceil_mode=True).shape


def test_bad_windows_are_named() -> None:
    for layer in (StochasticPool2d(3, 2), StochasticPool2d(3, 2).eval()):
        with pytest.raises(NetworkError, match=r"got a tensor of shape \(1, 1, 1, 5\); expected .* at least 2"):
            layer(torch.zeros(1, 1, 1, 5))
        with pytest.raises(NetworkError, match=r"expected \[B, C, H, W\]"):
            layer(torch.zeros(1, 5, 5))
    with pytest.raises(NetworkError, match="stride of StochasticPool2d is 4, its windows 3 wide"):
        StochasticPool2d(3, 4)
    with pytest.raises(NetworkError, match="kernel_size of StochasticPool2d is 0"):
        StochasticPool2d(0)
