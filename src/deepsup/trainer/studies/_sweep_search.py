"""The search of one net, with or without companions: an Optuna study that hands out trials and takes their results."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypedDict, cast

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from deepsup.io import below, check, file_name, shape_of
from deepsup.trainer.config import Config
from deepsup.trainer.runs import LockedError, owned
from deepsup.trainer.studies._sweep_space import Choice, Range, Space, contains, name_of_choice, own_value
from deepsup.trainer.studies._sweep_storage import storage_named, storage_of
from deepsup.trainer.studies._sweep_trial import TrialOutcome, TrialTask
from deepsup.trainer.training import Processes

STATES = {"complete": TrialState.COMPLETE, "diverged": TrialState.COMPLETE, "pruned": TrialState.PRUNED}
"""Ours -> Optuna's; all others are failed."""
UNOWNED = 60.0
"""Seconds after which a trial that no process has claimed was lost with the process that asked for it."""


class TrialRecord(TypedDict):
    """A trial that has ended, as ``sweep.json`` has it."""

    method: str
    number: int
    state: str
    validation_error: float | None
    settings: dict[str, Any]
    epochs: int
    seconds: float
    why: str


class SeededSampler(optuna.samplers.BaseSampler):
    """Gives the defaults to trial 0 and TPE's proposals to the others, with a seed of its own for each.

    So a search that was stopped goes on as if it had not been, and two processes propose different settings.
    """

    def __init__(self, seed: int, defaults: Mapping[str, Any]) -> None:
        self.seed, self.defaults = seed, defaults
        self.inner = optuna.samplers.TPESampler(seed=seed)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Start from the trial's own seed."""
        self.inner = optuna.samplers.TPESampler(seed=1_000_003 * self.seed + trial.number)
        self.inner.before_trial(study, trial)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:  # noqa: ARG002
        """Sample every setting by itself."""
        return {}

    def sample_relative(self, *_: object) -> dict[str, Any]:
        """Sample nothing together."""
        return {}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return the default, or TPE's proposal."""
        if trial.number == 0:
            return self.defaults[param_name]
        return self.inner.sample_independent(study, trial, param_name, param_distribution)


