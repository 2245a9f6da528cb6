"""Crashes on purpose -> how many runs were lost (none is expected) and how long the slowest recovery took.

``python tests/faults/soak.py FILE`` tries every fault often and writes the record; the tests try each a few times.
Every fault is a function of a folder, a number of tries and a seed. A run counts as lost unless the command that failed
says so in one line, and the resumed run equals an uninterrupted one to the bit.
"""

import atexit
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from deepsup import Config, load_data
from deepsup.cli import main
from deepsup.data import subset
from deepsup.errors import TrainingError
from deepsup.runs.folder import RunFolder
from deepsup.studies.pool import Job, pool
from deepsup.training import checkpoint

SERVER = multiprocessing.get_context("forkserver")  # it imports torch once for all processes
SERVER.set_forkserver_preload(["deepsup.cli", "deepsup.runs.train"])
TIMES = {"seconds", "images_per_second"}
LIMIT = 300.0  # seconds after which a process counts as hanging
Record = dict[str, Any]


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

    def __init__(self, folder: Path, *words: object, die_at: int = 0, **environment: str) -> None:
        handle, path = tempfile.mkstemp(dir=scratch())  # never on the disk that is to be filled
        os.close(handle)
        self.errors = Path(path)
        given = ["train", "--out", str(folder), *map(str, words)]
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


def repeated(fault: str, tries: int, seed: int, attempt: Callable[[random.Random, int], tuple[bool, float]]) -> Record:
    """Try a fault several times and count the runs that were lost."""
    draw = random.Random(seed)
    results = [attempt(draw, number) for number in range(tries)]
    lost = sum(not sound for sound, _ in results)
    return {"fault": fault, "tries": tries, "lost": lost, "worst_seconds": round(max(s for _, s in results), 2)}


def straight(folder: Path, words: list[str]) -> Any:
    """Return what an uninterrupted run gives."""
    command = Command(folder / "straight", *words)
    assert command.code() == 0, command.errors.read_text()
    return content(folder / "straight")


def killed(folder: Path, tries: int, seed: int = 0) -> Record:
    """SIGKILL at a random moment, at a random file operation, or half-way through a checkpoint; then resume."""
    words = small_data(folder)
    expected = straight(folder, words)

    def attempt(draw: random.Random, number: int) -> tuple[bool, float]:
        out = folder / f"killed{number}"
        if number % 3 == 0:
            command = Command(out, *words)
            target = draw.randint(0, 20)
            while last_step(out) < target and command.process.is_alive():
                time.sleep(0.002)
            time.sleep(draw.random() * 0.02)
            command.process.kill()
        else:
            command = Command(out, *words, die_at=draw.randint(1, 60) if number % 3 == 1 else -draw.randint(1, 12))
        code = command.code()
        if code not in (0, -signal.SIGKILL):
            return False, 0.0
        return recovered(out, expected, *([] if RunFolder(out).exists else words))

    return repeated("killed (SIGKILL)", tries, seed, attempt)


def last_step(folder: Path) -> int:
    saved = checkpoint.all_steps(folder / "checkpoints")
    return int(saved[-1].stem.split("-")[1]) if saved else 0


def double_start(folder: Path, tries: int, seed: int = 0) -> Record:
    """Two processes start in one folder: exactly one trains, the other ends with one line and exit code 2."""
    words = small_data(folder)
    expected = straight(folder, words)

    def attempt(draw: random.Random, number: int) -> tuple[bool, float]:
        out, began = folder / f"double{number}", time.monotonic()
        first = Command(out, *words)
        time.sleep(draw.random() * 0.2)
        second = Command(out, *words)
        codes = sorted((first.code(), second.code()))
        refused = first if first.process.exitcode else second
        told = re.search(r"is being trained by process \d+;|already holds a run", refused.line)
        return codes == [0, 2] and bool(told) and content(out) == expected, time.monotonic() - began

    return repeated("two processes in one folder", tries, seed, attempt)


def can_mount() -> bool:
    """Whether a file system can be mounted here: that needs root and its rights."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with mounted(Path(folder), "100k"):
                return True
        except (OSError, subprocess.CalledProcessError):
            return False


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[Path]:
    """Mount a small disk in memory."""
    folder.mkdir(exist_ok=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True, capture_output=True
    )
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)


def full_disk(folder: Path, tries: int, seed: int = 0) -> Record:
    """The disk fills at a random moment, also by TensorBoard's events; with more space, the run is resumed."""
    words = [*small_data(folder), "--tensorboard"]
    words.remove("--no-tensorboard")
    expected = straight(folder, words)
    size = max(path.stat().st_size for path in (folder / "straight" / "checkpoints").iterdir())

    def attempt(draw: random.Random, number: int) -> tuple[bool, float]:
        with mounted(folder / f"disk{number}", str(int(size * draw.uniform(0.05, 3.9)))) as disk:
            command = Command(disk / "run", *words)
            code = command.code()
            named = "No space left on device" in command.line and "free some space" in command.line
            remount(disk, "size=64m")
            sound, seconds = recovered(disk / "run", expected, *([] if RunFolder(disk / "run").exists else words))
            return sound and (code == 0 or (code == 2 and named)), seconds

    return repeated("full disk", tries, seed, attempt)


def read_only(folder: Path, tries: int, seed: int = 0) -> Record:
    """The disk becomes read-only at a random step; writable again, the run is resumed."""
    words = small_data(folder)
    expected = straight(folder, words)

    def attempt(draw: random.Random, number: int) -> tuple[bool, float]:
        with mounted(folder / f"disk{number}", "64m") as disk:
            assert Command(disk / "run", *words, die_at=-draw.randint(1, 12)).code() == -signal.SIGKILL
            remount(disk, "ro")
            command = Command(disk / "run", "--resume")
            named = command.code() == 2 and "Read-only file system" in command.line
            remount(disk, "rw")
            sound, seconds = recovered(disk / "run", expected)
            return sound and named, seconds

    return repeated("read-only folder", tries, seed, attempt)


