"""A training -> a live display on standard error; plain lines where there is no terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from deepsup.trainer.training import Callback

if TYPE_CHECKING:
    from deepsup.trainer.training import Training


class Display(Callback):
    """Shows nothing; remembers the run folder from the start of the training on."""

    folder: Path | None = None

    def started(self, training: Training) -> None:
        """Note the folder."""
        self.folder = training.folder


class Lines(Display):
    """One line per epoch, and a sign of life in long ones."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs
        self.written = time.monotonic()

    def step_ended(self, training: Training) -> None:
        """Write a line if the last one is ten seconds old."""
        if time.monotonic() - self.written > 10 and training.step:
            self.write(f"epoch {training.epoch + 1}/{self.epochs}  step {training.step}/{len(training.batches)}")

    def write(self, line: str) -> None:
        """Write one line."""
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
        self.written = time.monotonic()

    def epoch_ended(self, training: Training, record: dict[str, Any]) -> None:
        """Write the line of an epoch."""
        self.write(f"epoch {record['epoch'] + 1}/{self.epochs}  {summary_of(record, training.net.dense)}")


class Bar(Display):
    """A bar over the steps of an epoch, with the time that is left; a line per epoch stays above it."""

    def __init__(self, progress: Progress, epochs: int) -> None:
        self.progress, self.epochs = progress, epochs
        self.task = progress.add_task("", total=None, left="")
        self.first, self.began = 0, 0.0

    def started(self, training: Training) -> None:
        """Note where and when the training starts: it may have been resumed."""
        super().started(training)
        self.first, self.began = training.iteration, time.monotonic()
        self.progress.update(self.task, description=f"epoch {training.epoch + 1}/{self.epochs}")

    def step_ended(self, training: Training) -> None:
        """Move the bar, and say how long the epoch and the training will take."""
        steps, iteration = len(training.batches), training.iteration
        epoch, step = (iteration - 1) // steps + 1, (iteration - 1) % steps + 1
        last = min(steps * self.epochs, training.config.run.limit_steps or steps * self.epochs)
        each = (time.monotonic() - self.began) / max(1, iteration - self.first)
        left = f"{_clock(each * (steps - step))} left in the epoch, {_clock(each * (last - iteration))} in all"
        self.progress.update(
            self.task, description=f"epoch {epoch}/{self.epochs}", total=steps, completed=step, left=left
        )

    def epoch_ended(self, training: Training, record: dict[str, Any]) -> None:
        """Write the line of an epoch."""
        line = f"epoch {record['epoch'] + 1}/{self.epochs}  {summary_of(record, training.net.dense)}"
        self.progress.console.print(line, markup=False, highlight=False, soft_wrap=True)


def _clock(seconds: float) -> str:
    """Return a duration as a clock shows it.

    >>> _clock(65.4), _clock(3600)
    ('1:05', '1:00:00')
    """
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def summary_of(record: dict[str, Any], dense: bool = False) -> str:
    """Return one line about an epoch: loss, errors, learning rate, speed.

    dense: whether the errors in training are wrong pixels, and the others 100 % minus the mean IoU.
    """
    what = "wrong pixels" if dense else "train error"
    layers = " ".join(f"{tap} {error:.1f}" for tap, error in record["companion_errors"].items())
    seen = f"  validation {record['validation_error']:.2f} %" if "validation_error" in record else ""
    seen += f"  test {record['test_error']:.2f} %" if "test_error" in record else ""
    return (
        f"loss {record['loss']:.3f}  {what} {record['error']:.2f} %{f' ({layers})' if layers else ''}{seen}  "
        f"lr {record['lr']:.2g}  {record['images_per_second']:,.0f} images/s"
    )


@contextmanager
def training_display(epochs: int) -> Iterator[Display]:
    """Give a callback that shows one training."""
    console = Console(stderr=True)
    if os.environ.get("RANK", "0") != "0":  # under torchrun one process speaks for all
        yield Display()
        return
    if not console.is_terminal:
        yield Lines(epochs)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}"))
    with Progress(*columns, console=console, transient=True) as progress:
        yield Bar(progress, epochs)


@contextmanager
def counting(what: str) -> Iterator[Callable[[str, int, int], None]]:
    """Give a function that shows how many of many runs have ended."""
    console, began = Console(stderr=True), time.monotonic()
    if not console.is_terminal:

        def line(ended: str, done: int, total: int) -> None:
            if not done:
                return
            count = f"{done}/{total}" if total else str(done)  # a search with a budget has no total
            sys.stderr.write(f"{count} {what}  {ended}  {time.monotonic() - began:.0f} s\n")
            sys.stderr.flush()

        yield line
        return
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(what),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    progress = Progress(*columns, console=console)
    task = progress.add_task("", total=None)

    def bar(ended: str, done: int, total: int) -> None:
        progress.start()  # not before: what is said until then has lines of its own
        progress.update(task, description=ended, completed=done, total=total or None)

    try:
        yield bar
    finally:
        progress.stop()
