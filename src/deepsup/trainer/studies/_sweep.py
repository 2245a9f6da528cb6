"""A config and a space -> the best settings with companions and without, found on validation images, equal trials."""

from __future__ import annotations

import json
import logging
import os
import platform
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from deepsup.errors import ConfigError, TrainingError
from deepsup.io import below, file_name, write_whole
from deepsup.trainer.config import Config
from deepsup.trainer.runs import on_error_resume, owned
from deepsup.trainer.studies._compare import check_device
from deepsup.trainer.studies._engine import Engine, Workers
from deepsup.trainer.studies._forecast import Forecast
from deepsup.trainer.studies._pool import Job, whole
from deepsup.trainer.studies._rate_choice import Watcher, check_one_rate, held_out
from deepsup.trainer.studies._sweep_settings import Sweep, alone, prepared
from deepsup.trainer.studies._sweep_space import COMPANIONS
from deepsup.trainer.training import Processes

if TYPE_CHECKING:
    from deepsup.trainer.studies._sweep_search import Search
    from deepsup.trainer.studies._sweep_trial import TrialOutcome

METHODS = ("supervised", "plain")
TRIALS = 20
"""Trials per method where neither a number nor a budget is given."""
SPARE = 2000
"""Validation images, if so many are not trained on: they are looked at after many epochs."""
logger = logging.getLogger("deepsup")


def sweep(
    config: Config | None,
    out: str | os.PathLike[str],
    *,
    space: str | os.PathLike[str] | None = None,
    trials: int | None = None,
    budget: float | None = None,
    seeds: int = 3,
    storage: str | None = None,
    resume: bool = False,
    engine: Engine | None = None,
    watch: Watcher = lambda *_: None,
) -> dict[str, Any]:
    """Search the settings of the net with companions, and with as many trials those of the plain net.

    config: data, network and epochs of a run, and the defaults: the first trial of each method; None: with ``resume``
        those of the folder.
    out: the folder of all runs; several processes, on machines that share it, may search together (``resume``).
    space: a YAML file of settings and their ranges; default: learning rate, weight decay and the companions' settings.
    trials: per method; default: 20, or with a budget as many as there is time for.
    budget: minutes for everything, the final runs included.
    seeds: final runs per method, with its best settings, on all images; they read the test set. A budget that is too
        small for so many has fewer.
    storage: a database URL or a journal file; default: an SQLite file in ``out``.
    watch: called with the run that has ended, how many have, and how many there are (0: it is not known).
    """
    engine = engine or Engine()
    check_arguments(config, trials, budget, seeds)
    folder = Path(out)
    with on_error_resume(), ExitStack() as stack:
        owner = file_name(f"{platform.node()}-{os.getpid()}-{uuid4().hex[:8]}")
        with alone(below(folder, ".setup")):
            made = prepared(config, folder, None if space is None else Path(space), storage, resume)
            stack.enter_context(owned(below(folder, ".drivers", owner), Processes()))
            searches = [search_of(method, made, folder, owner) for method in METHODS]
        check_device(made.config, engine)
        workers = stack.enter_context(engine.workers(folder))
        limit = trials or (None if budget else TRIALS)
        run = Searching(searches, limit, budget, seeds, watch)
        if budget is not None:
            run.forecast(workers, Job("supervised", "forecast", made.config, below(folder, "forecast")))
        run.all_trials(workers)
        run.check_enough()
        return finished(run, made, folder, workers, {"trials": limit, "budget": budget})


def finished(run: Searching, made: Sweep, folder: Path, workers: Workers, limits: dict[str, Any]) -> dict[str, Any]:
    """Return the answer; if other processes are still training trials, the last of them trains the winners."""
    from deepsup.trainer.studies._sweep_summary import add_finals, summarised

    searches = list(run.searches.values())
    others = sum(search.others() for search in searches)
    if others:
        return summarised(searches, made, limits) | {"others": others}
    with alone(below(folder, ".final"), seconds=3600):  # two processes may end at the same time
        answer = summarised(searches, made, limits) | {"others": 0}
        add_finals(answer, made, folder, run.seeds, workers, run.watch)
        answer["seconds"] = round(time.monotonic() - run.began, 1)
        write_whole(folder / "sweep.json", (json.dumps(answer, indent=1) + "\n").encode())
    return answer


def check_arguments(config: Config | None, trials: int | None, budget: float | None, seeds: int) -> None:
    """Refuse what cannot be swept, before anything is written."""
    for name, number in (("trials", trials), ("seeds", seeds)):
        if number is not None and number < 1:
            raise ConfigError(f"{name}={number}; expected at least 1")
    if budget is not None and not 0 < budget < 1e7:
        raise ConfigError(f"budget={budget:g}; expected minutes, more than 0")
    if config is not None:
        check_one_rate(config, "sweep")


