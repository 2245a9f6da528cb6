"""``deepsup`` in processes that can be killed, and what their runs must be."""

import atexit
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from deepsup import load_data
from deepsup.cli import main
from deepsup.trainer.data import subset
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.training import _checkpoint as checkpoint

SERVER = multiprocessing.get_context("forkserver")  # it imports torch once for all processes
SERVER.set_forkserver_preload(["deepsup.cli", "deepsup.trainer.runs._train"])
TIMES = {"seconds", "images_per_second"}
LIMIT = 300.0  # seconds after which a process counts as hanging


@cache
def scratch() -> str:
    """Return a folder that is removed at the end of this process."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    return folder.name


class Command:
    """``deepsup`` in a process of its own; what it writes to standard error is kept.

    die_at: the process kills itself at the n-th file that it opens, renames or removes in its run folder; a negative
        number: half-way through writing the n-th checkpoint.
    """

    def __init__(self, folder: Path, *words: object, die_at: int = 0, verb: str = "train", **environment: str) -> None:
        handle, path = tempfile.mkstemp(dir=scratch())  # never on the disk that is to be filled
        os.close(handle)
        self.errors = Path(path)
        given = [verb, "--out", str(folder), *(str(word) for word in words if word != verb)]
        self.process = SERVER.Process(target=child, args=(given, str(self.errors), str(folder), die_at, environment))
        self.process.start()

    def code(self) -> int:
        """Wait for the end and return the exit code; a process that hangs is killed."""
        self.process.join(LIMIT)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        return int(self.process.exitcode or 0)

    @property
    def line(self) -> str:
        """The only message there is besides progress; empty if there are several, or a traceback."""
        text = self.errors.read_text()
        lines = [line for line in text.splitlines() if line.startswith("deepsup: ")]
        return lines[0] if len(lines) == 1 and "Traceback" not in text else ""


def child(words: list[str], errors: str, folder: str, die_at: int, environment: dict[str, str]) -> None:
    os.dup2(os.open(errors, os.O_WRONLY), 2)
    os.environ.update(environment)
    torch.set_num_threads(1)
    if die_at > 0:
        die_at_file(folder, die_at)
    elif die_at < 0:
        die_within_checkpoint(-die_at)
    sys.exit(main(words))


def die_at_file(folder: str, number: int) -> None:
    """Kill this process at the n-th operation on a file of the run folder."""
    seen = 0

    def hook(event: str, given: tuple[Any, ...]) -> None:
        nonlocal seen
        if event in ("open", "os.rename", "os.remove", "os.mkdir") and str(given[0]).startswith(folder):
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def die_within_checkpoint(number: int) -> None:
    """Kill this process when half of the n-th checkpoint is written."""
    save, seen = torch.save, 0

    def half(state: Any, file: Any) -> None:
        nonlocal seen
        save(state, file)
        seen += 1
        if seen == number:
            file.truncate(file.tell() // 2)
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    torch.save = half


def small_data(folder: Path) -> list[str]:
    """Return the settings of a run of 24 steps that takes a second."""
    data, path = load_data(), folder / "digits.npz"
    part, test = subset(data.train, 240), subset(data.test, 100)
    np.savez(path, x_train=part.images[:, 0], y_train=part.labels, x_test=test.images[:, 0], y_test=test.labels)
    words = f"--data {path} --epochs 3 --batch-size 30 --lr 0.01 --checkpoint-steps 2 --no-tensorboard --ema 0.9"
    return words.split()


def content(folder: Path) -> Any:
    """Return everything of a finished run that must be the same each time."""
    run = RunFolder(folder)
    weights = {name: value.numpy().tobytes() for name, value in load_file(run.model).items()}
    records = [{key: value for key, value in record.items() if key not in TIMES} for record in run.metrics]
    return weights, records, {key: value for key, value in run.result.items() if key not in TIMES}


def recovered(folder: Path, expected: Any, *words: str) -> tuple[bool, float]:
    """Resume a run; return whether it is what was expected, and how many seconds that took."""
    began = time.monotonic()
    done = Command(folder, "--resume", *words).code() == 0
    return done and content(folder) == expected, time.monotonic() - began


def straight(folder: Path, words: list[str]) -> Any:
    """Return what an uninterrupted run gives."""
    command = Command(folder / "straight", *words)
    assert command.code() == 0, command.errors.read_text()
    return content(folder / "straight")


def last_step(folder: Path) -> int:
    saved = checkpoint.all_steps(folder / "checkpoints")
    return int(saved[-1].stem.split("-")[1]) if saved else 0
