"""A net without and with companions: the right runs, what is said of them, and a figure."""

import json
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from deepsup.cli import main
from deepsup.errors import ConfigError, RunError, TrainingError
from deepsup.trainer.config import Config, Phase
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.statistics import error_ratio
from deepsup.trainer.studies._compare import METHODS, compare_methods, configs_of
from deepsup.trainer.studies._pool import Job, run_job


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compare")


@pytest.fixture(scope="module")
def answer(digits: Path, folder: Path) -> dict[str, object]:
    config = Config(data=str(digits), epochs=2, batch_size=30, train_size=150)
    return compare_methods(config, folder, methods=["paper"], seeds=2, rates=(0.003, 0.01))


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
    errors = {method: each["errors"] for method, each in answer["methods"].items()}
    assert answer["ratios"] == {
        f"{ours} / {theirs}": error_ratio(errors[ours], errors[theirs], least=0.5)  # half of one of 100 images
        for ours, theirs in (("DSN-Softmax", "CNN-Softmax"), ("DSN-SVM", "CNN-SVM"), ("DSN-SVM", "CNN-Softmax"))
    }
    assert json.loads((folder / "comparison.json").read_text()) == answer


def test_rates_are_chosen_on_validation_and_the_test_set_is_not_read(answer: dict[str, dict], folder: Path) -> None:
    for method, each in answer["methods"].items():
        found = {}
        for lr in (0.003, 0.01):
            runs = [RunFolder(folder / "search" / f"{method.lower()}-lr{lr:g}-seed{seed}") for seed in range(3)]
            for run in runs:
                assert run.result["error"] is None
                assert (run.config.data.validation, run.config.data.train_size) == (90, 150)
                assert not run.config.run.test
            found[lr] = mean(run.result["validation_error"] for run in runs)
        assert each["lr"] == min(found, key=lambda lr: (found[lr], lr))


def test_a_comparison_goes_on_where_it_was_stopped(answer: dict[str, dict], folder: Path, digits: Path) -> None:
    times = {path: path.stat().st_mtime_ns for path in folder.rglob("result.json")}
    (lost,) = folder.glob("dsn-svm-lr*-seed1/result.json")
    lost.unlink()
    config = Config.from_dict(answer["config"])
    again = compare_methods(config, folder, methods=list(METHODS), seeds=2, rates=(0.003, 0.01))
    assert again["methods"] == answer["methods"]
    assert {p for p, t in times.items() if p.stat().st_mtime_ns != t} == {lost}


def test_by_default_it_trains_what_train_would_train_and_the_same_without_companions(
    digits: Path, tmp_path: Path
) -> None:
    config = Config(data=str(digits), epochs=2, batch_size=60, seed=7, validation=20, tensorboard=False)
    answer = compare_methods(config, tmp_path, seeds=2)
    assert (list(answer["methods"]), answer["seeds"]) == (["CNN-Softmax", "DSN-Softmax"], [7, 8])
    for method, taps in (("CNN-Softmax", ("none",)), ("DSN-Softmax", ("network",))):
        runs = [RunFolder(tmp_path / name) for name in answer["methods"][method]["runs"]]
        assert [run.config for run in runs] == [config.replace(taps=taps, seed=seed) for seed in (7, 8)]


def test_batch_norm_in_place_of_companions(digits: Path, tmp_path: Path) -> None:
    options = {"width": 0.1, "drop": 0.2}
    config = Config(data=str(digits), network="nin-mnist", network_options=options, limit_steps=2, batch_size=20)
    answer = compare_methods(config, tmp_path, seeds=1, methods=["CNN-SVM", "DSN-SVM", "BatchNorm"])
    assert list(answer["ratios"]) == ["DSN-SVM / CNN-SVM", "BatchNorm / CNN-SVM"]
    (run,) = answer["methods"]["BatchNorm"]["runs"]
    plain = configs_of(config, ["CNN-SVM"])["CNN-SVM"]
    normed = plain.replace(network_options={**options, "norm": "batch"})
    assert RunFolder(tmp_path / run).config.to_dict() == normed.replace(tensorboard=False).to_dict()


def test_a_best_rate_on_the_edge_is_said(answer: dict[str, Any]) -> None:
    edges = [note for note in answer["notes"] if "--rates" in note]
    assert len(edges) == 4  # each method has two rates to choose from
    for method, each in answer["methods"].items():
        side = {0.003: "lowest", 0.01: "highest"}[each["lr"]]
        assert f"{method}: lr {each['lr']:g} is the {side} of 2 --rates; the best may lie beyond" in edges


def test_one_grid_of_rates_suits_all_losses() -> None:
    names = ("CNN-Softmax", "DSN-Softmax", "CNN-SVM", "DSN-SVM", "BatchNorm")
    found = configs_of(Config(network="nin-mnist"), names)
    assert [found[name].objective.balance for name in names] == [1.0, 1.0, "softmax", "softmax", 1.0]
    given = Config(network="nin-mnist", balance=0.1)
    assert configs_of(given, names)["DSN-SVM"].objective.balance == 0.1


