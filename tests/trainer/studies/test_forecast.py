"""How long a comparison takes, and what of it fits into a time."""

import logging
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from deepsup.errors import ConfigError
from deepsup.trainer.config import Config
from deepsup.trainer.studies import _forecast as forecast
from deepsup.trainer.studies._compare import compare_methods, in_time
from deepsup.trainer.studies._engine import Engine
from deepsup.trainer.studies._forecast import Cost, fit, measure_cost
from deepsup.trainer.studies._pool import Job


def test_fewer_seeds_then_fewer_epochs() -> None:
    def seconds(seeds: int, epochs: int) -> float:
        return 10.0 * seeds + 5.0 * seeds * epochs

    assert fit(seconds, 6, 20, 5, 700) == (6, 20)
    assert fit(seconds, 6, 20, 5, 500) == (4, 20)
    assert fit(seconds, 6, 20, 5, 219) == (2, 19)
    assert fit(seconds, 6, 20, 5, 100) == (2, 8)
    assert fit(seconds, 6, 20, 5, 69) is None
    assert fit(seconds, 1, 20, 5, 36) == (1, 5)


def test_the_cost_of_a_run_by_hand() -> None:
    cost = Cost(start=2.0, step=0.5, image=0.01, steps=8, test_images=100, validation_images=50)
    assert cost.of(Config(epochs=3, validate_every=0)) == pytest.approx(2 + 0.5 * 24 + 0.01 * (100 + 50))
    assert cost.of(Config(epochs=4, validate_every=2, test_every=4, limit_steps=10)) == pytest.approx(
        2 + 0.5 * 10 + 0.01 * (2 * 100 + 3 * 50)
    )


def test_the_inspection_of_two_nets_is_planned(monkeypatch: pytest.MonkeyPatch, small: Config, tmp_path: Path) -> None:
    jobs = [Job(name, "a", small, tmp_path / name) for name in ("CNN-Softmax", "DSN-Softmax")]
    costs = [(jobs[0], Cost(1.0, 0, 0, 8, 100, 0)), (jobs[1], Cost(1.0, 0, 0, 8, 100, 0, inspection=5.0))]
    workers = SimpleNamespace(engine=Engine(), stream=lambda *_: costs)
    assert forecast.Forecast(workers, jobs).seconds(jobs) == 2.0
    planned = forecast.Forecast(workers, jobs, inspected=2)
    assert planned.seconds(jobs) == 2.0 + 2 * 5.0
    assert planned.seconds([]) == 0.0


def test_a_few_steps_are_measured_and_nothing_is_kept(small: Config, tmp_path: Path) -> None:
    began = time.perf_counter()
    cost = measure_cost(Job("CNN-Softmax", "a", small.replace(validation=20), tmp_path / "run"), 1)
    assert 0 < cost.step < time.perf_counter() - began
    assert (cost.steps, cost.test_images, cost.validation_images) == (8, 100, 20)  # 220 images, batches of 30
    assert cost.start > 0 < cost.image
    assert cost.inspection == pytest.approx(cost.image * 5 * (cost.steps * 30 + 100), rel=0.2)  # two layers
    assert not (tmp_path / "run").exists()
    measure_cost(Job("CNN-Softmax", "a", small.replace(lr=1e9), tmp_path / "run"), 1)  # a divergence is for the run


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run is believed to take 2 seconds, and 1 more per epoch."""

    def cost(job: Job, *_: object) -> Cost:
        return Cost(2.0, 1.0 / 8, 0.0, 8, 100, 0)

    monkeypatch.setattr(forecast, "measure_cost", cost)


@pytest.mark.usefixtures("slow")
def test_a_comparison_keeps_to_its_minutes(small: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "deepsup")
    config = small.replace(epochs=8, train_size=60)
    answer = compare_methods(config, tmp_path / "a", seeds=5, minutes=70 / 60)  # 20 seconds per seed, 63 usable
    assert answer["seeds"] == [0, 1, 2]
    assert caplog.messages == [
        "--minutes 1.16667: 3 seeds instead of 5", "about 1 minute for 6 runs; Ctrl-C keeps what is done",
    ]  # fmt: skip
    caplog.clear()
    answer = compare_methods(config, tmp_path / "b", seeds=5, minutes=0.5)  # two seeds of 2 (2 + epochs) seconds in 27
    assert (answer["seeds"], answer["config"]["epochs"]) == ([0, 1], 4)
    assert caplog.messages[0] == "--minutes 0.5: 2 seeds instead of 5 and 4 epochs instead of 8"
    caplog.clear()
    again = compare_methods(
        config, tmp_path / "b", seeds=3, minutes=5
    )  # goes on with the epochs that it has begun with
    assert (again["seeds"], again["config"]["epochs"]) == ([0, 1, 2], 4)
    assert [each["errors"][:2] for each in again["methods"].values()] == [
        each["errors"] for each in answer["methods"].values()
    ]
    with pytest.raises(ConfigError, match=r"--minutes 0\.1 is too short for 2 seeds, even with 2 of 8 epochs; give "):
        compare_methods(config, tmp_path / "c", seeds=5, minutes=0.1)
    assert not (tmp_path / "c").exists()
    caplog.clear()
    compare_methods(config.replace(epochs=4), tmp_path / "b", seeds=2)
    assert caplog.messages == []  # nothing is left: nothing is forecast


def test_no_seed_is_begun_that_would_end_too_late(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "deepsup")
    groups = [[Job(method, "a", Config(seed=seed), Path(f"{method}{seed}")) for method in "ab"] for seed in range(4)]
    began = time.monotonic() - 59
    late = SimpleNamespace(seconds=lambda _: 2.0)
    assert list(in_time(groups, late, 1, began)) == groups[0] + groups[1]
    assert caplog.messages == ["1 minutes are over after 2 of 4 seeds; the same command goes on"]
    assert len(list(in_time(groups, late, None, began))) == 8
    done = SimpleNamespace(seconds=lambda _: 0.0)
    assert len(list(in_time(groups, done, 1, began))) == 8  # what is there already takes no time
