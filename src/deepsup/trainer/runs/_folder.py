"""The folder of a run: its config, environment, metrics, checkpoints and model. Needs no torch.

config.yaml         every setting by its name, resolved, without groups
environment.json    versions, threads, hardware class
split.json          the user's own images only: which of them are in the training, validation and test part
metrics.jsonl       one JSON object per epoch
result.json         written at the end: test error, companions' errors, epochs, seconds
insight.json, .npz  what the layers know about the test images: confusion, mistakes; after inspect also probes and maps
exits.json, .npz    after deepsup exits: thresholds of its early exits, what was measured, images that leave at each
diverged.json       how training diverged, until the run is resumed
changes.json        with which other lr or alpha (after a divergence), threads or versions it was resumed
checkpoints/        the checkpoints for --resume
snapshots/          the weights after some epochs, float16, with --snapshots
.lock               while a process trains: which one
model.safetensors   the trained net with everything that prediction needs
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, cast

from deepsup.errors import RunError
from deepsup.io import (
    MOST_JSON,
    Budget,
    append_line,
    check,
    disk_errors_named,
    faults_named,
    folder_below,
    read_json,
    read_yaml,
    remove,
    shape_of,
    size_of_regular,
    whole_file,
    write_whole,
)
from deepsup.trainer.config import Config

if TYPE_CHECKING:
    from deepsup.exporting import Exportable

MOST_METRICS, MOST_EPOCHS = 2**27, 2**18
"""Bytes and lines of the metrics that are read at once."""


class Result(TypedDict):
    """What ``result.json`` says of a finished run: errors in percent, None where nothing was measured."""

    error: float | None
    """On the test set."""
    companions: dict[str, float]
    epochs: int
    seconds: float
    validation_error: NotRequired[float | None]
    steps: NotRequired[int]
    limited: NotRequired[bool]
    """Whether ``limit_steps`` ended the training."""
    train_images: NotRequired[int]
    test_images: NotRequired[int]
    best_epoch: NotRequired[int | None]
    tta: NotRequired[str]
    measured_in: NotRequired[str]
    """The precision in which the errors were measured."""
    metrics: NotRequired[dict[str, Any]]
    """Of pixel labels: the IoU of each class and the like."""
    start: NotRequired[str]
    """The digest of the weights that the network started from."""


class SplitRecord(TypedDict):
    """What ``split.json`` says: which of the user's own images are in which part, and their labels."""

    classes: list[str]
    shape: list[int]
    trained: list[str]
    names: dict[str, list[str]]
    labels: dict[str, list[int]]


class Divergence(TypedDict):
    """What ``diverged.json`` says."""

    failed: str
    config: NotRequired[dict[str, Any]]
    seconds: NotRequired[float]


class Change(TypedDict):
    """One entry of ``changes.json``: from which step on a run was resumed with other settings."""

    epoch: int
    step: int
    changed: dict[str, Any]


