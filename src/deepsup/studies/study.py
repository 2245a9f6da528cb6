"""Arms, each with settings to choose from -> for each the choice on validation images and the runs of all its seeds."""

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from deepsup.config import Config
from deepsup.data import load_data
from deepsup.errors import DivergedError, TrainingError
from deepsup.runs.begin import check_same, with_whole_path
from deepsup.runs.folder import RunFolder
from deepsup.runs.train import train

DIVERGED = 101.0  # percent: worse than any error
Watcher = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Method:
    """One side of a study: what to train, with which settings to choose from, and how often."""

    name: str
    choices: Mapping[str, Config]
    """A short name -> the config; a single one needs no choosing."""
    seeds: int = 3
    searches: int = 1
    """How many seeds judge a choice."""
    trial: Callable[[Config], Config] = lambda config: config
    """Turns a config into a cheaper one to choose by."""


@dataclass(frozen=True)
class Job:
    """One run of a study."""

    method: str
    choice: str
    config: Config
    folder: Path

    def __str__(self) -> str:
        stage = "" if self.config.run.test else "choosing: "
        return f"{stage}{self.method}, {self.choice}, seed {self.config.run.seed}"


@dataclass(frozen=True)
class Outcome:
    """What came out of an method."""

    method: str
    choice: str
    config: Config
    """Of the first seed."""
    search: dict[str, float]
    """Choice -> its mean validation error in percent, 101 where it diverged; empty where there was no choice."""
    jobs: list[Job]
    results: list[dict[str, Any]]
    """One a job: ``result.json``, or ``failed`` with the reason where the training diverged."""


def run_study(
    methods: Sequence[Method], folder: Path, run_all: "RunAll", watch: Watcher = lambda *_: None
) -> list[Outcome]:
    """Choose for every method on validation images, then train all its seeds on all images and read the test set once.

    What ``folder`` holds already is not run again. ``watch`` is told what has ended, how many have, and of how many.
    """
    searches = [job for method in methods for job in search_jobs(method, folder)]
    total = len(searches) + sum(method.seeds for method in methods)
    found = run_all(searches, lambda job, done: watch(str(job), done, total))
    scores: dict[str, dict[str, list[float]]] = {method.name: {} for method in methods}
    for job, result in zip(searches, found, strict=True):
        scores[job.method].setdefault(job.choice, []).append(result["validation_error"])
    chosen = {method.name: choose(method, scores[method.name]) for method in methods}
    finals = [job for method in methods for job in final_jobs(method, chosen[method.name], folder)]
    results = run_all(finals, lambda job, done: watch(str(job), len(searches) + done, total))
    outcomes, start = [], 0
    for method in methods:
        jobs, got = finals[start : start + method.seeds], results[start : start + method.seeds]
        search = {choice: mean(each) for choice, each in scores[method.name].items()}
        outcomes.append(Outcome(method.name, jobs[0].choice, jobs[0].config, search, jobs, got))
        start += method.seeds
    return outcomes


def search_jobs(method: Method, folder: Path) -> Iterator[Job]:
    """Yield a run for every choice, judged on images that are held out of training; the test set is not read."""
    if len(method.choices) < 2:
        return
    for choice, config in method.choices.items():
        trial = method.trial(config)
        available = len(load_data(trial.data.source, image_size=trial.data.image_size).train)
        wanted = trial.data.train_size or available
        held = max(1, min(max(available // 5, available - wanted), 5000))  # all not trained on, at least a fifth
        size = min(wanted, available - held)
        for seed in range(trial.run.seed, trial.run.seed + method.searches):
            candidate = trial.replace(
                validation=held, train_size=size, validate_every=0, test=False, test_every=0, seed=seed
            )
            yield Job(method.name, choice, candidate, folder / "search" / f"{slug(method.name)}-{choice}-seed{seed}")


def choose(method: Method, scores: Mapping[str, Sequence[float]]) -> str:
    """Return the choice with the lowest mean validation error; the first of those that are equal."""
    if not scores:
        return next(iter(method.choices))
    best = min(scores, key=lambda choice: mean(scores[choice]))
    if mean(scores[best]) > 100:
        raise TrainingError(f"{method.name} diverges at every rate tried; expected one that trains; give lower --rates")
    return best


def final_jobs(method: Method, choice: str, folder: Path) -> Iterator[Job]:
    """Yield the runs of one method: one a seed, with the settings chosen."""
    config = method.choices[choice]
    for seed in range(config.run.seed, config.run.seed + method.seeds):
        name = f"{slug(method.name)}-{choice}-seed{seed}"
        yield Job(method.name, choice, config.replace(seed=seed), folder / name)


def slug(name: str) -> str:
    """Return a name as part of a folder's."""
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower()).replace("--", "-").strip("-")


RunAll = Callable[[Sequence[Job], Callable[[Job, int], None]], list[dict[str, Any]]]


class pool(AbstractContextManager[RunAll]):  # noqa: N801 - used like a function
    """Processes to train in: gives a function from jobs to results, in the order of the jobs."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.threads = max(1, (os.cpu_count() or 1) // jobs)
        self.executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> RunAll:
        if self.jobs > 1:
            self.executor = ProcessPoolExecutor(
                self.jobs,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=leave_with,
                initargs=(os.getpid(),),
            )
        return self.run_all

    def __exit__(self, *_: object) -> None:
        if self.executor is not None:
            self.executor.shutdown(wait=True, cancel_futures=True)

    def run_all(self, jobs: Sequence[Job], ended: Callable[[Job, int], None]) -> list[dict[str, Any]]:
        """Run all jobs and tell of each that has ended."""
        if self.executor is None:
            results = []
            for count, job in enumerate(jobs, 1):
                results.append(run_job(job, self.threads))
                ended(job, count)
            return results
        futures = {self.executor.submit(run_job, job, self.threads): job for job in jobs}
        for count, future in enumerate(as_completed(futures), 1):
            future.result()
            ended(futures[future], count)
        return [future.result() for future in futures]


def leave_with(parent: int) -> None:
    """End this process when its parent has gone; a Ctrl-C is the parent's to answer."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=watch, daemon=True).start()


def run_job(job: Job, threads: int) -> dict[str, Any]:
    """Train one run, or go on with it; a divergence is a result too, and stays one."""
    run = RunFolder(job.folder)
    if run.diverged is not None:
        check_same(run, with_whole_path(job.config).to_dict(), Config.recorded(run.diverged["config"]).to_dict())
        return failure(run)
    before, logger = torch.get_num_threads(), logging.getLogger("deepsup")
    torch.set_num_threads(threads)
    level = logger.level
    logger.setLevel(logging.ERROR)  # notes on the data were told when the study looked at them
    try:
        return train(job.config, job.folder, resume=True).result
    except DivergedError:
        return failure(run)
    finally:
        torch.set_num_threads(before)
        logger.setLevel(level)


def failure(run: RunFolder) -> dict[str, Any]:
    """Return the result of a run that has diverged."""
    assert run.diverged is not None
    return {"failed": run.diverged["failed"], "validation_error": DIVERGED}
