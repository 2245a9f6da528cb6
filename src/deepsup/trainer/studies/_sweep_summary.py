"""The trials of a sweep -> the best settings of each method, their final runs, and what made the difference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NotRequired, TypedDict

from deepsup.io import below, write_whole
from deepsup.trainer.config import Config
from deepsup.trainer.statistics import excludes, paired
from deepsup.trainer.studies._engine import Workers
from deepsup.trainer.studies._pool import Job, run_job, whole
from deepsup.trainer.studies._rate_choice import Watcher
from deepsup.trainer.studies._sweep_search import Search, TrialRecord
from deepsup.trainer.studies._sweep_settings import Sweep


class MethodRecord(TypedDict):
    """The search of one method, as ``sweep.json`` has it."""

    trials: int
    states: dict[str, int]
    number: int | None
    """Of the best trial."""
    validation_error: float | None
    settings: dict[str, Any]
    defaults_error: float | None
    importance: dict[str, float]
    seconds: float
    config: NotRequired[str]
    """The file with the best settings; it and what follows are there once the final runs are."""
    errors: NotRequired[list[float | None]]
    """Test errors of the final runs, one per seed."""
    mean: NotRequired[float | None]
    deviation: NotRequired[float | None]
    runs: NotRequired[list[str]]


def summarised(searches: list[Search], made: Sweep, limits: dict[str, Any]) -> dict[str, Any]:
    """Return what has been found so far; of each method only as many trials as all have."""
    records = {search.method: search.records() for search in searches}
    common = min(len(each) for search, each in zip(searches, records.values(), strict=True) if search.space)
    methods = {search.method: about(search, records[search.method][:common]) for search in searches}
    errors = {name: each["validation_error"] for name, each in methods.items() if each["validation_error"] is not None}
    winner = min(errors, key=lambda name: (errors[name], name != "plain"))
    config = searches[0].config
    return {
        "best": {
            "method": winner,
            "validation_error": errors[winner],
            "settings": methods[winner]["settings"],
        },
        "methods": methods,
        "trials": [trial for each in records.values() for trial in each],
        "space": {name: each.to_dict() for name, each in made.space.items()},
        "validation_images": config.data.validation,
        "config": made.config.to_dict(),
        "limits": limits,
    }


def about(search: Search, trials: list[TrialRecord]) -> MethodRecord:
    """Return the best of a method's trials, the defaults beside it, and how the search went."""
    ended = [trial for trial in trials if trial["state"] == "complete" and trial["validation_error"] is not None]
    best = min(ended, key=lambda trial: (trial["validation_error"] or 0.0, trial["number"]), default=None)
    defaults = next((trial["validation_error"] for trial in ended if trial["number"] == 0), None)
    return {
        "trials": len(trials),
        "states": {state: sum(trial["state"] == state for trial in trials) for state in
                   dict.fromkeys(trial["state"] for trial in trials)},
        "number": best and best["number"],
        "validation_error": best and best["validation_error"],
        "settings": best["settings"] if best else {},
        "defaults_error": defaults,
        "importance": search.importance(),
        "seconds": round(sum(trial["seconds"] for trial in trials), 1),
    }  # fmt: skip


def verdict(best: str, interval: Sequence[float]) -> str:
    """Return what the final runs say; validation images chose ``best``, and the test images may contradict them.

    interval: of the difference of the test errors, with companions minus without.

    >>> verdict("supervised", (-2, -1))
    'companions help'
    """
    if not excludes(interval, 0):
        return "not a significant difference"
    better = "supervised" if interval[1] < 0 else "plain"
    if better != best:
        return f"undecided: the validation images chose the {best} net, the test images speak for the {better} one"
    return "companions help" if better == "supervised" else "companions harm"


def method_config(config: Config, method: str) -> Config:
    """Return the config without companions for the plain net."""
    return config if method == "supervised" else config.replace(at=("none",))


def final_runs(answer: dict[str, Any], made: Sweep, folder: Path, seeds: int) -> list[Job]:
    """Return the runs of both winners on all images, and write their configs."""
    jobs = []
    for method, each in answer["methods"].items():
        config = method_config(made.config, method).replace(**each["settings"], test=True)
        write_whole(folder / f"{method}.yaml", config.to_yaml().encode())
        each["config"] = str(folder / f"{method}.yaml")
        name = f"{method}-{each['number']:04d}"
        for seed in range(config.run.seed, config.run.seed + seeds):
            final = config.replace(seed=seed, tensorboard=False)
            jobs.append(Job(method, name, final, below(folder, "final", f"{name}-seed{seed}")))
    return jobs


def add_finals(answer: dict[str, Any], made: Sweep, folder: Path, seeds: int, workers: Workers, watch: Watcher) -> None:
    """Train both winners, once per seed; each run reads the test set at its end."""
    jobs = final_runs(answer, made, folder, seeds)
    results: dict[Path, dict[str, Any]] = {}
    for count, (job, result) in enumerate(workers.stream(run_job, [whole(job) for job in jobs]), 1):
        results[job.folder] = result
        watch(f"final: {job.method}, seed {job.config.run.seed}", count, len(jobs))
    for method, each in answer["methods"].items():
        mine = [job for job in jobs if job.method == method]
        errors = [results[whole(job).folder].get("error") for job in mine]
        ended = [error for error in errors if error is not None]
        each |= {"errors": errors, "mean": mean(ended) if ended else None}
        each |= {"deviation": stdev(ended) if len(ended) > 1 else None}
        each |= {"runs": [str(job.folder.relative_to(folder)) for job in mine]}
    ours, theirs = (answer["methods"][method]["errors"] for method in ("supervised", "plain"))
    whole_ = None not in ours + theirs
    answer["difference"] = paired(ours, theirs) if whole_ else {"mean": None, "interval": None, "p": None}
    if answer["difference"]["interval"] is not None:
        answer["verdict"] = verdict(answer["best"]["method"], answer["difference"]["interval"])
    answer["best"]["config"] = str(folder / "best.yaml")
    write_whole(folder / "best.yaml", (folder / f"{answer['best']['method']}.yaml").read_bytes())
