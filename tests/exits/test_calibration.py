"""Calibration: temperatures and searches beside brute force, exits that do not pay, goals, and bad validation sets."""

import itertools
import time

import numpy as np
import pytest
import torch
from nets import CLASSES, LEARNED, ConvNet, images
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from deepsup import Companion, DeeplySupervised, DeepsupError, calibrate, supervise
from deepsup.exits._stage_times import StageTimes, multiply_adds
from deepsup.exits._thresholds import ExitJudgement, ThresholdSearch, fitted_temperature


def test_the_temperature_undoes_what_scores_were_multiplied_by() -> None:
    scores = torch.randn(4000, 5)
    labels = torch.distributions.Categorical(logits=scores).sample()
    assert fitted_temperature(scores * 3, labels) == pytest.approx(3, rel=0.1)
    grid = [float(nn.functional.cross_entropy(scores * 3 / t, labels)) for t in np.geomspace(0.05, 20, 200)]
    found = fitted_temperature(scores * 3, labels)
    assert float(nn.functional.cross_entropy(scores * 3 / found, labels)) <= min(grid) + 1e-6
    for unit in (1e-4, 1e4):  # a companion that was trained for a few steps has tiny scores
        assert fitted_temperature(scores * 3 * unit, labels) == pytest.approx(found * unit, rel=1e-4)
    assert fitted_temperature(torch.zeros(9, 5), torch.arange(9) % 5) == 1


def random_judgement(samples: int = 60) -> ExitJudgement:
    generator = np.random.default_rng(0)
    sure = generator.random((2, samples))
    right = generator.random((3, samples)) < np.vstack([sure, np.full(samples, 0.9)])
    return ExitJudgement(("a", "b"), sure, right)


@pytest.mark.parametrize("thresholds", [(None, None), (0.5, None), (None, 0.7), (0.8, 0.2), (0.0, 0.0)])
def test_departures_by_a_loop_over_the_samples(thresholds: tuple[float | None, ...]) -> None:
    judged = random_judgement()
    exits, losses, gains = [], 0, 0
    for sample in range(60):
        exit_ = 2
        for number in (1, 0):
            threshold = thresholds[number]
            if threshold is not None and judged.confidences[number, sample] > threshold:
                exit_ = number
        exits.append(exit_)
        losses += bool(judged.right[2, sample] and not judged.right[exit_, sample])
        gains += bool(not judged.right[2, sample] and judged.right[exit_, sample])
    got = judged.departures(judged.exits(thresholds))
    assert (got.losses, got.gains) == (losses, gains)
    assert got.reached.tolist() == pytest.approx([sum(each >= number for each in exits) / 60 for number in range(3)])
    assert judged.exits(thresholds).tolist() == exits


TIMES = StageTimes(8, (1, 2, 4, 8), [[1, 2, 4, 8]] * 3, [[0.1, 0.2, 0.4, 0.8]] * 2, plain=24.0)


def test_the_predicted_time_by_hand() -> None:
    assert TIMES.cost([1, 0.5, 0.25], (0.5, 0.5)) == pytest.approx((8 + 0.8 + 4 + 0.4 + 2) / 24)
    assert TIMES.cost([1, 1, 0.25], (None, 0.5)) == pytest.approx((8 + 8 + 0.8 + 2) / 24)


@pytest.mark.parametrize("most", [0.4, 0.6, 0.75, 1.0])
def test_the_search_finds_what_brute_force_finds(most: float) -> None:
    judged = random_judgement()
    every = ThresholdSearch(judged, TIMES.cost, judged.taps)
    points = [every.point(thresholds) for thresholds in itertools.product(*every.levels)]
    best = min(p.departures.cautious_increase for p in points if p.cost <= most)
    search = ThresholdSearch(judged, TIMES.cost, judged.taps).run()
    point = search.most_accurate(most)
    assert point is not None
    assert point.cost <= most
    assert point.departures.cautious_increase == pytest.approx(best)
    for price, point in search.by_price.items():
        least = min(p.cost + price * p.departures.cautious_increase / 100 for p in points)
        assert point.cost + price * point.departures.cautious_increase / 100 == pytest.approx(least)
    frontier = search.frontier()
    assert all(a.cost > b.cost and a.departures.increase < b.departures.increase
               for a, b in itertools.pairwise(frontier))  # fmt: skip


def test_prices_are_judged_on_samples_that_did_not_choose_the_thresholds() -> None:
    """Companions that are right by chance look good on the samples that chose the thresholds, and only there."""
    generator = np.random.default_rng(1)
    sure = generator.random((2, 400))
    right = np.vstack([generator.random((2, 400)) < 0.6, np.ones((1, 400), bool)])
    judged = ExitJudgement(("a", "b"), sure, right)
    assert ThresholdSearch(judged, TIMES.cost, judged.taps).run().cross_fitted(1.0).thresholds == (None, None)
    perfect = ExitJudgement(("a", "b"), sure, np.ones((3, 400), bool))
    assert ThresholdSearch(perfect, TIMES.cost, perfect.taps).run().cross_fitted(0.0).thresholds[0] == 0.0


def test_an_exit_that_is_not_allowed_stays_off() -> None:
    judged = random_judgement()
    assert all(thresholds[0] is None for thresholds in ThresholdSearch(judged, TIMES.cost, ["b"]).run().seen)


