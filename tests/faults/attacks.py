"""Folders of strangers that try to have deepsup write, read or delete outside of them -> what was touched there.

An attack is a function that plants something in a run, a sweep or a comparison. Afterwards verbs are run on it, and
whatever lies outside has to be as it was. A verb may refuse with one line; a traceback is a failure.
"""

import contextlib
import io
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from study_readers import comparison_table, sweep_table

from deepsup import Config, train
from deepsup.cli import main

Plant = Callable[[Path, Path], None]

WRITTEN = (
    ".lock", "metrics.jsonl", "config.yaml", "environment.json", "result.json", "model.safetensors", "insight.json",
    "insight.npz", "exits.json", "exits.npz", "report.html", "demo.html", "snapshots/epoch-0001.safetensors",
    "diverged.json", "changes.json",
    "plots/losses.png", "plots/losses.svg", "plots/confusion.png", "plots/exits.svg", "checkpoints/step-000000006.pt",
    "checkpoints/.half.part", "export/model.safetensors", "export/model.safetensors.md",
)  # fmt: skip
"""Files that a verb makes, writes again, adds to or removes in the folder of a run."""
FOLDERS = ("plots", "checkpoints", "export", "snapshots")
HOSTILE = ("../../outside/x", "/../outside/x", "x/../../../outside/x", "..", "a\0b", "x" * 400, "a\nb", "\u202egnp.exe",
           "\x1b[2J", "con/../x", "~/x", "\udc80", "C:\\x", ".hidden")  # fmt: skip
"""Names that could become the names of files."""


def link(name: str) -> Plant:
    """Plant a symbolic link to a file outside."""

    def plant(run: Path, outside: Path) -> None:
        make_way(run / name)
        shutil.copyfile(run / name, outside / "victim") if (run / name).is_file() else (outside / "victim").touch()
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(outside / "victim")

    return plant


def dangling(name: str) -> Plant:
    """Plant a symbolic link to a file outside that is not there yet."""

    def plant(run: Path, outside: Path) -> None:
        make_way(run / name)
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(outside / "new")

    return plant


def hard_link(name: str) -> Plant:
    """Plant a second name of a file outside."""

    def plant(run: Path, outside: Path) -> None:
        make_way(run / name)
        if (run / name).exists():
            (run / name).rename(outside / "victim")
        (outside / "victim").touch()
        (run / name).hardlink_to(outside / "victim")

    return plant


def fifo(name: str) -> Plant:
    """Plant a FIFO, which would make its reader or writer wait for ever."""

    def plant(run: Path, outside: Path) -> None:
        make_way(run / name)
        (run / name).unlink(missing_ok=True)
        os.mkfifo(run / name)

    return plant


def folder(name: str) -> Plant:
    """Plant a folder in the place of a file."""

    def plant(run: Path, outside: Path) -> None:
        make_way(run / name)
        (run / name).unlink(missing_ok=True)
        (run / name / "inside").mkdir(parents=True)

    return plant


def linked_folder(name: str) -> Plant:
    """Move a folder outside and plant a link to it."""

    def plant(run: Path, outside: Path) -> None:
        (run / name).mkdir(exist_ok=True)
        (run / name).rename(outside / name)
        (run / name).symlink_to(outside / name)

    return plant


def temporary_names(run: Path, outside: Path) -> None:
    """Plant links at the names that temporary files had: of this process and of those to come."""
    for name in WRITTEN:
        make_way(run / name)
        for pid in range(os.getpid(), os.getpid() + 3):
            (run / name).with_name(f".{Path(name).name}.{pid}.part").symlink_to(outside / f"{pid}{Path(name).name}")


def events(run: Path, outside: Path) -> None:
    """Plant links at the names that TensorBoard's events had in these minutes."""
    for second in range(int(time.time()), int(time.time()) + 120):
        (run / f"events.out.tfevents.{second}.{os.getpid()}").symlink_to(outside / f"events{second}")


def make_way(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)


ATTACKS: dict[str, Plant] = {
    **{f"{kind.__name__} {name}": kind(name) for kind in (link, dangling, hard_link, fifo, folder) for name in WRITTEN},
    **{f"linked folder {name}": linked_folder(name) for name in FOLDERS},
    "temporary names": temporary_names,
    "events": events,
}
"""What a run of a stranger can have planted."""


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    said: str
    seconds: float


def command(*words: object) -> Done:
    """Run deepsup in this process; an exception that is no mistake of the user is raised."""
    began = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
        code = main([str(word) for word in words])
    return Done(code, out.getvalue() + errors.getvalue(), time.process_time() - began)


def snapshot(folder: Path) -> dict[str, Any]:
    """Return what lies in a folder: every name, and of each file what it holds and when it was written."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def stopped_run(data: Path, folder: Path) -> Path:
    """Return a run of a few steps that can go on, and that has everything which verbs leave."""
    config = Config(data=str(data), epochs=3, batch_size=30, lr=0.01, limit_steps=3, snapshots=3, tensorboard=True)
    run = train(config, folder / "run").folder
    Image.fromarray(np.zeros((28, 28), np.uint8)).save(folder / "a.png")
    for words in (["exits", run], ["report", run]):
        assert command(*words).code == 0
    return run


def verbs(run: Path) -> Iterator[list[object]]:
    """Yield every command that is promised for a run of a stranger."""
    yield ["report", run]
    yield ["predict", run, run.parent / "a.png"]
    yield ["export", run, "--to", "safetensors", "--overwrite"]
    yield ["inspect", run]
    yield ["demo", run]
    yield ["exits", run, "--batch-sizes", "1"]
    yield ["train", "--out", run, "--resume", "--limit-steps", "6"]


def touched(sound: Path, scratch: Path, plant: Plant, only: tuple[str, ...] = ()) -> list[str]:
    """Plant an attack in a copy of a run, run the verbs on it, and return what changed outside or went wrong."""
    outside, run = scratch / "outside", scratch / "stranger" / "run"
    shutil.copytree(sound.parent, run.parent, symlinks=True)
    outside.mkdir()
    (outside / "precious").write_text("mine")
    plant(run, outside)
    before, faults = snapshot(outside), []
    for words in verbs(run):
        if only and words[0] not in only:
            continue
        done = command(*words)
        if done.code not in (0, 2) or "Traceback" in done.said:
            faults.append(f"{words[0]}: exit code {done.code}: {done.said[-300:]}")
        if done.code == 2 and done.said.count("deepsup: ") != 1:
            faults.append(f"{words[0]}: not one line: {done.said[-300:]}")
    after = snapshot(outside)
    names = before.keys() | after.keys()
    return [*faults, *(f"{name} outside" for name in sorted(names) if before.get(name, "") != after.get(name, ""))]


def hostile_sweep(name: str) -> bytes:
    """Return the answer of a sweep over a setting of this name, in which both methods have trials."""
    table = sweep_table()
    table["space"][name] = {"low": 0.0, "high": 1.0}
    for trial in table["trials"]:
        trial["settings"] = {**trial["settings"], name: 0.5}
    table["trials"] = [{**trial, "number": number} for trial in table["trials"] for number in range(6)]
    for method in table["methods"].values():
        method |= {"trials": 6, "importance": {name: 1.0}}
    return json.dumps(table).encode()


def hostile_comparison(name: str) -> bytes:
    """Return the answer of a comparison whose runs have this name."""
    table = comparison_table()
    for method in table["methods"].values():
        method["runs"] = [name]
    return json.dumps(table).encode()
