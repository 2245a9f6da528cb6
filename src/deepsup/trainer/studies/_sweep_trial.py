"""One trial of a sweep: a run that reports its validation error after epochs, and ends early if it is not promising."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import optuna

from deepsup.errors import (
    ConfigError,
    DivergedError,
    NetworkError,
    ObjectiveError,
    SupervisionError,
    TrainingError,
)
from deepsup.trainer.config import Config
from deepsup.trainer.runs import RunFolder
from deepsup.trainer.studies._pool import DIVERGED, train_quietly
from deepsup.trainer.studies._sweep_storage import StorageError, storage_named, storage_of
from deepsup.trainer.training import Callback, Deadline, Training


@dataclass(frozen=True)
class TrialTask:
    """A trial to train."""

    storage: str
    study: str
    method: str
    id: int
    """In the storage."""
    number: int
    """In the study, from 0: the defaults."""
    config: Config
    folder: Path
    left: float
    """Seconds after which the run is stopped and saved. No time of day: clocks are set, and machines have their own."""

    def __str__(self) -> str:
        return f"{self.method}, trial {self.number}"


class TrialOutcome(TypedDict):
    """What came out of a trial."""

    state: str
    """``complete``, ``pruned``, ``diverged``, ``failed`` or ``stopped``."""
    validation_error: float | None
    epochs: int
    seconds: float
    why: str
    done: NotRequired[float]
    """Of one that was stopped: the part of its training that was done in these seconds."""


def run_trial(task: TrialTask, threads: int, keep_memory: bool = False) -> TrialOutcome:
    """Train or resume a trial; return its state and, if it was trained to the end, its validation error."""
    began, deadline = time.monotonic(), Deadline(time.monotonic() + task.left)

    def ended(state: str, error: float | None = None, why: str = "") -> TrialOutcome:
        epochs, seconds = RunFolder(task.folder).epochs, round(time.monotonic() - began, 3)
        return {"state": state, "validation_error": error, "epochs": epochs, "seconds": seconds, "why": why}

    if RunFolder(task.folder).diverged is not None:
        return ended("diverged", DIVERGED)
    try:
        run = train_quietly(task.config, task.folder, threads, keep_memory, [Pruning(task), deadline])
    except PrunedError:
        return ended("pruned")
    except StorageError:  # nothing is wrong with the trial
        raise
    except DivergedError as error:
        return ended("diverged", DIVERGED, str(error))
    except (SupervisionError, ObjectiveError, ConfigError, NetworkError) as error:
        if task.number == 0:  # the config itself is wrong, not a choice of the search
            raise
        return ended("failed", why=str(error))
    except TrainingError:
        if not deadline.passed:
            raise
        return {**ended("stopped"), "done": deadline.done, "seconds": deadline.seconds}
    return {**ended("complete", run.result["validation_error"]), "seconds": run.result["seconds"]}


class PrunedError(Exception):
    """Ends the training of a trial that is not promising."""


class Pruning(Callback):
    """Reports the validation errors of a trial, and ends it where the pruner says so."""

    def __init__(self, task: TrialTask) -> None:
        self.id, self.where, self.storage = task.id, task.storage, storage_of(task.storage)
        with storage_named(self.where):
            pruner = pruner_of(task.config)
            self.study = optuna.load_study(study_name=task.study, storage=self.storage, pruner=pruner)

    def started(self, training: Training) -> None:  # noqa: ARG002
        """Look at what was reported before the trial was stopped."""
        self.decide()

    def epoch_ended(self, training: Training, record: dict[str, Any]) -> None:  # noqa: ARG002
        """Report the error, unless a resumed trial measures it for the second time."""
        if "validation_error" not in record:
            return
        with storage_named(self.where):
            reported = record["epoch"] in self.storage.get_trial(self.id).intermediate_values
            if not reported:
                self.storage.set_trial_intermediate_value(self.id, record["epoch"], record["validation_error"])
        if not reported:
            self.decide()

    def decide(self) -> None:
        """End the training if the trial is not promising."""
        with storage_named(self.where):
            trial = self.storage.get_trial(self.id)
            pruned = bool(trial.intermediate_values) and self.study.pruner.prune(self.study, trial)
        if pruned:
            raise PrunedError


def pruner_of(config: Config) -> optuna.pruners.BasePruner:
    """Return what ends a trial: from a third of its epochs on, a best error above the median of earlier trials."""
    return optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=config.total_epochs // 3)
