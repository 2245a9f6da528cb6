"""Gradient statistics: those of finite differences, at the steps they should be, and the same through a stop."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from deepsup.insight._gradients import GradientStatistics
from deepsup.trainer.config import Config
from deepsup.trainer.runs._train import train


def loss_of(net: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(net(images), labels)


def by_finite_differences(net: nn.Module, weight: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor]) -> np.ndarray:
    """The gradient, one weight after the other, from the loss alone."""
    step, flat, found = 1e-5, weight.data.view(-1), []
    for place in range(len(flat)):
        values = []
        for sign in (1, -1):
            flat[place] += sign * step
            values.append(loss_of(net, *batch).item())
            flat[place] -= sign * step
        found.append((values[0] - values[1]) / (2 * step))
    return np.array(found)


def test_statistics_are_those_of_finite_differences_averaged_over_steps() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 2), nn.Tanh(), nn.Flatten(), nn.Linear(8, 3)).double()
    statistics, expected = GradientStatistics(net), []
    assert list(statistics.weights) == ["0", "3"]
    for _ in range(3):
        batch = torch.randn(4, 1, 3, 3).double(), torch.randint(0, 3, (4,))
        expected.append([by_finite_differences(net, net[place].weight, batch) for place in (0, 3)])
        net.zero_grad()
        loss_of(net, *batch).backward()
        statistics.note()
    found = statistics.means(statistics.sums)
    for index, layer in enumerate(("0", "3")):
        steps = [gradients[index] for gradients in expected]
        assert found["gradient_means"][layer] == pytest.approx(np.mean([g.mean() for g in steps]), abs=1e-8)
        assert found["gradient_variances"][layer] == pytest.approx(np.mean([g.var() for g in steps]), rel=1e-5)
        assert found["gradient_norms"][layer] == pytest.approx(np.mean([np.linalg.norm(g) for g in steps]), rel=1e-5)


def test_a_layer_without_a_gradient_is_left_out() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    statistics = GradientStatistics(net)
    net[1](torch.randn(3, 2)).sum().backward()
    statistics.note()
    assert list(statistics.means(statistics.sums)["gradient_norms"]) == ["1"]


def test_a_run_records_them_a_layer_and_epoch_and_they_change_nothing(small: Config, tmp_path: Path) -> None:
    runs = {every: train(small.replace(epochs=2, gradient_every=every), tmp_path / str(every)) for every in (0, 1, 10)}
    for record in runs[1].metrics + runs[10].metrics:
        assert list(record["gradient_variances"]) == ["conv1", "conv2", "fc1", "scores"]
        assert all(value > 0 for value in record["gradient_norms"].values())
    assert runs[0].metrics[0]["gradient_means"] == {}
    assert len({run.metrics[-1]["loss"] for run in runs.values()}) == 1
