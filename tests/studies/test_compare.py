"""The four methods side by side: the right runs, chosen on validation, the right statistics, and a figure."""

import json
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import pytest

from deepsup.cli import main
from deepsup.config import Config, Phase
from deepsup.errors import ConfigError, RunError, TrainingError
from deepsup.runs.folder import RunFolder
from deepsup.studies.compare import METHODS, compare, paired
from deepsup.studies.pool import Job, run_job


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compare")


@pytest.fixture(scope="module")
def answer(digits: Path, folder: Path) -> dict[str, object]:
    config = Config(data=str(digits), epochs=2, batch_size=30, train_size=150)
    return compare(config, folder, seeds=2, rates=(0.003, 0.01))


def test_the_four_methods_with_their_errors(answer: dict[str, dict], folder: Path) -> None:
    assert list(answer["methods"]) == ["CNN-Softmax", "DSN-Softmax", "CNN-SVM", "DSN-SVM"]
    for method, each in answer["methods"].items():
        runs = [RunFolder(folder / f"{method.lower()}-lr{each['lr']:g}-seed{seed}") for seed in (0, 1)]
        assert each["errors"] == [run.result["error"] for run in runs]
        assert each["mean"] == pytest.approx(mean(each["errors"]))
        assert each["deviation"] == pytest.approx(stdev(each["errors"]))
        assert each["lr"] in (0.003, 0.01)
        loss, supervised = METHODS[method]
        for seed, run in enumerate(runs):
            config = run.config
            assert (config.objective.loss, config.supervision.taps) == (loss, ("network",) if supervised else ("none",))
            assert (config.data.train_size, config.data.validation) == (150, 0)
            assert (config.run.seed, config.optimizer.lr) == (seed, each["lr"])
        assert set(each["companions"]) == ({"conv1", "conv2"} if supervised else set())
    base = answer["methods"]["CNN-Softmax"]["mean"]
    gain = answer["methods"]["DSN-SVM"]["gain"]
    assert gain == pytest.approx(100 * (base - answer["methods"]["DSN-SVM"]["mean"]) / base)
    assert json.loads((folder / "comparison.json").read_text()) == answer


def test_rates_are_chosen_on_validation_and_the_test_set_is_not_read(answer: dict[str, dict], folder: Path) -> None:
    for method, each in answer["methods"].items():
        found = {}
        for lr in (0.003, 0.01):
            run = RunFolder(folder / "search" / f"{method.lower()}-lr{lr:g}-seed0")
            assert run.result["error"] is None
            assert (run.config.data.validation, run.config.data.train_size) == (90, 150)
            assert not run.config.run.test
            found[lr] = run.result["validation_error"]
        assert each["lr"] == min(found, key=lambda lr: (found[lr], lr))


def test_a_comparison_goes_on_where_it_was_stopped(answer: dict[str, dict], folder: Path, digits: Path) -> None:
    times = {path: path.stat().st_mtime_ns for path in folder.rglob("result.json")}
    (lost,) = folder.glob("dsn-svm-lr*-seed1/result.json")
    lost.unlink()
    again = compare(Config.from_dict(answer["config"]), folder, seeds=2, rates=(0.003, 0.01))
    assert again["methods"] == answer["methods"]
    assert {p for p, t in times.items() if p.stat().st_mtime_ns != t} == {lost}


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


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_the_verb_with_a_figure(jobs: str, digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = ["compare", "--data", str(digits), "--epochs", "1", "--batch-size", "60", "--out", str(tmp_path / "c")]
    words += ["--seeds", "1", "--rates", "0.003"]
    assert main([*words, "--jobs", jobs, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(answer["methods"]) == set(METHODS)
    assert answer["methods"]["DSN-SVM"]["deviation"] is None
    assert Path(answer["figure"]).read_bytes().startswith(b"\x89PNG")
    page = Path(answer["report"]).read_text()
    assert all(method in page for method in METHODS)
    assert "linear probes" in page
    assert (tmp_path / "c" / "methods.svg").read_text().lstrip().startswith("<?xml")
    assert main(words) == 0  # nothing is left to train
    text = capsys.readouterr().out
    assert "CNN-Softmax" in text
    assert "one seed is not conclusive" in text
    assert text.splitlines()[-1] == f"report: {tmp_path / 'c' / 'report.html'}"


def test_what_cannot_be_compared(digits: Path, tmp_path: Path) -> None:
    config = Config(data=str(digits), epochs=1, batch_size=60)
    with pytest.raises(ConfigError, match="seeds=0"):
        compare(config, tmp_path, seeds=0)
    with pytest.raises(TrainingError, match="diverges at every rate tried"):
        compare(config, tmp_path / "a", seeds=1, rates=(1e9, 2e9))
    with pytest.raises(ConfigError, match="expected learning rates above 0"):
        compare(config, tmp_path, rates=(0.1, 0.0))
    with pytest.raises(ConfigError, match="compare chooses one learning rate"):
        compare(config.replace(phases=(Phase(1, 0.1),)), tmp_path)
    with pytest.raises(TrainingError, match="batch_size=240 with 192 training images"):  # a mistake is no divergence
        compare(config.replace(batch_size=240), tmp_path / "b", rates=(0.1, 0.2))
    with pytest.raises(TrainingError, match="finds no CUDA"):
        compare(config.replace(device="cuda"), tmp_path / "c")


def test_a_divergence_is_kept_and_not_trained_again(digits: Path, tmp_path: Path) -> None:
    config = Config(data=str(digits), epochs=1, batch_size=60, lr=1e9)
    job = Job("CNN-SVM", "lr1e9", config, tmp_path / "run")
    first = run_job(job, 1)
    assert "diverged" in first["failed"]
    record = tmp_path / "run" / "diverged.json"
    record.write_text(record.read_text().replace('"triangular"', '"triangle"'))  # as an earlier version wrote it
    assert '"anneal": "triangle"' in record.read_text()
    metrics = record.stat().st_mtime_ns
    assert run_job(job, 1) == first
    assert record.stat().st_mtime_ns == metrics
    with pytest.raises(RunError, match="started with another config"):
        run_job(replace(job, config=config.replace(lr=1e8)), 1)
