"""One config -> the paper's four methods on the same data, seeds and budget, and whether companions help."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from deepsup.config import Config
from deepsup.errors import ConfigError, TrainingError
from deepsup.io import write_whole
from deepsup.studies.engine import Engine
from deepsup.studies.pool import pool
from deepsup.studies.study import Method, Outcome, Watcher, check_one_rate, run_study
from deepsup.training.build import device_of

# name -> loss, and whether the net has companions
METHODS = {
    "CNN-Softmax": ("softmax", False),
    "DSN-Softmax": ("softmax", True),
    "CNN-SVM": ("squared_hinge", False),
    "DSN-SVM": ("squared_hinge", True),
}
RATES = (0.003, 0.01, 0.03)


def compare(
    config: Config,
    out: str | os.PathLike[str],
    *,
    seeds: int = 3,
    rates: Sequence[float] = RATES,
    jobs: int = 1,
    engine: Engine | None = None,
    watch: Watcher = lambda *_: None,
) -> dict[str, Any]:
    """Train CNN-Softmax, DSN-Softmax, CNN-SVM and DSN-SVM with every seed, each at the rate chosen on validation.

    config: data, network, budget and the companions' settings; its loss and taps are the methods' own.
    rates: learning rates to choose from, for each method, by the validation error of the first seed; the test set is
        not read for it.
    jobs: processes to train in at a time. A comparison that was stopped goes on with the runs that are missing.
    engine: where to train, in place of ``jobs``: on a Ray cluster, for example.
    watch: called with what has ended, how many have, and how many there are.
    """
    if seeds < 1 or jobs < 1:
        raise ConfigError(f"seeds={seeds}, jobs={jobs}; expected at least 1 of each")
    if not rates or min(rates) <= 0:
        raise ConfigError(f"rates={tuple(rates)}; expected learning rates above 0")
    check_one_rate(config, "compare")
    engine = engine or Engine(jobs=jobs)
    check_device(config, engine)
    folder = Path(out)
    config = config.replace(validation=0, test=True, tensorboard=False)
    methods = [Method(method, at_rates(for_method(config, method), rates), seeds) for method in METHODS]
    with pool(engine, folder) as run_all:
        summary = summarised(config, run_study(methods, folder, run_all, watch))
    write_whole(folder / "comparison.json", (json.dumps(summary, indent=2) + "\n").encode())
    return summary


def check_device(config: Config, engine: Engine) -> None:
    """Refuse a device that is not there; what a cluster has is for its machines to say."""
    if engine.name != "ray":
        device_of(config)
    elif config.run.device != "cpu" and not engine.gpus:
        raise ConfigError(f"device={config.run.device} without GPUs per run; Ray reserves them: give --gpus 1")


def at_rates(config: Config, rates: Sequence[float]) -> dict[str, Config]:
    """Return one config a learning rate, the lowest first."""
    return {f"lr{lr:g}": config.replace(lr=lr) for lr in sorted(rates)}


def for_method(config: Config, method: str) -> Config:
    """Return the config of one method: its loss, and its companions on or off."""
    loss, supervised = METHODS[method]
    taps = config.supervision.taps if supervised else ("none",)
    if supervised and taps in (("none",), ()):
        taps = ("network",)
    smoothing = config.objective.label_smoothing if loss == "softmax" else 0.0
    return config.replace(loss=loss, companion_loss=None, taps=taps, label_smoothing=smoothing)


def summarised(config: Config, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the table: errors, mean and deviation a method, gain over CNN-Softmax, and the paired differences."""
    for outcome in outcomes:
        for job, result in zip(outcome.jobs, outcome.results, strict=True):
            if "error" not in result:
                raise TrainingError(f"{job}: {result['failed']}")
    errors = {outcome.method: [result["error"] for result in outcome.results] for outcome in outcomes}
    base = mean(errors["CNN-Softmax"])
    methods = {
        outcome.method: {
            "errors": errors[outcome.method],
            "mean": mean(errors[outcome.method]),
            "deviation": stdev(errors[outcome.method]) if len(errors[outcome.method]) > 1 else None,
            "gain": 100 * (base - mean(errors[outcome.method])) / base if base else 0.0,
            "lr": outcome.config.optimizer.lr,
            "runs": [job.folder.name for job in outcome.jobs],
            "companions": {
                tap: mean(result["companions"][tap] for result in outcome.results)
                for tap in outcome.results[0]["companions"]
            },
        }
        for outcome in outcomes
    }
    pairs = (("DSN-Softmax", "CNN-Softmax"), ("DSN-SVM", "CNN-SVM"), ("DSN-SVM", "CNN-Softmax"))
    return {
        "methods": methods,
        "differences": {f"{ours} - {theirs}": paired(errors[ours], errors[theirs]) for ours, theirs in pairs},
        "seeds": [job.config.run.seed for job in outcomes[0].jobs],
        "seconds": round(sum(result["seconds"] for outcome in outcomes for result in outcome.results), 1),
        "config": config.to_dict(),
    }


def paired(ours: Sequence[float], theirs: Sequence[float], confidence: float = 0.95) -> dict[str, Any]:
    """Return the mean difference over seeds, its interval and p (Student's t); below 0, ours is better."""
    from scipy import stats

    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    middle = mean(differences)
    if len(differences) < 2:
        return {"mean": middle, "interval": None, "p": None}
    if stdev(differences) < 1e-9:  # scipy warns, and has no p where all differences are 0
        return {"mean": middle, "interval": [middle, middle], "p": float(abs(middle) < 1e-9)}
    test = stats.ttest_rel(ours, theirs)
    return {
        "mean": middle,
        "interval": [float(end) for end in test.confidence_interval(confidence)],
        "p": float(test.pvalue),
    }
