"""Each schedule at 0, 0.5 and 1, as a number and as a tensor, and what a bad one is answered."""

import math
from typing import Any

import pytest
import torch

from deepsup.errors import ObjectiveError
from deepsup.objective.schedules import factor_at, find_schedule

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
