"""What is shown while something trains: a bar with the time that is left, a line per epoch, each notice once."""

import io
import logging
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.progress import Progress

from deepsup import Config
from deepsup.cli import app, main, progress
from deepsup.cli.progress import Bar, _clock


def test_the_bar_says_how_long_the_epoch_and_the_training_take(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    out = io.StringIO()
    shown = Progress(console=Console(file=out, width=200), auto_refresh=False)
    bar = Bar(shown, epochs=3)
    training = SimpleNamespace(
        iteration=0, epoch=0, step=0, batches=range(10), config=Config(epochs=3), net=SimpleNamespace(dense=False),
        folder=None,
    )  # fmt: skip
    bar.started(training)
    for iteration in range(1, 15):
        now[0] += 2.0
        training.iteration = iteration
        bar.step_ended(training)
    task = shown.tasks[0]
    assert (task.description, task.completed, task.total) == ("epoch 2/3", 4, 10)
    assert task.fields["left"] == "0:12 left in the epoch, 0:32 in all"
    training.iteration = 30  # the loop has gone on to an epoch that there is not
    bar.step_ended(training)
    assert (task.description, task.completed) == ("epoch 3/3", 10)
    record = {"epoch": 2, "loss": 0.5, "error": 1.0, "companion_errors": {}, "lr": 0.1, "images_per_second": 10.0}
    bar.epoch_ended(training, record)
    assert out.getvalue() == "epoch 3/3  loss 0.500  train error 1.00 %  lr 0.1  10 images/s\n"


@pytest.mark.parametrize(("seconds", "said"), [(0.4, "0:00"), (65.4, "1:05"), (3600, "1:00:00"), (-1, "0:00")])
def test_durations(seconds: float, said: str) -> None:
    assert _clock(seconds) == said


def test_a_notice_is_said_once_per_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(app, "_verbs", {})
    monkeypatch.setattr(app, "_app", app.SubcommandApp())

    @app.verb("tell")
    def tell() -> None:
        for name in ("a", "b", "a"):
            logging.getLogger("deepsup").warning("%s has no test part", name)

    for _ in range(2):
        assert main(["tell"]) == 0
        assert capsys.readouterr().err == "a has no test part\nb has no test part\n"
