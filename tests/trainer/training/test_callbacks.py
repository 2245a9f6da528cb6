"""Callbacks are called in order, once per step and epoch, and after the run has recorded what they see."""

import re
from pathlib import Path
from typing import Any

import pytest

from deepsup.trainer.config import Config
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.runs._train import train
from deepsup.trainer.training import Callback
from deepsup.trainer.training import _checkpoint as checkpoint
from deepsup.trainer.training import _memory as memory


class Journal(Callback):
    """Notes every call, and what the run folder has at that moment."""

    def __init__(self, calls: list[Any], name: str = "") -> None:
        self.calls, self.name = calls, name

    def started(self, training: Any) -> None:
        self.run = RunFolder(training.folder)
        self.calls.append(("started", self.name, training.iteration))

    def step_ended(self, training: Any) -> None:
        self.calls.append(("step", self.name, training.iteration))

    def epoch_ended(self, training: Any, record: dict[str, Any]) -> None:
        saved = checkpoint.all_steps(self.run.checkpoints)
        self.calls.append(("epoch", self.name, training.iteration, len(self.run.metrics), len(saved)))
        assert self.run.metrics[-1] == record  # measured and recorded before

    def ended(self, training: Any) -> None:
        self.calls.append(("ended", self.name, training.iteration))


def test_every_call_in_its_order(small: Config, tmp_path: Path) -> None:
    """24 steps in 3 epochs; a checkpoint at every eighth, written after the epoch has been recorded."""
    calls: list[Any] = []
    train(small.replace(checkpoint_steps=8, keep=9), tmp_path / "run", callbacks=[Journal(calls)])
    expected: list[Any] = [("started", "", 0)]
    for step in range(1, 25):
        expected += [("epoch", "", step, step // 8, step // 8 - 1)] if step % 8 == 0 else []
        expected.append(("step", "", step))
    assert calls == [*expected, ("ended", "", 24)]


def test_several_are_called_in_the_order_of_their_list(small: Config, tmp_path: Path) -> None:
    calls: list[Any] = []
    train(small, tmp_path / "run", callbacks=[Journal(calls, "a"), Journal(calls, "b")])
    assert [call[1] for call in calls] == ["a", "b"] * (len(calls) // 2)


def test_what_one_adds_to_a_record_the_next_one_sees(small: Config, tmp_path: Path) -> None:
    seen: list[Any] = []

    class Add(Callback):
        def epoch_ended(self, _training: Any, record: dict[str, Any]) -> None:
            record["mine"] = record["epoch"] + 1

    class See(Callback):
        def epoch_ended(self, _training: Any, record: dict[str, Any]) -> None:
            seen.append(record["mine"])

    train(small, tmp_path / "run", callbacks=[Add(), See()])
    assert seen == [1, 2, 3]


def test_the_example_of_the_docs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "training.md").read_text()
    (code,) = re.findall(
        r"^```python\n(import deepsup\nfrom deepsup.trainer.training.*?)^```", page, re.MULTILINE | re.DOTALL
    )
    monkeypatch.chdir(tmp_path)
    exec(code.replace("epochs=2", "epochs=2, train_size=60, batch_size=30"), {"__name__": "example"})
    assert re.fullmatch(r"epoch [01]: \d+\.\d\d % after 4 steps\n", capsys.readouterr().out)


@pytest.mark.parametrize("asked", [False, True])
def test_malloc_is_changed_only_when_asked(small: Config, tmp_path: Path, asked: bool) -> None:
    inside: list[int] = []

    class Look(Callback):
        def started(self, _training: Any) -> None:
            inside.append(memory._within)

    train(small, tmp_path / "run", callbacks=[Look()], keep_memory=asked)
    assert inside == [int(asked)]
