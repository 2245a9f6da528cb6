"""Runs to train -> their results; one after the other in this process, or several at a time in their own processes."""

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from deepsup.config import Config
from deepsup.errors import DivergedError, TrainingError
from deepsup.runs.begin import check_same, with_whole_path
from deepsup.runs.folder import RunFolder
from deepsup.runs.train import train

DIVERGED = 101.0  # percent: worse than any error


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


class pool(AbstractContextManager[RunAll]):  # noqa: N801 - used like a function
    """Processes to train in; gives a function that turns jobs into results, in the order of the jobs."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.threads = max(1, (os.cpu_count() or 1) // jobs)
        self.executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> RunAll:
        if self.jobs > 1:
            self.executor = ProcessPoolExecutor(
                self.jobs,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=end_with_parent,
                initargs=(os.getpid(),),
            )
        return self.run_all

    def __exit__(self, *_: object) -> None:
        if self.executor is not None:
            self.executor.shutdown(wait=True, cancel_futures=True)

    def run_all(self, jobs: Sequence[Job], ended: Callable[[Job, int], None]) -> list[dict[str, Any]]:
        """Run all jobs; call ``ended`` with each job that has ended and how many have."""
        if self.executor is None:
            results = []
            for count, job in enumerate(jobs, 1):
                results.append(run_job(job, self.threads))
                ended(job, count)
            return results
        try:
            futures = {self.executor.submit(run_job, job, self.threads, keep_memory=True): job for job in jobs}
            for count, future in enumerate(as_completed(futures), 1):
                future.result()
                ended(futures[future], count)
        except BrokenProcessPool as error:
            raise TrainingError(
                "a process that trained was killed, perhaps for lack of memory; finished runs and checkpoints are "
                "kept: give the same command again to continue, with fewer --jobs if memory is short"
            ) from error
        return [future.result() for future in futures]


def end_with_parent(parent: int) -> None:
    """End this process when its parent has ended; a Ctrl-C is the parent's to answer."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=watch, daemon=True).start()


def run_job(job: Job, threads: int, keep_memory: bool = False) -> dict[str, Any]:
    """Train or resume one run; a divergence is a result too, and is not trained again."""
    run = RunFolder(job.folder)
    if run.diverged is not None:
        check_same(run, with_whole_path(job.config).to_dict(), Config.recorded(run.diverged["config"]).to_dict())
        return failure(run)
    before, logger = torch.get_num_threads(), logging.getLogger("deepsup")
    torch.set_num_threads(threads)
    level = logger.level
    logger.setLevel(logging.ERROR)  # notes on the data are logged once, when the study loads them
    try:
        return train(job.config, job.folder, resume=True, keep_memory=keep_memory).result
    except DivergedError:
        return failure(run)
    finally:
        torch.set_num_threads(before)
        logger.setLevel(level)


def failure(run: RunFolder) -> dict[str, Any]:
    """Return the result of a run that has diverged."""
    assert run.diverged is not None
    return {"failed": run.diverged["failed"], "validation_error": DIVERGED}
