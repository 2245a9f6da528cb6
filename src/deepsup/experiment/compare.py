"""One config -> the paper's four methods on the same data, seeds and budget, and whether companions help."""

import dataclasses
import json
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from deepsup.config import Config
from deepsup.data import load_data
from deepsup.errors import ConfigError, DivergedError, TrainingError
from deepsup.experiment.build import device_of
from deepsup.experiment.train import train
from deepsup.record import write_whole

# name -> loss, and whether the net has companions
METHODS = {
    "CNN-Softmax": ("softmax", False),
    "DSN-Softmax": ("softmax", True),
    "CNN-SVM": ("squared_hinge", False),
    "DSN-SVM": ("squared_hinge", True),
}
RATES = (0.003, 0.01, 0.03, 0.1)


@dataclasses.dataclass(frozen=True)
class Job:
    """One run of a comparison."""

    method: str
    config: Config
    folder: Path


def compare(
    config: Config,
    out: str | os.PathLike[str],
    *,
    seeds: int = 3,
    rates: Sequence[float] = RATES,
    jobs: int = 1,
    watch: Callable[[str, int, int], None] = lambda *_: None,
) -> dict[str, Any]:
    """Train CNN-Softmax, DSN-Softmax, CNN-SVM and DSN-SVM with every seed, each at the rate chosen on validation.

    config: data, network, budget and the companions' settings; its loss and taps are the methods' own.
    rates: learning rates to choose from, for each method, by the validation error of the first seed; the test set is
        not read for it.
    jobs: processes to train in at a time. A comparison that was stopped goes on with the runs that are missing.
    watch: called with what has ended, how many have, and how many there are.
    """
    if seeds < 1 or jobs < 1:
        raise ConfigError(f"seeds={seeds}, jobs={jobs}; expected at least 1 of each")
    if not rates or min(rates) <= 0:
        raise ConfigError(f"rates={tuple(rates)}; expected learning rates above 0")
    if config.phases or config.anneal == "stall" or config.select == "best":
        raise ConfigError(
            f"compare chooses one learning rate a method and then trains on all images; phases, "
            f"anneal={config.anneal} or select={config.select} do not go with that; expected anneal epochs or triangle"
        )
    device_of(config)
    folder = Path(out)
    config = dataclasses.replace(config, validation=0, test=True, tensorboard=False)
    searches = list(search_jobs(config, folder, rates))
    total = len(searches) + len(METHODS) * seeds
    with pool(jobs) as run_all:
        chosen = choose(searches, run_all(searches, lambda job, done: watch(described(job), done, total)))
        finals = [
            Job(method, for_method(dataclasses.replace(config, lr=lr, seed=config.seed + s), method),
                folder / f"{method.lower()}-lr{lr:g}-seed{config.seed + s}")
            for method, lr in chosen.items() for s in range(seeds)
        ]  # fmt: skip
        results = run_all(finals, lambda job, done: watch(described(job), len(searches) + done, total))
    summary = summarised(config, finals, results, chosen)
    write_whole(folder / "comparison.json", (json.dumps(summary, indent=2) + "\n").encode())
    return summary


