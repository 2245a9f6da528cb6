"""The readers of what sweeps and comparisons leave, with sound files of their own."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import yaml
from mutations import damaged, distorted

from deepsup.trainer.config import Config
from deepsup.trainer.report._write import write_report
from deepsup.trainer.studies._sweep import METHODS, search_of
from deepsup.trainer.studies._sweep_settings import continued, prepared
from deepsup.trainer.studies._sweep_storage import storage_of

SPACE = {"lr": {"low": 0.001, "high": 0.1, "log": True}, "batch_size": {"low": 2, "high": 4},
         "taps": [["network"], ["conv1"]], "schedule": ["linear", "paper"]}  # fmt: skip


def hostile_study(name: str, data: bytes, random: Random) -> bytes:
    """Spoil what a study holds, by the kind of its file."""
    if name.endswith("json"):
        return json.dumps(distorted(json.loads(data), random)).encode()
    if name.endswith("yaml"):
        return yaml.safe_dump(distorted(yaml.safe_load(data), random)).encode()
    if name.endswith("journal"):
        lines = data.splitlines()
        at = random.randrange(len(lines))
        lines[at] = json.dumps(distorted(json.loads(lines[at]), random)).encode()
        return b"\n".join(lines) + b"\n"
    return damaged(data, random)


def sweep_files(folder: Path, data: Path) -> dict[str, bytes]:
    """Return the files of a sweep of one trial per method, with its trials in an SQLite file and in a journal."""
    folder.mkdir()
    (folder / "space.yaml").write_text(yaml.safe_dump(SPACE))
    config = Config(data=str(data), epochs=1, batch_size=2, tensorboard=False)
    made = prepared(config, folder, folder / "space.yaml", storages(folder)[0], resume=False)
    for storage in storages(folder):
        for method in METHODS:
            search = search_of(method, replace(made, storage=storage), folder, "me")
            outcome = {"state": "complete", "epochs": 1, "seconds": 1.0, "why": "", "validation_error": 5.0}
            search.tell(search.ask(0.0), outcome)
    names = ("settings.json", "space.yaml", "study.db", "study.journal")
    return {name: (folder / name).read_bytes() for name in names}


def storages(folder: Path) -> list[str]:
    return [f"sqlite:///{folder.absolute() / 'study.db'}", str(folder.absolute() / "study.journal")]


def read_sweep_folder(folder: Path) -> None:
    """Go on with a sweep as ``sweep --resume`` does, up to its next trial, with each storage."""
    storage_of.cache_clear()
    for storage in storages(folder):
        made = continued(folder / "settings.json", None, folder / "space.yaml", storage)
        for method in METHODS:
            search = search_of(method, made, folder, "other")
            search.records(), search.others(), search.count(), list(search.adopt(0.0)), search.ask(0.0)


def sweep_table() -> dict[str, Any]:
    """What ``deepsup sweep`` leaves for its page."""
    settings = {"lr": 0.02, "schedule": "linear", "hidden": []}
    trial = {"number": 0, "state": "complete", "validation_error": 6.5, "settings": settings, "seconds": 3.0}
    method = {"trials": 1, "states": {"complete": 1}, "seconds": 12.0, "importance": {"lr": 0.75}, "errors": [5.0, 6.0],
              "mean": 5.5, "deviation": 0.7, "validation_error": 6.5, "settings": settings,
              "defaults_error": 8.0}  # fmt: skip
    return {
        "best": {"method": "supervised", "validation_error": 6.5, "settings": settings, "config": "best.yaml"},
        "methods": {"supervised": method, "plain": method},
        "trials": [{"method": "supervised", **trial}, {"method": "plain", **trial}],
        "validation_images": 500, "config": {"data": "mnist-mini", "epochs": 3},
        "space": {"lr": {"low": 0.01, "high": 0.1, "log": True}, "schedule": ["linear", "b"], "hidden": [[], [64]]},
        "difference": {"mean": -0.5, "interval": [-0.9, -0.1], "p": 0.01},
    }  # fmt: skip


def comparison_table() -> dict[str, Any]:
    """What ``deepsup compare`` leaves for its page."""
    method = {"errors": [5.0, 6.0], "mean": 5.5, "deviation": 0.7, "lr": 0.1, "companions": {"conv1": 9.0},
              "runs": ["a"]}  # fmt: skip
    return {
        "methods": dict.fromkeys(("CNN-Softmax", "DSN-Softmax", "CNN-SVM", "DSN-SVM"), method), "seeds": [0, 1],
        "ratios": {"DSN-SVM / CNN-SVM": {"ratio": 0.5, "interval": [0.4, 0.7], "lower": 2, "pairs": 2, "p": 0.5}},
        "notes": ["CNN-SVM, seed 0: did not learn"],
        "config": {"data": "mnist-mini", "network": "cnn", "train_size": 500, "epochs": 3},
    }  # fmt: skip


def read_study_pages(folder: Path) -> None:
    """Write the page of a sweep and that of a comparison."""
    for name in ("sweep.json", "comparison.json"):
        (folder / name[:3]).mkdir()
        (folder / name).rename(folder / name[:3] / name)
        write_report([folder / name[:3]])