@dataclass(frozen=True)
class RunFolder:
    """The files of a run folder, read on access. ``deepsup.Run`` can load the trained net too."""

    folder: Path
    network: Callable[..., Any] | None = None
    """What makes the network of a run that was trained with one of the user's own: reading a run imports nothing."""

    def __init__(self, folder: str | os.PathLike[str], network: Callable[..., Any] | None = None) -> None:
        object.__setattr__(self, "folder", Path(folder))
        object.__setattr__(self, "network", network)

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.folder.resolve().name

    @property
    def config(self) -> Config:
        """All settings of the run."""
        if not self._has("config.yaml"):
            raise RunError(f"{self.folder} is no run: it has no config.yaml; expected a folder that deepsup train made")
        path = self.folder / "config.yaml"
        with faults_named(path, RunError, "expected the config of a run"):
            return Config.recorded(read_yaml(path), str(path))

    @property
    def exists(self) -> bool:
        """Whether the folder contains a run, complete or not."""
        return self._has("config.yaml") or any(self.checkpoints.glob("step-*.pt"))

    @property
    def finished(self) -> bool:
        return self._has("result.json") and self._has(self.model.name)

    @property
    def has_environment(self) -> bool:
        """Whether it says what it was trained with; copies of older versions may not."""
        return self._has("environment.json")

    @property
    def environment(self) -> dict[str, Any]:
        """Versions, threads and hardware class."""
        return self._read("environment.json")

    @property
    def result(self) -> Result:
        """What was measured at the end."""
        if not self.finished:
            raise RunError(f"{self.folder} has no result yet; it was stopped or is still going: continue with --resume")
        return cast(Result, self._read("result.json", shape_of(Result)))

    @property
    def split(self) -> SplitRecord | None:
        """Which of the user's own images the run trains and tests on; None for named data sets."""
        return cast(SplitRecord, self._read("split.json", shape_of(SplitRecord))) if self._has("split.json") else None

    @property
    def diverged(self) -> Divergence | None:
        """How training diverged and with which config; None otherwise, or after a resume."""
        return (
            cast(Divergence, self._read("diverged.json", shape_of(Divergence))) if self._has("diverged.json") else None
        )

    @property
    def changes(self) -> list[Change]:
        """What was changed after each divergence, and from which epoch and step on."""
        if not self._has("changes.json"):
            return []
        return cast(list[Change], self._read("changes.json", {"changes": [shape_of(Change)]})["changes"])

    @property
    def insight(self) -> dict[str, Any]:
        """What its layers know, see docs/insight.md; empty for a run that is not finished or of an older version."""
        path = self.insight_file(".json")
        return self._read(path.name) if self._has(path.name) else {}

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One record per epoch, in order; a line that is damaged, as a crash can leave one, is left out."""
        return self.read_metrics(Budget())

    def read_metrics(self, budget: Budget) -> list[dict[str, Any]]:
        """Return the records of the epochs, as far as there is memory for them."""
        path, lines = self.folder / "metrics.jsonl", count(1)
        if not path.is_file():
            return []
        with faults_named(path, RunError, "expected one JSON object per epoch"):
            if size_of_regular(path) > MOST_METRICS:
                raise ValueError(f"it has more than {MOST_METRICS:,} bytes")
            records = []
            for line in self.lines_of_metrics():
                if next(lines) > MOST_EPOCHS:
                    raise ValueError(f"it has more than {MOST_EPOCHS:,} lines")
                budget.spend(line)
                if (record := record_of(line)) is not None:
                    records.append(record)
        return records

    def lines_of_metrics(self) -> Iterator[bytes]:
        """Yield the lines of a file of metrics of any length; none where there is none."""
        path = self.folder / "metrics.jsonl"
        if path.is_file():
            with path.open("rb") as file:
                yield from iter(partial(file.readline, MOST_JSON), b"")

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def snapshots(self) -> Path:
        """The folder of snapshots of the weights."""
        return self.folder / "snapshots"

    @property
    def model(self) -> Path:
        """The trained net."""
        return self.folder / "model.safetensors"

    def to_export(self, example: Any) -> Exportable:
        """Return the net with what its training knows, for ``deepsup.export``."""
        from deepsup.trainer.runs._export_facts import exportable

        return exportable(self, example)

    @property
    def epochs(self) -> int:
        """How many epochs have a record."""
        return sum(record_of(line) is not None for line in self.lines_of_metrics())

    def insight_file(self, suffix: str) -> Path:
        """The file of what the layers know, ``.json`` or ``.npz``."""
        return self.folder / f"insight{suffix}"

    def create(self, config: Config, environment: dict[str, Any]) -> None:
        """Make the folder with its config and environment."""
        folder_below(self.folder, self.checkpoints.name)
        self.write_json("environment.json", environment)
        write_whole(self.folder / "config.yaml", config.to_yaml().encode())

    def forget_divergence(self) -> None:
        """Mark the run as no longer diverged: it is resumed."""
        remove(self.folder / "diverged.json")

    def write_json(self, name: str, value: dict[str, Any], indent: int | None = 2) -> None:
        """Write one JSON file atomically."""
        write_whole(self.folder / name, (json.dumps(value, indent=indent) + "\n").encode())

    def add_metrics(self, record: dict[str, Any]) -> None:
        append_line(self.folder / "metrics.jsonl", json.dumps(record))

    def keep_metrics(self, epochs: int) -> None:
        """Drop the records from epoch ``epochs`` on: a resumed run writes them again."""
        with whole_file(self.folder / "metrics.jsonl") as file:
            for line in self.lines_of_metrics():
                record = record_of(line)
                if record is not None and record["epoch"] < epochs:
                    file.write(line.rstrip(b"\n") + b"\n")

    def _has(self, name: str) -> bool:
        path = self.folder / name
        with disk_errors_named(path):  # a name that is too long
            return path.is_file()

    def _read(self, name: str, shape: Any = None) -> dict[str, Any]:
        return read_json(self.folder / name, shape, "expected a folder that deepsup made")


def record_of(line: bytes) -> dict[str, Any] | None:
    """Return the record in a line of metrics; None where it is damaged."""
    with suppress(ValueError, RecursionError):
        record: dict[str, Any] = json.loads(line)
        check(record, {"epoch": int})
        return record
    return None
