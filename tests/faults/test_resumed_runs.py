"""A run that is stopped, moved or resumed with other means: the same weights, or a line that says why not."""

import errno
import hashlib
import json
import logging
import os
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from deepsup import Config, train
from deepsup.cli import main
from deepsup.errors import WriteError
from deepsup.io import disk_errors_named
from deepsup.trainer.runs._run import Run

TIMES = {"seconds", "images_per_second"}


def judged(run: Run) -> tuple[list[dict[str, object]], dict[str, object]]:
    records = [{key: value for key, value in record.items() if key not in TIMES} for record in run.metrics]
    return records, {key: value for key, value in run.result.items() if key not in TIMES}


@pytest.mark.parametrize(
    "settings",
    [
        {"anneal": "plateau", "patience": 1},
        {"select": "best"},
        {"phases": [{"epochs": 2, "lr": 0.02}, {"epochs": 3, "lr": 0.01}]},
    ],
    ids=["plateau", "best", "phases"],
)
def test_a_limit_within_an_epoch_judges_nothing(settings: dict, digits: Path, tmp_path: Path) -> None:
    """Six steps are an epoch: the limits end the run within the second and the third."""
    config = Config(data=str(digits), epochs=5, batch_size=30, lr=0.02, validation=60, tensorboard=False, **settings)
    straight = train(config, tmp_path / "straight")
    for limit in (8, 16, None):
        run = train(config.replace(limit_steps=limit), tmp_path / "limited", resume=True)
    assert judged(run) == judged(straight)
    weights = [Run(each.folder).load().state_dict() for each in (run, straight)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_limit_within_the_first_epoch_selects_what_there_is(digits: Path, tmp_path: Path) -> None:
    config = Config(data=str(digits), epochs=2, batch_size=30, validation=60, select="best", limit_steps=3,
                    tensorboard=False)  # fmt: skip
    run = train(config, tmp_path / "run")
    assert run.result["best_epoch"] is None
    assert not (run.checkpoints / "best.pt").exists()
    assert run.load().num_classes == 10


def test_equal_runs_are_equal_files(small: Config, tmp_path: Path) -> None:
    """The order of the metadata in a model's file is not drawn by chance: sha256sum compares two runs."""
    digests = set()
    for number in range(5):
        run = train(small.replace(limit_steps=1), tmp_path / f"{number}")
        digests.add(hashlib.sha256(run.model.read_bytes()).hexdigest())
        with safe_open(run.model, "pt") as file:
            assert set(file.metadata()) == {"deepsup", "sha256"}
        run.load()
    assert len(digests) == 1


def test_a_resume_with_other_threads_says_so_once(
    small: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limits, threads = (4, 8, 12, None), (1, 2, 2, 1)
    for limit, each in zip(limits, threads, strict=True):
        torch.set_num_threads(each)
        try:
            with caplog.at_level(logging.WARNING, "deepsup"):
                caplog.clear()
                run = train(small.replace(limit_steps=limit), tmp_path / "run", resume=True)
        finally:
            torch.set_num_threads(1)
        said = [record.getMessage() for record in caplog.records if "is resumed with threads" in record.getMessage()]
        assert len(said) == (limit in (8, None))
    assert [change["changed"] for change in run.changes] == [{"threads": [1, 2]}, {"threads": [2, 1]}]
    assert [change["step"] for change in run.changes] == [4, 12]
    assert run.environment["threads"] == 1
    assert any("changes" in record for record in run.metrics)


@pytest.mark.parametrize(
    "words",
    [["inspect"], pytest.param(["exits", "--batch-sizes", "1"], marks=pytest.mark.slow), ["report"]],
    ids=lambda words: words[0],
)
def test_a_full_disk_advises_what_a_verb_has(
    words: list[str], small: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(small.replace(limit_steps=2), tmp_path / "run")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    assert main([words[0], str(run.folder), *words[1:]]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith("No space left on device; earlier files are untouched; free some space, then try again")
    assert main(["train", "--out", str(run.folder), "--resume", "--limit-steps", "4"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("free some space, then continue with --resume")


def test_what_to_do_crosses_processes() -> None:
    """A study gets its errors from other processes."""
    import pickle

    with pytest.raises(WriteError) as caught, disk_errors_named(Path("a")):
        raise OSError(errno.ENOSPC, "full")
    caught.value.again = "give the same command again"
    there = pickle.loads(pickle.dumps(caught.value))
    assert str(there) == str(caught.value)
    assert json.dumps(str(there)).endswith('then give the same command again"')