def search_of(method: str, made: Sweep, folder: Path, owner: str) -> Search:
    """Return the search of one method; the plain net is searched over the settings that mean something for it."""
    from deepsup.trainer.studies._sweep_search import Search
    from deepsup.trainer.studies._sweep_summary import method_config

    config = for_trials(method_config(made.config, method))
    space = {name: each for name, each in made.space.items() if method == "supervised" or name not in COMPANIONS}
    name = f"deepsup-{made.id}-{method}"
    return Search(method, config, space, made.storage, name, folder.absolute(), owner)


def for_trials(config: Config) -> Config:
    """Return the config of a trial: judged on validation images about ten times, without records that cost time."""
    every = max(1, config.total_epochs // 10)
    return held_out(config, SPARE).replace(validate_every=every, tensorboard=False, gradient_every=0)


class Searching:
    """Trains trials of both methods in turn until there are enough, or the time is over."""

    def __init__(
        self, searches: list[Search], limit: int | None, budget: float | None, seeds: int, watch: Watcher
    ) -> None:
        self.searches = {search.method: search for search in searches}
        self.limit, self.budget, self.seeds, self.watch = limit, budget, seeds, watch
        self.began = time.monotonic()
        self.deadline = self.began + 60 * (budget or 1e9)
        self.lasted: list[float] = []
        self.ended, self.done, self.needs = 0, 0.0, 0.0
        self.parallel, self.expected = 1, 0.0

    def forecast(self, workers: Workers, job: Job) -> None:
        """Take a few steps of a run; plan fewer final runs if the budget is too small for all, or refuse it."""
        self.expected = Forecast(workers, [job]).seconds([whole(job)])
        runs = 60 * (self.budget or 0) * workers.room() / max(self.expected, 1e-9)
        fitting = min(self.seeds, int(runs - 2) // 2)
        if fitting < 1:
            raise self.too_small(self.expected, 1, workers.room())
        if fitting < self.seeds:
            logger.info("--budget %g: %d of %d final runs per net", self.budget, fitting, self.seeds)
            self.seeds = fitting

    def all_trials(self, workers: Workers) -> None:
        """Train until the search is over."""
        from deepsup.trainer.studies._sweep_trial import run_trial

        self.parallel = workers.room()
        total = (self.limit or 0) * len(self.searches)
        for task, outcome in workers.stream(run_trial, self.tasks()):
            self.searches[task.method].tell(task, outcome)
            self.note(outcome)
            self.ended += 1
            error = outcome["validation_error"]
            verdict = outcome["state"] if error is None or error > 100 else f"validation error {error:.2f} %"
            self.watch(f"{task}: {verdict}", self.ended, total)

    def tasks(self) -> Iterator[Any]:
        """Yield trials: those that were stopped, then new ones, each method in turn."""
        for search in self.searches.values():
            yield from search.adopt(self.deadline)
        while True:
            counts = {method: search.count() for method, search in self.searches.items()}
            open_ = {method: count for method, count in counts.items() if count < self.most(method)}
            if not open_ or (time.monotonic() > self.deadline and all(counts.values())):
                return
            method = min(open_, key=lambda name: open_[name])
            if len(set(open_.values())) == 1 and not self.fits():
                return
            yield self.searches[method].ask(self.deadline)

    def most(self, method: str) -> float:
        """Return how many trials a method gets; where nothing is searched, one is the whole search."""
        return (self.limit or float("inf")) if self.searches[method].space else 1

    def note(self, outcome: TrialOutcome) -> None:
        """Note how long a run takes, or would have taken."""
        if outcome["state"] == "stopped" and outcome["done"] > self.done:  # one step says little
            self.done, self.needs = outcome["done"], outcome["seconds"] / outcome["done"]
        if outcome["state"] == "complete":
            self.lasted.append(outcome["seconds"])

    def fits(self) -> bool:
        """Whether a trial of each method and the final runs still fit into the time."""
        runs = max(2.0, (2 + 2 * self.seeds) / self.parallel)
        longest = max(mean(self.lasted), self.expected) if self.lasted else self.expected
        return time.monotonic() + runs * longest <= self.deadline

    def check_enough(self) -> None:
        """Refuse a budget in which not one run of each method has ended."""
        for search in self.searches.values():
            if search.others() or any(trial["state"] == "complete" for trial in search.records()):
                continue
            if not self.needs:
                raise TrainingError(f"no trial of the {search.method} net trained to its end; lower the learning rates")
            raise self.too_small(mean(self.lasted) if self.lasted else self.needs, self.seeds, self.parallel)

    def too_small(self, run: float, seeds: int, parallel: int) -> TrainingError:
        """Return the error about a budget in which a run of each net and the final runs do not fit."""
        minutes = max((2 + 2 * seeds) * run / parallel / 60, 0.1)
        return TrainingError(
            f"a budget of {self.budget:g} minutes is too small for one run of each net; expected at least about "
            f"{minutes:.1f}; resume with --resume and a larger --budget"
        )
