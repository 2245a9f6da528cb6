"""Crashes on purpose -> how many runs were lost (none is expected) and how long the slowest recovery took.

``make soak`` tries every fault often and writes the record; the tests try each a few times. A fault is a function of a
folder, a number of tries and a seed. A run counts as lost unless the command that failed says so in one line, and the
resumed run equals an uninterrupted one to the bit.
"""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from command import LIMIT, SERVER, Command, content, last_step, recovered, small_data, straight

from deepsup import Config
from deepsup.errors import TrainingError
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.studies._pool import Job, pool

Record = dict[str, Any]


def repeated(fault: str, tries: int, seed: int, attempt: Callable[[random.Random, int], tuple[bool, float]]) -> Record:
    """Try a fault several times and count the runs that were lost."""
    draw = random.Random(seed)
    results = [attempt(draw, number) for number in range(tries)]
    lost = sum(not sound for sound, _ in results)
    return {"fault": fault, "tries": tries, "lost": lost, "worst_seconds": round(max(s for _, s in results), 2)}


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


def clock_jumps(folder: Path, tries: int, seed: int = 0) -> Record:
    """The wall clock jumps by days while a run trains, is killed and is resumed: the run is the same."""
    words = small_data(folder)
    expected = straight(folder, words)

    def attempt(draw: random.Random, number: int) -> tuple[bool, float]:
        out, clock = folder / f"clock{number}", folder / f"clock{number}.txt"
        fake = another_clock(clock)
        clock.write_text("+0")
        first = under(fake, "train", "--out", out, *words)
        until = time.monotonic() + LIMIT
        while last_step(out) < draw.randint(2, 10) and first.poll() is None and time.monotonic() < until:
            time.sleep(0.002)
        clock.write_text(f"{draw.choice(['-', '+'])}{draw.randint(1, 4000)}d")
        if number % 2 == 0:
            first.kill()
        code = first.wait(LIMIT)
        clock.write_text(f"-{draw.randint(1, 4000)}d")
        began = time.monotonic()
        if code:
            code = under(fake, "train", "--out", out, "--resume").wait(LIMIT)
        return code == 0 and content(out) == expected and times_are_sound(out), time.monotonic() - began

    return repeated("clock jumps by days", tries, seed, attempt)


def faketime() -> str:
    """Return the library that gives a process another clock, or nothing where it is not installed."""
    return next(map(str, sorted(Path("/usr/lib").glob("**/faketime/libfaketimeMT.so.1"))), "")


def another_clock(file: Path) -> dict[str, str]:
    """Return the variables under which a process sees the wall clock as a file says, such as "-3d"."""
    return {"LD_PRELOAD": faketime(), "FAKETIME_TIMESTAMP_FILE": str(file), "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1", "OMP_NUM_THREADS": "1"}  # fmt: skip


def under(environment: dict[str, str], *words: object) -> subprocess.Popen[bytes]:
    """Start ``deepsup`` in a new interpreter, with these variables."""
    command = [sys.executable, "-m", "deepsup", *map(str, words)]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdout=quiet, stderr=quiet, env=os.environ | environment)


def times_are_sound(folder: Path) -> bool:
    """Whether every time in a run's records is one that a clock without jumps could give."""
    run = RunFolder(folder)
    return all(0 <= record.get("seconds", 0) < LIMIT for record in [*run.metrics, run.result])


CRASHES: dict[str, tuple[Callable[[Path, int, int], Record], int]] = {
    "killed": (killed, 100),
    "double_start": (double_start, 50),
    "full_disk": (full_disk, 20),
    "read_only": (read_only, 10),
    "moved_folder": (moved_folder, 20),
    "killed_worker": (killed_worker, 5),
    "killed_rank": (lost_rank, 10),
    "stopped_rank": (stopped_rank, 5),
    "clock_jumps": (clock_jumps, 10),
}
"""Name -> the fault, and how often the long form tries it."""


def missing(name: str) -> str:
    """Say what a fault needs that is not here; empty if all is."""
    if name in ("full_disk", "read_only") and not can_mount():
        return "needs a disk that can be filled or made read-only: mounting one takes root"
    if name == "clock_jumps" and not faketime():
        return "needs libfaketime (Debian: apt-get install libfaketime)"
    return ""