def search_jobs(config: Config, folder: Path, rates: Sequence[float]) -> Iterator[Job]:
    """Yield a run for every method and rate, judged on images that are held out of training."""
    available = len(load_data(config.data, image_size=config.image_size).train)
    wanted = config.train_size or available
    held = max(1, min(max(available // 5, available - wanted), 5000))  # all that is not trained on, at least a fifth
    size = min(wanted, available - held)
    for method in METHODS:
        for lr in rates:
            candidate = dataclasses.replace(config, lr=lr, validation=held, train_size=size, test=False)
            yield Job(method, for_method(candidate, method), folder / "search" / f"{method.lower()}-lr{lr:g}")


def for_method(config: Config, method: str) -> Config:
    """Return the config of one method: its loss, and its companions on or off."""
    loss, supervised = METHODS[method]
    taps = (("network",) if config.taps in (("none",), ()) else config.taps) if supervised else ("none",)
    smoothing = config.label_smoothing if loss == "softmax" else 0.0
    return dataclasses.replace(config, loss=loss, companion_loss=None, taps=taps, label_smoothing=smoothing)


def choose(jobs: Sequence[Job], results: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return each method's rate with the lowest validation error; the lower rate where two are equal."""
    chosen: dict[str, tuple[float, float]] = {}
    for job, result in zip(jobs, results, strict=True):
        found = (result["validation_error"], job.config.lr)
        chosen[job.method] = min(chosen.get(job.method, found), found)
    lost = [method for method, (error, _) in chosen.items() if error > 100]
    if lost:
        raise TrainingError(f"{lost[0]} diverges at every rate tried; expected one that trains; give lower --rates")
    return {method: lr for method, (_, lr) in chosen.items()}


def summarised(
    config: Config, jobs: Sequence[Job], results: Sequence[dict[str, Any]], chosen: dict[str, float]
) -> dict[str, Any]:
    """Return the table: errors, mean and deviation a method, gain over CNN-Softmax, and the paired differences."""
    errors: dict[str, list[float]] = {method: [] for method in METHODS}
    companions: dict[str, list[dict[str, float]]] = {method: [] for method in METHODS}
    seconds = 0.0
    for job, result in zip(jobs, results, strict=True):
        if "error" not in result:
            raise TrainingError(f"{described(job)}: {result['failed']}")
        errors[job.method].append(result["error"])
        companions[job.method].append(result["companions"])
        seconds += result["seconds"]
    base = mean(errors["CNN-Softmax"])
    methods = {
        method: {
            "errors": values,
            "mean": mean(values),
            "deviation": stdev(values) if len(values) > 1 else None,
            "gain": 100 * (base - mean(values)) / base if base else 0.0,
            "lr": chosen[method],
            "runs": [job.folder.name for job in jobs if job.method == method],
            "companions": {tap: mean(each[tap] for each in companions[method]) for tap in companions[method][0]},
        }
        for method, values in errors.items()
    }
    pairs = (("DSN-Softmax", "CNN-Softmax"), ("DSN-SVM", "CNN-SVM"), ("DSN-SVM", "CNN-Softmax"))
    differences = {f"{ours} - {theirs}": paired(errors[ours], errors[theirs]) for ours, theirs in pairs}
    seeds = [job.config.seed for job in jobs if job.method == "CNN-SVM"]
    return {
        "methods": methods,
        "differences": differences,
        "seeds": seeds,
        "seconds": round(seconds, 1),
        "config": config.to_dict(),
    }


def paired(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, Any]:
    """Return the mean difference over seeds and its 95 % confidence interval (Student's t); below 0, ours is better."""
    from scipy import stats

    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    if len(differences) < 2:
        return {"mean": mean(differences), "interval": None}
    half = float(stats.t.ppf(0.975, len(differences) - 1)) * stdev(differences) / len(differences) ** 0.5
    middle = mean(differences)
    return {"mean": middle, "interval": [middle - half, middle + half]}


def described(job: Job) -> str:
    """Say what a job is in a few words."""
    stage = "" if job.config.test else "choosing the rate: "
    return f"{stage}{job.method}, lr {job.config.lr:g}, seed {job.config.seed}"


class pool:  # noqa: N801 - used like a function
    """Processes to train in: gives a function from jobs to results, in the order of the jobs."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.threads = max(1, (os.cpu_count() or 1) // jobs)
        self.executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> Callable[[Sequence[Job], Callable[[Job, int], None]], list[dict[str, Any]]]:
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
    """Train one run, or go on with it; a divergence is a result too."""
    before, logger = torch.get_num_threads(), logging.getLogger("deepsup")
    torch.set_num_threads(threads)
    level = logger.level
    logger.setLevel(logging.ERROR)  # notes on the data were told when the comparison looked at them
    try:
        return train(job.config, job.folder, resume=True).result
    except DivergedError as error:
        return {"failed": str(error), "validation_error": 101.0}
    finally:
        torch.set_num_threads(before)
        logger.setLevel(level)
