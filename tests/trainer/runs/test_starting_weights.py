"""Start from another run's trunk: every weight but the last layer's is copied, and nothing of the companions."""

import shutil
from pathlib import Path

import pytest
import torch

from deepsup.errors import RunError
from deepsup.trainer.config import Config
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.runs._model import read_model
from deepsup.trainer.runs._run import Run
from deepsup.trainer.runs._start_or_resume import default_name
from deepsup.trainer.runs._train import RunTraining, train
from deepsup.trainer.training._distributed import Processes

BASE = Config(
    network="plain", network_options={"depth": 3, "widths": [4, 4, 4], "norm": "batch"}, train_size=40, batch_size=10,
    epochs=1, tensorboard=False, gradient_every=0, test=False,
)  # fmt: skip


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(BASE, tmp_path_factory.mktemp("first") / "run")


def begun(config: Config, folder: Path) -> RunTraining:
    return RunTraining(config, RunFolder(folder), Processes())


def test_all_weights_but_the_last_layers_are_copied(first: Run, tmp_path: Path) -> None:
    config = BASE.replace(seed=5)
    drawn = begun(config, tmp_path / "a").training.net.state_dict()
    found = begun(config.replace(start_from=str(first.folder)), tmp_path / "b").training.net.state_dict()
    _, held = read_model(first)
    assert any("running_mean" in name for name in found)
    for name, tensor in found.items():
        fresh = name.startswith(("trunk.scores.", "heads."))
        assert torch.equal(tensor, drawn[name] if fresh else held[f"net.{name}"]), name
    assert not torch.equal(found["trunk.conv1.weight"], drawn["trunk.conv1.weight"])
    assert not torch.equal(found["trunk.scores.weight"], held["net.trunk.scores.weight"])


def test_the_run_says_what_it_started_from(first: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(first.folder.parent)
    run = train(BASE.replace(seed=1, start_from="run"), tmp_path / "next")
    assert run.config.network.start_from == str(first.folder.resolve())  # it may be read from elsewhere
    assert len(run.result["start"]) == 64
    assert "start" not in first.result
    assert default_name(run.config) != default_name(BASE.replace(seed=1))


def test_a_stopped_run_goes_on_to_the_same_weights(first: Run, tmp_path: Path) -> None:
    config = BASE.replace(start_from=str(first.folder), epochs=2)
    whole = train(config, tmp_path / "whole")
    train(config.replace(limit_steps=3), tmp_path / "parts")
    parts = train(config, tmp_path / "parts", resume=True)
    (_, a), (_, b) = read_model(whole), read_model(parts)
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_run_goes_on_when_the_one_that_it_started_from_is_gone_or_moved(first: Run, tmp_path: Path) -> None:
    """Its weights were taken long ago; other weights in its place are refused."""
    place = tmp_path / "start"
    train(BASE, place)
    config = BASE.replace(start_from=str(place), epochs=2)
    straight = train(config, tmp_path / "straight")
    run = train(config.replace(limit_steps=2), tmp_path / "run")
    place.rename(tmp_path / "away")
    train(config.replace(limit_steps=3), run.folder, resume=True)
    train(config.replace(limit_steps=4, start_from=str(tmp_path / "away")), run.folder, resume=True)
    train(BASE.replace(seed=9), place)
    with pytest.raises(RunError, match=r"was begun with other weights than .*start holds now"):
        train(config, run.folder, resume=True)
    shutil.rmtree(place)
    train(config, run.folder, resume=True)
    assert run.result["start"] == straight.result["start"]
    ours, theirs = run.load().state_dict(), straight.load().state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"network": "cnn", "network_options": {}}, "is a run of the network plain; expected one of cnn"),
        ({"network_options": {"depth": 3, "widths": [4, 8, 4], "norm": "batch"}},
         r"its conv2\.bias is \[4\], that of the network to train \[8\]; expected the same"),
        ({"network_options": {"depth": 3, "widths": [4, 4, 4]}}, r"its norm1\.\S+ is \[4\].* not there; expected"),
    ],
)  # fmt: skip
def test_another_network_is_refused(changes: dict[str, object], message: str, first: Run, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=message):
        train(BASE.replace(start_from=str(first.folder), **changes), tmp_path / "run")


def test_no_such_run_and_an_unfinished_one(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"start_from=.*nowhere: .*nowhere is no run"):
        train(BASE.replace(start_from=str(tmp_path / "nowhere")), tmp_path / "run")
    RunFolder(tmp_path / "begun").create(BASE, {})
    with pytest.raises(RunError, match=r"start_from=.*begun has no model\.safetensors yet"):
        train(BASE.replace(start_from=str(tmp_path / "begun")), tmp_path / "run")
