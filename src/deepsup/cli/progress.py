"""A training in, a live display on standard error out; plain lines where there is no terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from deepsup.runs.train import Watch


class Display(Watch):
    """A display of one training; it knows the run's folder once training has begun."""

    folder: Path | None = None

    def started(self, training: Any, run: Any) -> None:  # noqa: ARG002 - for those that show more
        """Note the folder."""
        self.folder = run.folder


class Lines(Display):
    """One line per epoch, and a sign of life in long ones."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs
        self.spoke = time.monotonic()

    def stepped(self, training: Any) -> None:
        """Write a line every ten seconds."""
        if time.monotonic() - self.spoke > 10 and training.step:
            self.say(f"epoch {training.epoch + 1}/{self.epochs}  step {training.step}/{len(training.batches)}")

    def say(self, line: str) -> None:
        """Write one line."""
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
        self.spoke = time.monotonic()

    def epoch_ended(self, record: dict[str, Any]) -> None:
        """Write the line."""
        self.say(f"epoch {record['epoch'] + 1}/{self.epochs}  {told(record)}")


class Bar(Display):
    """A bar over all steps, with the last epoch's numbers behind it."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.task = progress.add_task("training", total=None, told="")

    def started(self, training: Any, run: Any) -> None:
        """Learn how many steps there are."""
        super().started(training, run)
        total = len(training.batches) * training.config.total_epochs
        limit = training.config.run.limit_steps
        self.progress.update(
            self.task, total=min(total, limit or total), completed=training.iteration, description=run.name
        )

    def stepped(self, training: Any) -> None:
        """Move the bar."""
        self.progress.update(self.task, completed=training.iteration)

    def epoch_ended(self, record: dict[str, Any]) -> None:
        """Show the epoch's numbers."""
        self.progress.update(self.task, told=told(record))


def told(record: dict[str, Any]) -> str:
    """Return an epoch in a few words."""
    layers = " ".join(f"{tap} {error:.1f}" for tap, error in record["companion_errors"].items())
    seen = f"  validation {record['validation_error']:.2f} %" if "validation_error" in record else ""
    seen += f"  test {record['test_error']:.2f} %" if "test_error" in record else ""
    return (
        f"loss {record['loss']:.3f}  train error {record['error']:.2f} %{f' ({layers})' if layers else ''}{seen}  "
        f"lr {record['lr']:.2g}  {record['images_per_second']:,.0f} images/s"
    )


@contextmanager
def watching(epochs: int) -> Iterator[Display]:
    """Give a display of one training."""
    console = Console(stderr=True)
    if os.environ.get("RANK", "0") != "0":  # under torchrun one process speaks for all
        yield Display()
        return
    if not console.is_terminal:
        yield Lines(epochs)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
               TextColumn("{task.fields[told]}"))  # fmt: skip
    with Progress(*columns, console=console) as progress:
        yield Bar(progress)


@contextmanager
def counting(what: str) -> Iterator[Callable[[str, int, int], None]]:
    """Give a display of many things that end one after the other."""
    console, began = Console(stderr=True), time.monotonic()
    if not console.is_terminal:

        def line(ended: str, done: int, total: int) -> None:
            sys.stderr.write(f"{done}/{total} {what}  {ended}  {time.monotonic() - began:.0f} s\n")
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
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=None)
        yield lambda ended, done, total: progress.update(task, description=ended, completed=done, total=total)