def moved_folder(folder: Path, tries: int, seed: int = 0) -> Record:
    """The run folder is gone while it trains; resumed where it was moved to, nothing is lost."""
    words = small_data(folder)
    expected = straight(folder, words)

    def attempt(draw: random.Random, number: int) -> tuple[bool, float]:
        out, target = folder / f"here{number}", draw.randint(2, 16)
        command = Command(out, *words)
        while last_step(out) < target and command.process.is_alive():
            time.sleep(0.001)
        out.rename(folder / f"there{number}")
        named = command.code() == 2 and "the folder is gone" in command.line and "untouched" not in command.line
        sound, seconds = recovered(folder / f"there{number}", expected)
        return sound and (named or command.process.exitcode == 0), seconds

    return repeated("folder moved away", tries, seed, attempt)


def killed_worker(folder: Path, tries: int, seed: int = 0) -> Record:
    """One of two processes of a study is killed: one line, and the same call again gives every result."""
    words = small_data(folder)
    config = Config(data=words[1], epochs=3, batch_size=30, tensorboard=False, checkpoint_steps=2)
    with pool(1) as run_all:
        (expected,) = run_all([Job("a", "b", config, folder / "alone")], lambda *_: None)

    def attempt(draw: random.Random, number: int) -> tuple[bool, float]:
        jobs = [Job("a", "b", config, folder / f"study{number}-{job}") for job in range(2)]
        named = False
        try:
            with pool(2) as run_all:
                killing = SERVER.Process(target=kill_when, args=(os.getpid(), str(jobs[0].folder), draw.random()))
                killing.start()
                run_all(jobs, lambda *_: None)
        except TrainingError as error:
            named = "a process that trained was killed" in str(error)
        began = time.monotonic()
        with pool(1) as run_all:
            results = run_all(jobs, lambda *_: None)
        same = all({**each, "seconds": 0} == {**expected, "seconds": 0} for each in results)
        return named and same, time.monotonic() - began

    return repeated("killed worker of a study", tries, seed, attempt)


def kill_when(parent: int, folder: str, delay: float) -> None:
    """Kill a process of the pool once a run has begun; its lock names it."""
    path, until = Path(folder) / ".lock", time.monotonic() + LIMIT
    while time.monotonic() < until:
        try:
            pid = json.loads(path.read_bytes())["pid"]
        except (OSError, ValueError):
            time.sleep(0.001)
            continue
        if pid != parent:
            time.sleep(0.05 * delay)
            os.kill(pid, signal.SIGKILL)
        return


def two_ranks(folder: Path, *words: object) -> list[Command]:
    """Start two processes that train together, as torchrun does."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "DEEPSUP_TIMEOUT": "4"}
    return [Command(folder, *words, **shared, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(2)]


def lost_rank(folder: Path, tries: int, seed: int = 0, number: int = signal.SIGKILL) -> Record:
    """One of two processes that train together is killed or stopped: the other ends with one line, in bounded time."""
    words = small_data(folder)
    both = two_ranks(folder / "straight", *words)
    assert [each.code() for each in both] == [0, 0], both[0].errors.read_text()
    expected = content(folder / "straight")

    def attempt(draw: random.Random, count: int) -> tuple[bool, float]:
        out, which, target = folder / f"rank{number}-{count}", draw.randint(0, 1), draw.randint(2, 10)
        both = two_ranks(out, *words)
        while last_step(out) < target and both[0].process.is_alive():
            time.sleep(0.001)
        os.kill(both[which].process.pid, number)
        began = time.monotonic()
        other = both[1 - which]
        named = other.code() == 2 and "another process of this training has ended" in other.line
        seconds = time.monotonic() - began
        both[which].process.kill()
        both[which].process.join()
        again = [each.code() for each in two_ranks(out, "--resume")]
        return named and again == [0, 0] and content(out) == expected, seconds

    return repeated("stopped rank" if number == signal.SIGSTOP else "killed rank", tries, seed, attempt)


def stopped_rank(folder: Path, tries: int, seed: int = 0) -> Record:
    """One of two processes that train together no longer answers."""
    return lost_rank(folder, tries, seed, signal.SIGSTOP)


FAULTS: dict[str, tuple[Callable[[Path, int, int], Record], int]] = {
    "killed": (killed, 100),
    "double_start": (double_start, 50),
    "full_disk": (full_disk, 20),
    "read_only": (read_only, 10),
    "moved_folder": (moved_folder, 20),
    "killed_worker": (killed_worker, 5),
    "killed_rank": (lost_rank, 10),
    "stopped_rank": (stopped_rank, 5),
}
"""Name -> the fault, and how often the long form tries it."""
NEED_MOUNT = {"full_disk", "read_only"}


def soak(names: list[str], seed: int = 0) -> list[Record]:
    """Try faults as often as the long form does; a fault that cannot be made here says so."""
    records = []
    for name in names:
        fault, tries = FAULTS[name]
        if name in NEED_MOUNT and not can_mount():
            records.append({"fault": name, "tries": 0, "lost": 0, "worst_seconds": None, "skipped": "cannot mount"})
            continue
        folder = Path(tempfile.mkdtemp())
        records.append(fault(folder, tries, seed))
        sys.stderr.write(f"{json.dumps(records[-1])}\n")
        shutil.rmtree(folder)
    return records


if __name__ == "__main__":
    torch.set_num_threads(1)
    Path(sys.argv[1]).write_text(json.dumps(soak(sys.argv[2:] or list(FAULTS)), indent=1) + "\n")
