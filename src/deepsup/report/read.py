"""A folder that deepsup left -> its records, whatever is missing in it: a run still going, or of an older version."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from deepsup.config import current
from deepsup.errors import RunError
from deepsup.runs.folder import RunFolder


@dataclass(frozen=True, eq=False)
class RunRecord:
    """What one run has left so far. Every part may be empty."""

    name: str
    folder: Path
    config: dict[str, Any]
    environment: dict[str, Any]
    metrics: list[dict[str, Any]]
    result: dict[str, Any] | None
    insight: dict[str, Any] = field(default_factory=dict)
    """What its layers know: see docs/insight.md."""
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    """Images and maps that belong to ``insight``."""
    own_label: str = ""
    """The label that distinguishes it from other runs of its method on a page."""

    @property
    def label(self) -> str:
        """What a figure calls it."""
        return self.own_label or self.method

    @property
    def supervised(self) -> bool:
        """Whether it was trained with companions."""
        return self.method.startswith("DSN")

    @property
    def method(self) -> str:
        """The paper's name of what was trained."""
        plain = self.config.get("taps") in (["none"], [], None)
        if self.metrics:  # what was trained says more than a config that an older version may have left short
            plain = not any(record.get("companion_errors") for record in self.metrics)
        loss = str(self.config.get("loss", ""))
        return ("CNN" if plain else "DSN") + ("-Softmax" if loss == "softmax" else "-SVM" if "hinge" in loss else "")


@dataclass(frozen=True, eq=False)
class Comparison:
    """What ``deepsup compare`` has left: its table, and the runs of every method."""

    name: str
    folder: Path
    table: dict[str, Any]
    runs: dict[str, list[RunRecord]]


def read_run(folder: Path) -> RunRecord:
    """Read a run folder."""
    run = RunFolder(folder)
    if not run.exists:
        _ = run.config  # says what is missing
    return RunRecord(
        name=run.name,
        folder=folder,
        config=read_settings(folder / "config.yaml"),
        environment=read_json(folder / "environment.json") or {},
        metrics=[record for record in run.metrics if isinstance(record, dict)],
        result=read_json(folder / "result.json"),
        insight=read_json(run.insight_file(".json")) or {},
        arrays=read_arrays(run.insight_file(".npz")),
    )


def read_comparison(folder: Path) -> Comparison:
    """Read the folder of a comparison."""
    table = read_json(folder / "comparison.json") or {}
    if not isinstance(table.get("methods"), dict):
        raise RunError(f"{folder / 'comparison.json'} has no methods; expected what deepsup compare wrote")
    runs = {}
    for method in table["methods"]:
        folders = [folder / name for name in table["methods"][method].get("runs", [])]
        runs[method] = [read_run(each) for each in folders if RunFolder(each).exists]
    return Comparison(folder.resolve().name, folder, table, runs)


def read_settings(path: Path) -> dict[str, Any]:
    """Read a run's settings as they stand there: an older or newer version may have had others."""
    try:
        held = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise RunError(f"cannot read {path}: {error}; expected the config of a run") from error
    return {key: current(key, value) for key, value in held.items()} if isinstance(held, dict) else {}


def read_json(path: Path) -> dict[str, Any] | None:
    """Read an object, or nothing where there is no such file."""
    if not path.is_file():
        return None
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(
            f"cannot read {path}: {error}; expected what deepsup wrote; train or inspect it again"
        ) from error
    return held if isinstance(held, dict) else None


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of a file, none where there is no such file."""
    if not path.is_file():
        return {}
    try:
        with np.load(path, allow_pickle=False) as held:
            return {name: held[name] for name in held.files}
    except (OSError, ValueError) as error:
        raise RunError(f"cannot read {path}: {error}; expected what deepsup inspect wrote; run it again") from error