class Slow(nn.Module):
    """A layer that takes as long as a large one."""

    def forward(self, features: Tensor) -> Tensor:
        time.sleep(0.001)
        return features


def easy(slow_first: bool = False) -> tuple[DeeplySupervised, Tensor, Tensor]:
    """A net whose companion is as good as its output, with the slow layer before or behind the tap."""
    a, b, c = nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, CLASSES)
    layers = [Slow(), a, b, c] if slow_first else [a, b, Slow(), c]
    tap = "2" if slow_first else "1"
    companion = Companion(rate=1.0)  # whose weights can be written to
    net = supervise(nn.Sequential(*layers), [tap], num_classes=CLASSES, example=torch.zeros(2, 4), companion=companion)
    with torch.no_grad():
        a.weight.copy_(torch.eye(4) * 9)
        a.bias.zero_()
        for layer in (c, net.head(tap).classifier):
            layer.weight.copy_(torch.eye(4)[:CLASSES] * 3)
            layer.bias.zero_()
    labels = torch.arange(120) % CLASSES
    return net.eval(), torch.eye(4)[labels] + 0.2 * torch.rand(120, 4), labels


def test_an_exit_in_front_of_the_slow_part_is_used_and_fast() -> None:
    net, inputs, labels = easy()
    early = calibrate(net, (inputs, labels), max_error_increase=1.0, batch_size=(1, 8))
    assert early.active == ("1",)
    assert (early(inputs).exits == 0).float().mean() > 0.9
    assert min(early.calibration["speedup"].values()) > 2
    assert early.calibration["error"] <= early.calibration["plain_error"] + 1
    assert early.calibration["curve"]


def test_an_exit_behind_the_slow_part_does_not_pay_and_is_switched_off() -> None:
    net, inputs, labels = easy(slow_first=True)
    early = calibrate(net, (inputs, labels), max_error_increase=100, batch_size=8)
    assert early.active == ()
    assert early.calibration["speedup"] == {"8": 1.0}
    assert early.calibration["error"] == early.calibration["plain_error"]


def test_max_cost_and_a_data_loader() -> None:
    net, inputs, labels = easy()
    early = calibrate(net, DataLoader(TensorDataset(inputs, labels), batch_size=50), max_cost=0.6, batch_size=8)
    assert early.calibration["speedup"]["8"] > 1 / 0.7
    with pytest.raises(DeepsupError, match=r"max_cost=0\.0001 cannot be reached"):
        calibrate(net, (inputs, labels), max_cost=0.0001, batch_size=8)


def test_multiply_adds_by_hand() -> None:
    net, inputs, labels = easy()
    early = calibrate(net, (inputs, labels), max_error_increase=1.0, batch_size=1)
    assert multiply_adds(early, (inputs,)) == ([16, 12], [12], 28)
    left = float((early(inputs).exits == 0).float().mean())
    assert early.calibration["multiply_adds"] == pytest.approx((16 + 12 + (1 - left) * 12) / 28)


@pytest.mark.parametrize(
    ("validation", "said"),
    [
        ((images(4), torch.zeros(4, dtype=torch.long)), "validation has one class only, 0"),
        ((images(4), torch.arange(3)), r"labels Tensor \[3\] of torch.int64; expected at least one sample"),
        ((images(0), torch.arange(0)), "expected at least one sample"),
        ((images(4), torch.tensor([0, 1, 2, 3])), "labels from 0 to 3; expected class numbers from 0 to 2"),
        ((images(4), torch.tensor([-1, 1, 2, 0])), "labels from -1 to 2"),
        ([], "validation is a list without samples"),
        (7, "validation is a int without samples"),
        ([images(4)], "validation is a list without samples"),
        ((images(4) / 0, torch.tensor([0, 1, 2, 0])), "the scores of 'conv1' are not finite for some validation"),
    ],
)
def test_bad_validation_sets(validation: object, said: str) -> None:
    net = supervise(ConvNet(), ["conv1"], num_classes=CLASSES, example=images(2), companion=LEARNED)
    with pytest.raises(DeepsupError, match=said):
        calibrate(net, validation)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_error_increase": 0.1, "max_cost": 0.5}, "expected one of them"),
        ({"max_error_increase": -1}, "max_error_increase=-1; expected percentage points"),
        ({"max_cost": 0}, "max_cost=0; expected a fraction"),
        ({"max_cost": float("nan")}, "max_cost=nan"),
        ({"batch_size": 0}, "batch_size=0; expected a whole number of at least 1"),
        ({"batch_size": ()}, r"batch_size=\(\)"),
        ({"batch_size": "32"}, "batch_size='32'"),
    ],
)
def test_bad_goals(settings: dict[str, object], said: str) -> None:
    net = supervise(ConvNet(), ["conv1"], num_classes=CLASSES, example=images(2), companion=LEARNED)
    with pytest.raises(DeepsupError, match=said):
        calibrate(net, (images(3), torch.arange(3)), **settings)  # type: ignore[arg-type]


def test_stripped_nets_are_refused() -> None:
    net = supervise(ConvNet(), ["conv1"], num_classes=CLASSES, example=images(2))
    net.strip()
    with pytest.raises(DeepsupError, match="has no companions"):
        calibrate(net, (images(3), torch.arange(3)))
