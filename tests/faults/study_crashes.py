"""Kills, moves and planted links for whole folders of strangers and of studies -> how many were lost or leaked."""

import json
import os
import random
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from attacks import ATTACKS, HOSTILE, command, hostile_comparison, hostile_sweep, snapshot, stopped_run, touched
from command import Command, last_step, recovered, small_data, straight
from crashes import Record, repeated

from deepsup import load_data
from deepsup.trainer.data import subset
from deepsup.trainer.runs._folder import RunFolder

TIMES = {"seconds", "report", "figure", "seconds_per_run"}


def tiny(folder: Path) -> list[str]:
    """Return the settings of a study whose runs take a moment."""
    data, path = load_data(), folder / "digits.npz"
    part, test = subset(data.train, 60), subset(data.test, 30)
    np.savez(path, x_train=part.images[:, 0], y_train=part.labels, x_test=test.images[:, 0], y_test=test.labels)
    return f"--data {path} --epochs 2 --batch-size 20".split()


def answer_of(folder: Path, name: str) -> Any:
    """Return the answer of a study without its times and paths."""
    return without_times(json.loads((folder / name).read_text()))


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(each) for key, each in value.items() if key not in (*TIMES, "config", "limits")}
    return [without_times(each) for each in value] if isinstance(value, list) else value


def killed_study(folder: Path, tries: int, seed: int, words: list[str], answer: str, again: list[str]) -> Record:
    """A study is killed at a random moment or file operation; the same command gives the answer of one that was not."""
    first = Command(folder / "straight", *words, verb=words[0])
    began = time.monotonic()
    assert first.code() == 0, first.errors.read_text()
    lasted, expected = time.monotonic() - began, answer_of(folder / "straight", answer)

    def attempt(draw: random.Random, number: int) -> tuple[bool, float]:
        out = folder / f"{words[0]}{number}"
        if number % 2:
            killed = Command(out, *words, verb=words[0])
            time.sleep(draw.uniform(0.1, 0.9) * lasted)
            killed.process.kill()
        else:
            killed = Command(out, *words, verb=words[0], die_at=draw.randint(1, 150))
        if killed.code() not in (0, -signal.SIGKILL):
            return False, 0.0
        began = time.monotonic()
        begun = (out / "settings.json").is_file()
        done = Command(out, *(again if begun else words), verb=words[0])
        return done.code() == 0 and answer_of(out, answer) == expected, time.monotonic() - began

    return repeated(f"killed {words[0]}", tries, seed, attempt)


def killed_compare(folder: Path, tries: int, seed: int = 0) -> Record:
    """SIGKILL while a comparison trains."""
    words = ["compare", *tiny(folder), "--seeds", "1", "--rates", "0.01", "--cpus", "1"]
    return killed_study(folder, tries, seed, words, "comparison.json", words)


def killed_sweep(folder: Path, tries: int, seed: int = 0) -> Record:
    """SIGKILL while a sweep searches or trains its winners."""
    space, limits = folder / "space.yaml", ["--trials", "2", "--seeds", "1", "--cpus", "1"]
    space.write_text("lr: [0.01, 0.02]\n")
    words = ["sweep", *tiny(folder), "--space", str(space), *limits]
    return killed_study(folder, tries, seed, words, "sweep.json", ["sweep", "--resume", *limits])


def copied_folder(folder: Path, tries: int, seed: int = 0) -> Record:
    """A killed run is copied and moved; the copy and the moved one go on, each for itself, to the same weights."""
    words = small_data(folder)
    expected = straight(folder, words)

    def attempt(draw: random.Random, number: int) -> tuple[bool, float]:
        out, copy, moved = (folder / f"{name}{number}" for name in ("here", "copy", "moved"))
        command, target = Command(out, *words), draw.randint(2, 16)
        while last_step(out) < target and command.process.is_alive():
            time.sleep(0.002)
        command.process.kill()
        command.code()
        if not RunFolder(out).exists:
            return True, 0.0
        shutil.copytree(out, copy, copy_function=os.link if number % 2 else shutil.copy2)
        before = snapshot(copy)
        out.rename(moved)
        sound, seconds = recovered(moved, expected)
        untouched = snapshot(copy) == before and not out.exists()
        also, _ = recovered(copy, expected)
        return sound and untouched and also, seconds

    return repeated("folder copied and moved", tries, seed, attempt)


def planted(folder: Path, tries: int, seed: int = 0) -> Record:
    """A stranger's run has links, FIFOs and folders planted: no verb touches anything outside of it."""
    (folder / "sound").mkdir()
    sound = stopped_run(Path(small_data(folder)[1]), folder / "sound")
    names = list(ATTACKS)
    random.Random(seed).shuffle(names)

    def attempt(_draw: random.Random, number: int) -> tuple[bool, float]:
        began = time.process_time()
        scratch = Path(tempfile.mkdtemp(dir=folder))
        return touched(sound, scratch, ATTACKS[names[number % len(names)]]) == [], time.process_time() - began

    return repeated("links and the like, seven verbs each", tries, seed, attempt)


def traversal(folder: Path, tries: int, seed: int = 0) -> Record:
    """Names in the answers of studies lead elsewhere: nothing is written or read outside of the folder."""

    def attempt(_draw: random.Random, number: int) -> tuple[bool, float]:
        outside, study = folder / f"{number}" / "outside", folder / f"{number}" / "stranger" / "study"
        outside.mkdir(parents=True)
        study.mkdir(parents=True)
        name, sweeps = HOSTILE[number // 2 % len(HOSTILE)], number % 2
        made = hostile_sweep(name) if sweeps else hostile_comparison(name)
        (study / ("sweep.json" if sweeps else "comparison.json")).write_bytes(made)
        done = command("report", study)
        here = (
            {path.name for path in (folder / f"{number}").iterdir()},
            list((folder / f"{number}" / "stranger").iterdir()),
        )
        return done.code in (0, 2) and here == ({"outside", "stranger"}, [study]) and not snapshot(
            outside
        ), done.seconds

    return repeated("names that lead elsewhere", tries, seed, attempt)


STUDY_CRASHES = {
    "killed_compare": (killed_compare, 10),
    "killed_sweep": (killed_sweep, 10),
    "copied_folder": (copied_folder, 20),
    "planted": (planted, len(ATTACKS)),
    "traversal": (traversal, 2 * len(HOSTILE)),
}
"""Name -> the fault, and how often the long form tries it."""
