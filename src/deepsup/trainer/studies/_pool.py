"""Runs to train -> their results, in order; each is resumed where it was stopped, and a divergence is a result."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from deepsup.errors import DivergedError, WriteError
from deepsup.io import below
from deepsup.trainer.config import Config
from deepsup.trainer.runs import LockedError, Run, RunFolder, as_settled, check_same, train, with_whole_names
from deepsup.trainer.studies._engine import Engine, Workers
from deepsup.trainer.training import Callback

DIVERGED = 101.0  # percent: worse than any error
PATIENCE = 60.0  # seconds: the processes of a driver that was killed end a moment after it


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


RunAll = Callable[[Sequence[Job], Callable[[Job, int], None]], list[dict[str, Any]]]


@contextmanager
def pool(engine: Engine | int, folder: Path = Path()) -> Iterator[RunAll]:
    """Give a function that turns jobs into results, in the order of the jobs.

    engine: where to train; a number: so many at a time on this machine.
    folder: of all runs.
    """
    engine = Engine(jobs=engine) if isinstance(engine, int) else engine
    with engine.workers(folder) as workers:
        yield partial(run_with, workers, folder)


def run_with(
    workers: Workers, folder: Path, jobs: Sequence[Job], ended: Callable[[Job, int], None]
) -> list[dict[str, Any]]:
    """Run all jobs of a study in its folder; call ``ended`` with each job that has ended and how many have."""
    check_below(folder, jobs)
    results = {}
    for count, (job, result) in enumerate(workers.stream(run_job, [whole(job) for job in jobs]), 1):
        results[job.folder] = result
        ended(job, count)
    return [results[whole(job).folder] for job in jobs]


def check_below(folder: Path, jobs: Sequence[Job]) -> None:
    """Refuse a run folder that is a link and leads out of the folder of the study."""
    for job in jobs:
        if job.folder.is_relative_to(folder):
            below(folder, *job.folder.relative_to(folder).parts)


def whole(job: Job) -> Job:
    """Return a job with absolute paths: it may be trained in another process, on another machine."""
    return replace(job, config=with_whole_names(job.config), folder=job.folder.absolute())


def run_job(job: Job, threads: int, keep_memory: bool = False) -> dict[str, Any]:
    """Train or resume one run; a divergence is a result too, and is not trained again."""
    run = RunFolder(job.folder)
    if run.diverged is not None:
        lost = Config.recorded(run.diverged["config"])
        check_same(run, as_settled(with_whole_names(job.config), lost).to_dict(), lost.to_dict())
        return failure(run)
    try:
        return {**train_quietly(job.config, job.folder, threads, keep_memory).result}
    except DivergedError:
        return failure(run)
    except WriteError as error:
        error.again = "give the same command again"
        raise


def train_quietly(
    config: Config, folder: Path, threads: int, keep_memory: bool = False, callbacks: Sequence[Callback] = ()
) -> Run:
    """Train or resume one run with so many threads; if a killed study's process still owns it, wait a little."""
    deadline = time.monotonic() + PATIENCE
    with quiet(threads):
        while True:
            try:
                return train(config, folder, resume=True, keep_memory=keep_memory, callbacks=callbacks)
            except LockedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)


@contextmanager
def quiet(threads: int) -> Iterator[None]:
    """Compute with so many threads; notes on the data are logged once, when the study loads them."""
    before, logger = torch.get_num_threads(), logging.getLogger("deepsup")
    torch.set_num_threads(threads)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        logger.setLevel(level)


def failure(run: RunFolder) -> dict[str, Any]:
    """Return the result of a run that has diverged."""
    assert run.diverged is not None
    seconds = run.diverged.get("seconds", 0.0)  # older runs have none
    return {"failed": run.diverged["failed"], "validation_error": DIVERGED, "seconds": seconds}
