"""Which run is started or gone on with, under which name and config, also after a divergence."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from deepsup.cli import main
from deepsup.errors import DeepsupError, DivergedError, RunError
from deepsup.trainer.config import Config
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.runs._start_or_resume import default_name
from deepsup.trainer.runs._train import train
from deepsup.trainer.training import Callback
from deepsup.trainer.training import _checkpoint as checkpoint


class Poison(Callback):
    """Makes a weight infinite after a step, as too high a rate would."""

    def __init__(self, at: int) -> None:
        self.at = at

    def step_ended(self, training: Any) -> None:
        if training.iteration == self.at:
            with torch.no_grad():
                next(training.net.parameters()).fill_(torch.inf)


@pytest.fixture
def lost(small: Config, tmp_path: Path) -> RunFolder:
    """A run that has diverged at step 10, with a checkpoint at step 9."""
    with pytest.raises(DivergedError):
        train(small, tmp_path / "lost", callbacks=[Poison(10)])
    return RunFolder(tmp_path / "lost")


def test_a_divergence_says_how_to_go_on_and_that_works(
    small: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DivergedError, match="training diverged at epoch 1, step 2") as caught:
        train(small, tmp_path / "lost", callbacks=[Poison(10)])
    command = f"deepsup train --out {tmp_path / 'lost'} --resume --lr 0.001"
    rate = small.optimizer.lr * (
        1 - (10.5 / 24 - small.optimizer.warmup) / (1 - small.optimizer.warmup)
    )  # amid the 11th of 24 steps
    told = f"lower lr (now {rate:.3g}) or alpha (0.5); {command} goes on from step 9"
    assert str(caught.value).endswith(told)
    assert main(command.split()[1:]) == 0
    assert f"going on with {tmp_path / 'lost'}\n" in capsys.readouterr().err
    assert RunFolder(tmp_path / "lost").config == small.replace(lr=0.001)


def test_gone_on_with_a_lower_rate_it_is_what_the_checkpoint_gives_at_that_rate(lost: RunFolder, small: Config) -> None:
    """The oracle: the same checkpoint in a folder whose config says the lower rate from the start."""
    lower = small.replace(lr=0.001, alpha=(0.1,))
    twin = RunFolder(shutil.copytree(lost.folder, lost.folder.with_name("twin")))
    (twin.folder / "diverged.json").unlink()
    (twin.folder / "config.yaml").write_text(lower.to_yaml())
    last = checkpoint.all_steps(twin.checkpoints)[-1]
    checkpoint.save(last, {**checkpoint.load(last), "config": lower.to_dict()})
    ours, theirs = train(lower, lost.folder, resume=True), train(lower, twin.folder, resume=True)
    weights, expected = load_file(ours.model), load_file(theirs.model)
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    assert ours.result["error"] == theirs.result["error"]


def test_the_run_says_what_was_changed(lost: RunFolder, small: Config) -> None:
    lower = small.replace(lr=0.001)
    said = lost.diverged["failed"]
    run = train(lower, lost.folder, resume=True)
    change = {"epoch": 1, "step": 9, "changed": {"lr": [0.01, 0.001]}, "why": said}
    assert run.changes == [change]
    assert [record.get("changes") for record in run.metrics] == [None, [change], None]
    assert run.config.optimizer.lr == 0.001
    assert run.diverged is None


def test_a_run_that_was_changed_and_killed_goes_on(lost: RunFolder, small: Config) -> None:
    """Killed before the next checkpoint: the last one still has the old rate."""
    lower = small.replace(lr=0.001)

    class Crash(Callback):
        def step_ended(self, _training: Any) -> None:
            raise RuntimeError("crash")

    with pytest.raises(RuntimeError, match="crash"):
        train(lower, lost.folder, resume=True, callbacks=[Crash()])
    with pytest.raises(RunError, match=r"another config \(lr 0\.001 -> 0\.002\)"):  # sound again: nothing may change
        train(small.replace(lr=0.002), lost.folder, resume=True)
    assert train(lower, lost.folder, resume=True).finished


def test_after_a_divergence_nothing_else_may_change(lost: RunFolder, small: Config) -> None:
    with pytest.raises(RunError, match=r"another config \(epochs 3 -> 4\)"):
        train(small.replace(lr=0.001, epochs=4), lost.folder, resume=True)


def test_the_same_rate_diverges_again(lost: RunFolder, small: Config) -> None:
    """Gone on with as it was, a run is still the run it was: nothing is recorded as changed."""
    assert train(small, lost.folder, resume=True).changes == []


class Scattered(nn.Module):
    """Has no layer with as many outputs as there are classes."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.conv1, self.fc = nn.Conv2d(1, 2, 3, stride=3), nn.Linear(162, 2 * num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(self.conv1(images).relu().flatten(1)).unflatten(1, (-1, 2)).sum(2)