def test_a_comparison_that_is_stopped_summarises_the_seeds_that_are_done(digits: Path, tmp_path: Path) -> None:
    config = Config(data=str(digits), limit_steps=2, batch_size=60)

    def stop(_: str, done: int, total: int) -> None:
        assert total == 6
        if done == 3:  # one whole seed, and half of the next
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare_methods(config, tmp_path, watch=stop)
    table = json.loads((tmp_path / "comparison.json").read_text())
    assert (table["seeds"], table["planned_seeds"]) == ([0], 3)
    answer = compare_methods(config, tmp_path)
    assert answer["seeds"] == [0, 1, 2]
    assert {method: each["errors"][:1] for method, each in answer["methods"].items()} == {
        method: each["errors"] for method, each in table["methods"].items()
    }


def test_a_divergence_counts_as_guessing(digits: Path, tmp_path: Path) -> None:
    answer = compare_methods(Config(data=str(digits), epochs=1, batch_size=60, lr=1e9), tmp_path, seeds=2)
    assert [each["errors"] for each in answer["methods"].values()] == [[90, 90], [90, 90]]
    assert answer["ratios"]["DSN-Softmax / CNN-Softmax"]["ratio"] == 1
    assert answer["notes"][0] == "CNN-Softmax, seeds 0, 1: diverged, counted as guessing (90 % error); lower the rate"


def test_runs_that_did_not_learn_are_not_recommended(
    digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    words = ["--data", str(digits), "--limit-steps", "1", "--lr", "1e-9", "--batch-size", "60"]
    assert main(["compare", *words, "--seeds", "2", "--out", str(tmp_path / "c")]) == 0
    said = capsys.readouterr()
    assert said.out.count("did not learn (guessing has 90 % error); train longer or raise the rate") == 2
    assert "evaluate" not in said.out
    assert said.err.count("for 4 runs; Ctrl-C keeps what is done") == 1
    assert main(["train", *words, "--out", str(tmp_path / "t")]) == 0
    said = capsys.readouterr()
    assert "it did not learn (guessing has 90 % error); train longer or raise the rate: --epochs, --lr" in said.out
    assert "deepsup inspect" not in said.out


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_the_verb_with_a_figure(jobs: str, digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = ["compare", "--data", str(digits), "--epochs", "1", "--batch-size", "60", "--out", str(tmp_path / "c")]
    words += ["--seeds", "1", "--methods", "paper", "--lr", "0.003"]
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
    assert "one seed says nothing about chance" in text
    assert text.splitlines()[-1] == f"report: {tmp_path / 'c' / 'report.html'}"


def test_what_cannot_be_compared(digits: Path, tmp_path: Path) -> None:
    config = Config(data=str(digits), epochs=1, batch_size=60)
    with pytest.raises(ConfigError, match="seeds=0"):
        compare_methods(config, tmp_path, seeds=0)
    with pytest.raises(ConfigError, match="minutes=-1; expected a number above 0"):
        compare_methods(config, tmp_path, minutes=-1)
    with pytest.raises(ConfigError, match=r"no method 'LSTM'; expected one of: CNN-Softmax, .*BatchNorm, paper"):
        compare_methods(config, tmp_path, methods=["LSTM"])
    with pytest.raises(ConfigError, match="methods=DSN-SVM; expected at least two"):
        compare_methods(config, tmp_path, methods=["DSN-SVM", "DSN-SVM"])
    with pytest.raises(ConfigError, match="BatchNorm for cnn, which has no option norm; expected one of: nin-cifar10,"):
        compare_methods(config, tmp_path, methods=["CNN-Softmax", "BatchNorm"])
    normed = config.replace(network="plain", network_options={"norm": "batch"})
    with pytest.raises(ConfigError, match="BatchNorm beside norm=batch"):
        compare_methods(normed, tmp_path, methods=["CNN-Softmax", "BatchNorm"])
    with pytest.raises(TrainingError, match="diverges at every rate tried"):
        compare_methods(config, tmp_path / "a", seeds=1, rates=(1e9, 2e9))
    with pytest.raises(ConfigError, match="expected learning rates above 0"):
        compare_methods(config, tmp_path, rates=(0.1, 0.0))
    with pytest.raises(ConfigError, match="compare chooses one learning rate"):
        compare_methods(config.replace(phases=(Phase(1, 0.1),)), tmp_path, rates=(0.1, 0.2))
    with pytest.raises(TrainingError, match="batch_size=241 with 240 training images"):  # a mistake is no divergence
        compare_methods(config.replace(batch_size=241), tmp_path / "b")
    with pytest.raises(TrainingError, match="finds no CUDA"):
        compare_methods(config.replace(device="cuda"), tmp_path / "c")


def test_a_divergence_is_kept_and_not_trained_again(digits: Path, tmp_path: Path) -> None:
    config = Config(data=str(digits), epochs=1, batch_size=60, lr=1e9)
    job = Job("CNN-SVM", "lr1e9", config, tmp_path / "run")
    first = run_job(job, 1)
    assert "diverged" in first["failed"]
    assert 0 < first["seconds"] < 60  # they count among those of choosing
    record = tmp_path / "run" / "diverged.json"
    record.write_text(record.read_text().replace('"triangular"', '"triangle"'))  # as an earlier version wrote it
    assert '"anneal": "triangle"' in record.read_text()
    metrics = record.stat().st_mtime_ns
    assert run_job(job, 1) == first
    assert record.stat().st_mtime_ns == metrics
    with pytest.raises(RunError, match="started with another config"):
        run_job(replace(job, config=config.replace(lr=1e8)), 1)