@dataclass
class Search:
    """The search of one net."""

    method: str
    """``supervised`` or ``plain``."""
    config: Config
    """Of a trial, with the settings that are not searched."""
    space: Space
    storage: str
    name: str
    """Of the study in the storage."""
    folder: Path
    """Of the sweep."""
    owner: str
    """This process, in a word."""

    def __post_init__(self) -> None:
        self.defaults = {name: own_value(self.config, name) for name in self.space}
        named = {
            name: name_of_choice(value) if isinstance(self.space[name], Choice) else value
            for name, value in self.defaults.items()
        }
        with storage_named(self.storage):
            self.study = optuna.create_study(
                study_name=self.name,
                storage=storage_of(self.storage),
                load_if_exists=True,
                sampler=SeededSampler(self.config.run.seed, named),
            )

    def ask(self, deadline: float) -> TrialTask:
        """Return a new trial, which belongs to this process."""
        with storage_named(self.storage):
            return self.task(self.study.ask(), deadline)

    def adopt(self, deadline: float) -> Iterator[TrialTask]:
        """Yield the trials of processes that are gone: they go on where they were stopped."""
        for frozen in self.trials(TrialState.RUNNING):
            with storage_named(self.storage):
                task = (
                    None if self.is_alive(frozen) else self.task(optuna.Trial(self.study, frozen._trial_id), deadline)
                )
            if task is not None:
                yield task

    def trials(self, *states: TrialState) -> list[FrozenTrial]:
        """Return the trials that are in these states; by default all."""
        with storage_named(self.storage):
            return self.study.get_trials(deepcopy=False, states=states or None)

    def is_alive(self, trial: FrozenTrial) -> bool:
        """Whether the process that trains a trial is still there; the lock of its folder says so."""
        owner = trial.user_attrs.get("owner")
        if owner is None:
            begun = trial.datetime_start or datetime.now()
            return abs(time.time() - begun.timestamp()) < UNOWNED  # the clock may have been set meanwhile
        return owner != self.owner and is_owned(below(self.folder, ".drivers", file_name(str(owner))))

    def others(self) -> int:
        """Return how many trials other processes are training."""
        with storage_named(self.storage):
            return sum(self.is_alive(trial) for trial in self.trials(TrialState.RUNNING))

    def task(self, trial: optuna.Trial, deadline: float) -> TrialTask:
        """Claim a trial, and return what to train."""
        trial.set_user_attr("owner", self.owner)
        for name, each in self.space.items():
            if trial.number or contains(each, self.defaults[name]):  # the defaults may be outside of the space
                suggest(trial, name, each)
        config = self.config.replace(**self.values(trial.params))
        folder = below(self.folder, "trials", f"{self.method}-{trial.number:04d}")
        id_ = trial._trial_id
        left = deadline - time.monotonic()
        return TrialTask(self.storage, self.name, self.method, id_, trial.number, config, folder, left)

    def values(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a trial: a choice is the value that its name stands for."""
        values = {}
        for name, value in params.items():
            each = self.space[name]  # the storage may be a stranger's: another name is an error
            values[name] = each.named()[value] if isinstance(each, Choice) else value
        return values

    def tell(self, task: TrialTask, outcome: TrialOutcome) -> None:
        """Record what came out of a trial; a stopped one goes on when the sweep is resumed."""
        if outcome["state"] == "stopped":
            return
        state = STATES.get(outcome["state"], TrialState.FAIL)
        error = outcome["validation_error"] if state == TrialState.COMPLETE else None
        with storage_named(self.storage):
            storage = storage_of(self.storage)
            for key, value in outcome.items():
                if key in ("state", "epochs", "seconds", "why"):
                    storage.set_trial_user_attr(task.id, key, value)
            self.study.tell(task.number, error, state, skip_if_finished=True)

    def count(self) -> int:
        """Return how many trials there are, ended or not."""
        return len(self.trials())

    def records(self) -> list[TrialRecord]:
        """Return the trials that have ended, in order."""
        with storage_named(self.storage):
            return [self.record(trial) for trial in self.trials() if trial.state.is_finished()]

    def record(self, trial: FrozenTrial) -> TrialRecord:
        """Return a trial that has ended; the storage may be a stranger's."""
        record = {
            "method": self.method,
            "number": trial.number,
            "state": trial.user_attrs.get("state", "failed"),
            "validation_error": trial.value if trial.state == TrialState.COMPLETE else None,
            "settings": self.settings(trial),
            "epochs": trial.user_attrs.get("epochs", 0),
            "seconds": trial.user_attrs.get("seconds", 0.0),
            "why": trial.user_attrs.get("why", ""),
        }
        check(record, shape_of(TrialRecord))
        return cast(TrialRecord, record)

    def settings(self, trial: FrozenTrial) -> dict[str, Any]:
        """Return all searched settings of a trial, in plain types; of trial 0 also those outside of the space."""
        changed = {**self.defaults, **self.values(trial.params)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in changed.items()}

    def importance(self) -> dict[str, float]:
        """Return setting -> its share of the variance of the error, the most important first.

        Nothing is returned where fewer trials than settings, or fewer than four, were trained to their end.
        """
        ended = [
            trial
            for trial in self.trials(TrialState.COMPLETE)
            if len(trial.params) == len(self.space) and trial.user_attrs.get("state") == "complete"
        ]
        if len({trial.value for trial in ended}) < max(4, len(self.space)) or len(self.space) < 2:
            return {}
        copy = optuna.create_study()
        copy.add_trials(ended)
        if importlib.util.find_spec("sklearn") is None:  # which fANOVA needs
            evaluator: Any = optuna.importance.PedAnovaImportanceEvaluator()
        else:
            evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
        shares = optuna.importance.get_param_importances(copy, evaluator=evaluator)
        return {name: float(share) for name, share in shares.items()}


def is_owned(folder: Path) -> bool:
    """Whether a process owns a folder."""
    if not folder.is_dir():
        return False
    try:
        with owned(folder, Processes()):
            return False
    except LockedError:
        return True


def suggest(trial: optuna.Trial, name: str, space: Range | Choice) -> None:
    """Have the sampler choose a value; a trial that has one keeps it."""
    if isinstance(space, Choice):
        trial.suggest_categorical(name, tuple(space.named()))
    elif isinstance(space.low, int) and isinstance(space.high, int):
        trial.suggest_int(name, space.low, space.high, log=space.log)
    else:
        trial.suggest_float(name, space.low, space.high, log=space.log)
