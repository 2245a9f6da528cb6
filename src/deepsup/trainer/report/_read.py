"""A folder that deepsup left -> its records, whatever is missing in it: a run still going, or of an older version."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from deepsup.errors import ConfigError, RunError
from deepsup.io import Budget, below, faults_named, read_json, read_yaml, shape_of
from deepsup.trainer.config import current
from deepsup.trainer.data import StoredArrays
from deepsup.trainer.runs import Result, RunFolder

REMEDY = "expected what deepsup wrote; train or inspect it again"
EXITS = {
    "exits": {"*": {"share": float, "error": float}}, "thresholds": {"*": (float, type(None))}, "speedup": {"*": float},
    "validation": {"plain_error": float}, "curve": [{"cost": float, "error": float, "multiply_adds": float}],
    "shown": [{"exit": str, "label": str, "said": str, "index": int, "confidence": float}],
}  # fmt: skip
_RATIO = {"ratio": float, "interval": (list, type(None)), "lower": int, "pairs": int, "p": float}
COMPARISON = {"methods": {"*": {"runs?": [str]}}, "ratios?": {"*": _RATIO}, "notes?": [str], "config?": {}}

MOST_LAYERS, MOST_METHODS = 500, 64
"""What a page shows of one run, and of one comparison."""
FILES = (
    "config.yaml", "environment.json", "metrics.jsonl", "result.json", "insight.json", "insight.npz",
    "exits.json", "exits.npz",
)  # fmt: skip
"""What a page shows of a run. None of them may be a link: it would show a file of the reader's own."""
_TRIAL = {
    "method": str, "number": int, "state": str, "validation_error": (float, type(None)), "settings": {},
    "seconds": float,
}  # fmt: skip
_METHOD = {
    "trials": int, "states": {"*": int}, "validation_error": (float, type(None)), "settings": {}, "seconds": float,
}  # fmt: skip
SWEEP = {
    "best": {"method": str, "config?": str}, "methods": {"supervised": _METHOD, "plain": _METHOD}, "trials": [_TRIAL],
    "space": {"*": (dict, list)}, "config": {}, "validation_images": int,
}  # fmt: skip


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
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Images and maps that belong to ``insight``."""
    exits: dict[str, Any] = field(default_factory=dict)
    """Its early exits: see docs/exits.md."""
    exit_images: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Images that leave at each of them."""
    own_label: str = ""
    """The label that distinguishes it from other runs of its method on a page."""

    @property
    def label(self) -> str:
        """What a figure calls it."""
        return self.own_label or self.method

    @property
    def dense(self) -> bool:
        """Whether it scores every pixel, once it has ended: its errors in training are then wrong pixels."""
        return "dense" in self.insight or "metrics" in (self.result or {})

    @property
    def supervised(self) -> bool:
        """Whether it was trained with companions."""
        return self.method.startswith("DSN")

    @property
    def method(self) -> str:
        """The paper's name of what was trained."""
        plain = self.config.get("at", self.config.get("taps")) in (["none"], [], None)
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


@dataclass(frozen=True, eq=False)
class SweepRecord:
    """What ``deepsup sweep`` has left."""

    name: str
    folder: Path
    table: dict[str, Any]

    @property
    def methods(self) -> dict[str, dict[str, Any]]:
        """``supervised`` and ``plain``, with what was found."""
        methods: dict[str, dict[str, Any]] = self.table["methods"]
        return methods

    @property
    def space(self) -> dict[str, Any]:
        """Setting -> its range or choices."""
        space: dict[str, Any] = self.table["space"]
        return space

    def counted(self, method: str) -> list[dict[str, Any]]:
        """Return the trials of a method, as many as both methods have."""
        mine = [trial for trial in self.table["trials"] if trial["method"] == method]
        return mine[: self.methods[method]["trials"]]

    def errors(self) -> list[float]:
        """Return the validation errors of all trials that have one."""
        return [
            trial["validation_error"]
            for method in self.methods
            for trial in self.counted(method)
            if trial["validation_error"] is not None
        ]

    def points(self, name: str, method: str) -> list[tuple[Any, float]]:
        """Return the values of a setting with their errors, of trials that were trained to their end."""
        return [
            (trial["settings"][name], trial["validation_error"])
            for trial in self.counted(method)
            if trial["state"] == "complete" and name in trial["settings"]
        ]


def read_sweep(folder: Path, budget: Budget | None = None) -> SweepRecord:
    return SweepRecord(folder.resolve().name, folder, read_json(below(folder, "sweep.json"), SWEEP, REMEDY, budget))


def read_run(folder: Path, budget: Budget | None = None) -> RunRecord:
    """Read a run folder, within the memory that is left for a page."""
    budget = budget or Budget()
    run = RunFolder(folder)
    if not run.exists:
        _ = run.config  # says what is missing
    for name in FILES:
        below(folder, name)
    insight = read_object(run.insight_file(".json"), budget) or {}
    for key in ("layers", "probes", "agreement", "probe_agreement"):
        if isinstance(insight.get(key), dict) and len(insight[key]) > MOST_LAYERS:
            raise RunError(
                f"{run.insight_file('.json')} names {len(insight[key]):,} {key}; expected at most {MOST_LAYERS}"
            )
    return RunRecord(
        name=run.name,
        folder=folder,
        config=read_settings(folder / "config.yaml"),
        environment=read_object(folder / "environment.json", budget) or {},
        metrics=run.read_metrics(budget),
        result=read_object(folder / "result.json", budget, shape_of(Result)),
        insight=insight,
        arrays=stored_arrays(run.insight_file(".npz")),
        exits=read_object(folder / "exits.json", budget, EXITS) or {},
        exit_images=stored_arrays(folder / "exits.npz"),
    )


def read_comparison(folder: Path, budget: Budget | None = None) -> Comparison:
    """Read the folder of a comparison; each run once, however often it is named."""
    budget = budget or Budget()
    table = read_json(below(folder, "comparison.json"), COMPARISON, "expected what deepsup compare wrote", budget)
    if len(table["methods"]) > MOST_METHODS:
        raise RunError(
            f"{folder / 'comparison.json'} has {len(table['methods']):,} methods; expected at most {MOST_METHODS}"
        )
    runs, known = {}, dict[Path, RunRecord]()
    for method in table["methods"]:
        runs[method] = list[RunRecord]()
        for name in dict.fromkeys(table["methods"][method].get("runs", [])):
            path = below(folder, name)
            if path not in known and RunFolder(path).exists:
                known[path] = read_run(path, budget)
            runs[method] += [known[path]] if path in known else []
    return Comparison(folder.resolve().name, folder, table, runs)


def read_settings(path: Path) -> dict[str, Any]:
    """Read a run's settings as they stand there: an older or newer version may have had others."""
    with faults_named(path, RunError, "expected the config of a run"):
        try:
            return {key: current(key, value) for key, value in read_yaml(path).items()}
        except ConfigError as error:
            raise RunError(f"cannot read the config of a run: {error}") from error


def read_object(path: Path, budget: Budget, shape: Any = None) -> dict[str, Any] | None:
    """Read an object, or nothing where there is no such file."""
    return read_json(path, shape, REMEDY, budget) if path.is_file() else None


def stored_arrays(path: Path) -> Mapping[str, np.ndarray]:
    """Return the arrays of a file, each read when it is drawn; none where there is no such file."""
    if not path.is_file():
        return {}
    with faults_named(path, RunError, "expected what deepsup inspect wrote; run it again"):
        return StoredArrays(path)