def test_a_mistake_is_no_divergence(small: Config, tmp_path: Path) -> None:
    config = small.replace(network="test_begin:Scattered", taps=("conv1",), norms=True)
    with pytest.raises(DeepsupError, match="w_out is unknown") as caught:
        train(config, tmp_path / "run")
    assert not isinstance(caught.value, DivergedError)
    assert "diverged" not in str(caught.value)
    assert RunFolder(tmp_path / "run").diverged is None


CHANGES: list[dict[str, Any]] = [
    {}, {"epochs": 3}, {"epochs": 4}, {"lr": 0.1}, {"alpha": (0.1, 0.2)}, {"network_options": {"drop": 0.1}},
    {"seed": 1}, {"taps": ("none",)}, {"taps": ("conv1",)}, {"taps": ()}, {"loss": "hinge"}, {"data": "mnist"},
    {"data": "/a/photos"}, {"data": "/b/photos"}, {"network": "a:net"}, {"network": "a:Net"}, {"limit_steps": 3},
]  # fmt: skip


def test_other_configs_have_other_names_and_the_same_one_the_same() -> None:
    names = [default_name(Config(**change)) for change in CHANGES]
    assert len(set(names)) == len(CHANGES)
    assert names == [default_name(Config(**change)) for change in CHANGES]
    loss = Config().objective.loss
    assert names[0] == f"cnn-mnist-mini-dsn-{loss}-seed0"
    assert names[6] == f"cnn-mnist-mini-dsn-{loss}-seed1"
    assert names[1].startswith(f"{names[0]}-")
    assert "photos" in default_name(Config(data="/a/photos"))


def test_a_changed_setting_trains_another_run(
    small: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", "--data", small.data.source, "--batch-size", "60", "--limit-steps", "1", "--json"]
    folders = []
    for more in ([], ["--epochs", "3"], ["--epochs", "4"]):
        assert main([*words, *more]) == 0
        folders.append(json.loads(capsys.readouterr().out)["run"])
    assert len(set(folders)) == 3
    assert all(Path(folder).parent == Path("runs") for folder in folders)
    assert main(words) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert main([*words, "--resume"]) == 0  # its own name, found again
    captured = capsys.readouterr()
    assert json.loads(captured.out)["run"] == folders[0]
    assert f"{folders[0]} has ended; nothing is left to train\n" in captured.err


def test_resume_starts_a_run_that_is_not_there(
    small: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data", small.data.source, "--batch-size", "60", "--limit-steps", "2", "--out", str(tmp_path / "run")]
    assert main(["train", "--resume", *words]) == 0
    assert f"starting {tmp_path / 'run'}\n" in capsys.readouterr().err
    assert RunFolder(tmp_path / "run").result["steps"] == 2
    assert main(["train", "--resume", "--out", str(tmp_path / "run"), "--limit-steps", "3"]) == 0
    assert f"going on with {tmp_path / 'run'}\n" in capsys.readouterr().err
    assert RunFolder(tmp_path / "run").result["steps"] == 3
    assert train(small.replace(limit_steps=1), tmp_path / "new", resume=True).finished
