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
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

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
    """A bar over all steps, with the last epoch's numbers behind it."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.task = progress.add_task("training", total=None, numbers="")

    def started(self, training: Training) -> None:
        """Set the length of the bar: the number of steps."""
        super().started(training)
        total = len(training.batches) * training.config.total_epochs
        limit = training.config.run.limit_steps
        name = training.folder.resolve().name if training.folder else "training"
        self.progress.update(
            self.task, total=min(total, limit or total), completed=training.iteration, description=name
        )

    def step_ended(self, training: Training) -> None:
        """Move the bar."""
        self.progress.update(self.task, completed=training.iteration)

    def epoch_ended(self, training: Training, record: dict[str, Any]) -> None:
        """Show the numbers of an epoch."""
        self.progress.update(self.task, numbers=summary_of(record, training.net.dense))


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
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
               TextColumn("{task.fields[numbers]}"))  # fmt: skip
    with Progress(*columns, console=console) as progress:
        yield Bar(progress)


@contextmanager
def counting(what: str) -> Iterator[Callable[[str, int, int], None]]:
    """Give a function that shows how many of many runs have ended."""
    console, began = Console(stderr=True), time.monotonic()
    if not console.is_terminal:

        def line(ended: str, done: int, total: int) -> None:
            count = f"{done}/{total}" if total else str(done)  # a search with a budget has no total
            sys.stderr.write(f"{count} {what}  {ended}  {time.monotonic() - began:.0f} s\n")
            sys.stderr.flush()

        yield line
        return
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(what),
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
