"""Each schedule at 0, 0.5 and 1, as a number and as a tensor, and what a bad one is answered."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from deepsup.errors import ObjectiveError
from deepsup.objective import Objective
from deepsup.objective._schedules import factor_at, find_schedule
from deepsup.supervision import DeeplySupervised, supervise

VALUES = {
    "constant": (1, 1, 1),
    "paper": (0.1, 0.05, 0),
    "linear": (1, 0.5, 0),
    "cut": (1, 0, 0),
    "cut:0.75": (1, 1, 0),
    "cut:0.5": (1, 0, 0),
    "cut:0": (0, 0, 0),
}


@pytest.mark.parametrize("name", VALUES)
def test_factor_at_start_middle_and_end(name: str) -> None:
    schedule = find_schedule(name)
    for progress, expected in zip((0.0, 0.5, 1.0), VALUES[name], strict=True):
        assert factor_at(schedule, progress) == expected
        assert float(factor_at(schedule, torch.tensor(progress, dtype=torch.float64))) == expected


def test_a_callable_is_a_schedule() -> None:
    assert factor_at(find_schedule(lambda progress: progress**2), 0.5) == 0.25


@pytest.mark.parametrize("progress", [-0.01, 1.01, math.nan, math.inf, torch.tensor(2.0)])
def test_progress_outside_of_training(progress: Any) -> None:
    with pytest.raises(ObjectiveError, match=r"progress=.*; expected a fraction of training within 0 and 1"):
        factor_at(find_schedule("linear"), progress)


@pytest.mark.parametrize("given", [math.nan, math.inf, -0.1, None, "1", torch.tensor(math.nan)])
def test_a_schedule_that_gives_no_factor(given: Any) -> None:
    with pytest.raises(ObjectiveError, match=r"the schedule gives .* at progress 0\.5; expected a number"):
        factor_at(lambda _: given, 0.5)


@pytest.mark.parametrize("name", ["cut:", "cut:x", "cut:2", "cut:-1", "paperr", 3])
def test_unknown_schedule(name: Any) -> None:
    with pytest.raises(ObjectiveError, match=r"expected|did you mean"):
        find_schedule(name)


def small_net() -> DeeplySupervised:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    return supervise(model, at=["1"], num_classes=3, example=torch.randn(2, 4))


def test_an_objective_that_knows_the_steps_counts_them() -> None:
    """The same losses as with progress=step / steps; looking at validation data, or without gradients, is no step."""
    net, x, y = small_net(), torch.randn(5, 4), torch.arange(5) % 3
    counting, told = Objective(net, steps=4), Objective(net)
    for step in range(6):  # past the end: alpha stays 0
        expected = told(net(x), y, progress=min(1.0, step / 4))
        net.eval()
        counting(net(x), y)
        net.train()
        with torch.no_grad():
            counting(net(x), y)
        assert counting.step == step
        assert counting(net(x), y).total == expected.total
    assert counting(net(x), y, progress=0.5).total == told(net(x), y, progress=0.5).total
    assert counting.step == 6, "a given progress counts no step"


def test_a_counting_objective_goes_on_where_it_is_set() -> None:
    net, x, y = small_net(), torch.randn(5, 4), torch.arange(5) % 3
    objective = Objective(net, steps=8)
    objective.step = 6
    assert objective(net(x), y).companions["1"] == Objective(net)(net(x), y, progress=0.75).companions["1"]
    assert repr(objective) == "Objective(softmax, 1 companion, alpha 0.5, linear, step 7 of 8)"


@pytest.mark.parametrize("steps", [0, -3, 1.5, True, "10"])
def test_a_number_of_steps_that_is_none(steps: Any) -> None:
    with pytest.raises(ObjectiveError, match=r"steps=.*; expected a whole number of at least 1"):
        Objective(small_net(), steps=steps)


def test_a_schedule_without_progress_says_what_to_give() -> None:
    net = small_net()
    with pytest.raises(ObjectiveError, match=r"Objective\(net, steps=\.\.\.\), progress=step / steps"):
        Objective(net)(net(torch.randn(5, 4)), torch.arange(5) % 3)
