"""One config -> the same net without and with companions, on the same data and seeds, and the ratio of their errors."""

import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from deepsup.errors import ConfigError, nearest
from deepsup.io import write_whole
from deepsup.trainer.config import Config
from deepsup.trainer.data import load_data
from deepsup.trainer.networks import SPECS
from deepsup.trainer.runs import RunFolder
from deepsup.trainer.studies._comparison_table import NORM, summarised
from deepsup.trainer.studies._engine import Engine
from deepsup.trainer.studies._forecast import Forecast, fit
from deepsup.trainer.studies._pool import Job, check_below, run_job, run_with, whole
from deepsup.trainer.studies._precision import with_precision
from deepsup.trainer.studies._rate_choice import (
    Method,
    Running,
    Watcher,
    check_one_rate,
    final_jobs,
    search,
    search_jobs,
)
from deepsup.trainer.training import device_of

# name -> loss, and whether the net has companions
METHODS = {
    "CNN-Softmax": ("softmax", False),
    "DSN-Softmax": ("softmax", True),
    "CNN-SVM": ("squared_hinge", False),
    "DSN-SVM": ("squared_hinge", True),
}
USUAL = ("CNN-Softmax", "DSN-Softmax")
USABLE = 0.9
"""The part of a time limit that is planned for training; the rest is for what comes after it."""
logger = logging.getLogger("deepsup")


def compare_methods(
    config: Config,
    out: str | os.PathLike[str],
    *,
    methods: Sequence[str] = USUAL,
    seeds: int = 3,
    rates: Sequence[float] = (),
    jobs: int = 1,
    engine: Engine | None = None,
    watch: Watcher = lambda *_: None,
    minutes: float | None = None,
    inspected: int = 0,
) -> dict[str, Any]:
    """Train the net of a config without and with companions, with every seed, and return how their errors compare.

    config: data, network, budget and the companions' settings; loss and taps are the methods' own.
    methods: CNN-Softmax, DSN-Softmax, CNN-SVM, DSN-SVM, or ``paper`` for these four; BatchNorm for the net of the first
        method without companions and with BatchNorm after its convolutions.
    rates: learning rates to choose from, for each method, by the mean error of three seeds on validation images; the
        test set is not read for it. Without them every method has the learning rate of the config.
    jobs: processes to train in at a time. A comparison that was stopped goes on with the runs that are missing.
    engine: where to train, in place of ``jobs``: on a Ray cluster, for example.
    watch: called with what has ended, how many have, and how many there are.
    minutes: to keep to; fewer seeds are trained, at least two, and then fewer epochs, at least a quarter.
    inspected: nets that the caller inspects afterwards, which takes time too.

    A run that diverges counts as guessing. ``comparison.json`` has the seeds that all methods have finished, also
    when the comparison is stopped.
    """
    began = time.monotonic()
    check_numbers(seeds, jobs, rates, minutes)
    if rates:
        check_one_rate(config, "compare")
        config = config.replace(validation=0)  # the search holds its own out
    names, engine, folder = names_of(methods), engine or Engine(jobs=jobs), Path(out)
    config = config.replace(test=True, tensorboard=False)
    check_device(config, engine)
    if not engine.gpus:  # which precision the GPUs of a cluster are fast in, its machines know
        config = with_precision(config, folder)
    configs_of(config, names)  # whether there is such a net
    classes = len(load_data(config.data.source, image_size=config.data.image_size, extra=config.data.extra).classes)
    with engine.workers(folder) as workers:
        planned = partial(jobs_of, names=names, rates=rates, folder=folder)
        config = config if minutes is None else as_begun(config, planned(config, seeds))
        forecast = Forecast(workers, planned(config, seeds), inspected)
        if minutes is not None:
            config, seeds = shortened(config, seeds, minutes, began, lambda *given: forecast.seconds(planned(*given)))
        forecast.say(planned(config, seeds))
        watch("", 0, len(planned(config, seeds)))
        studied = methods_of(config, names, rates, seeds)
        tried = [job for method in studied for job in search_jobs(method, folder)]
        run = Running(lambda *given: run_with(workers, folder, *given), watch, len(tried) + len(studied) * seeds)
        chosen = search(studied, tried, folder, run, extensions=0)
        finals = {each.method.name: list(final_jobs(each.method, each.choice, folder)) for each in chosen}
        check_below(folder, [job for jobs in finals.values() for job in jobs])
        groups = [list(map(whole, group)) for group in zip(*finals.values(), strict=True)]  # one per seed
        try:
            for job, _ in workers.stream(run_job, in_time(groups, forecast, minutes, began)):
                run.done += 1
                watch(str(job), run.done, run.total)
        finally:
            table = summarised(config, finals, classes)
            if table:
                table["notes"] += [f"{each.method.name}: {edge} --rates; the best may lie beyond"
                                   for each in chosen for edge in each.edges]  # fmt: skip
                write_whole(folder / "comparison.json", (json.dumps(table, indent=2) + "\n").encode())
    return {**table} if table else {}


def check_numbers(seeds: int, jobs: int, rates: Sequence[float], minutes: float | None) -> None:
    """Refuse numbers that cannot be meant."""
    if seeds < 1 or jobs < 1:
        raise ConfigError(f"seeds={seeds}, jobs={jobs}; expected at least 1 of each")
    if rates and not min(rates) > 0:
        raise ConfigError(f"rates={tuple(rates)}; expected learning rates above 0")
    if minutes is not None and not 0 < minutes < 1e7:
        raise ConfigError(f"minutes={minutes:g}; expected a number above 0")


def names_of(methods: Sequence[str]) -> list[str]:
    """Return the names of the methods, ``paper`` replaced by its four.

    >>> names_of(["CNN-Softmax", "paper"])
    ['CNN-Softmax', 'DSN-Softmax', 'CNN-SVM', 'DSN-SVM']
    """
    named = [name for each in methods for name in (METHODS if each == "paper" else (each,))]
    for name in named:
        if name not in (*METHODS, NORM):
            raise ConfigError(f"no method {name!r}; {nearest(name, [*METHODS, NORM, 'paper'], most=6)}")
    names = list(dict.fromkeys(named))
    if len(names) < 2:
        raise ConfigError(f"methods={' '.join(names) or 'none'}; expected at least two to compare")
    return names


def check_device(config: Config, engine: Engine) -> None:
    """Refuse a device that is not there; what a cluster has is for its machines to say."""
    if engine.name != "ray":
        device_of(config)
    elif config.run.device not in ("auto", "cpu") and not engine.gpus:
        raise ConfigError(f"device={config.run.device} without GPUs per run; Ray reserves them: give --gpus 1")


def methods_of(config: Config, names: Sequence[str], rates: Sequence[float], seeds: int) -> list[Method]:
    """Return what to train."""
    return [
        Method(name, at_rates(each, rates or (each.optimizer.lr,)), seeds)
        for name, each in configs_of(config, names).items()
    ]


def configs_of(config: Config, names: Sequence[str]) -> dict[str, Config]:
    """Return the config of every method."""
    first = next(name for name in names if name != NORM)
    return {
        name: on_one_scale(
            with_norm(for_method(config, f"CNN-{first[4:]}")) if name == NORM else for_method(config, name)
        )
        for name in names
    }


def at_rates(config: Config, rates: Sequence[float]) -> dict[str, Config]:
    """Return one config per learning rate, the lowest first."""
    return {f"lr{lr:g}": config.replace(lr=lr) for lr in sorted(rates)}


def for_method(config: Config, method: str) -> Config:
    """Return the config of one method: its loss, and its companions on or off."""
    loss, supervised = METHODS[method]
    taps = config.supervision.taps if supervised else ("none",)
    if supervised and taps in (("none",), ()):
        taps = ("network",)
    smoothing = config.objective.label_smoothing if loss == "softmax" else 0.0
    return config.replace(loss=loss, companion_loss=None, at=taps, label_smoothing=smoothing)


def on_one_scale(config: Config) -> Config:
    """Return the config with its loss on softmax's scale, so that one grid of learning rates suits all methods.

    A balance that was given stays.
    """
    if config.objective.loss == "softmax" or config.objective.balance != 1.0:
        return config
    return config.replace(balance="softmax")


def with_norm(config: Config) -> Config:
    """Return the config of the same net with BatchNorm after its convolutions."""
    name, options = config.network.name, config.network.options
    able = [each for each, spec in SPECS.items() if spec.options.get("norm") == "none"]
    if name not in able:
        raise ConfigError(
            f"BatchNorm for {name}, which has no option norm; expected one of: {', '.join(able)}; for other networks, "
            f"leave BatchNorm out of --methods"
        )
    if options.get("norm", "none") != "none":
        raise ConfigError(f"BatchNorm beside norm={options['norm']} in the network's options; expected norm=none")
    return config.replace(network_options={**options, "norm": "batch"})


def jobs_of(config: Config, seeds: int, names: Sequence[str], rates: Sequence[float], folder: Path) -> list[Job]:
    """Return all runs, those that choose rates first, then seed by seed; the chosen rates are not known yet."""
    studied = methods_of(config, names, rates, seeds)
    finals = [list(final_jobs(method, next(iter(method.choices)), folder)) for method in studied]
    tried = [job for method in studied for job in search_jobs(method, folder)]
    return tried + [job for group in zip(*finals, strict=True) for job in group]


def as_begun(config: Config, jobs: Sequence[Job]) -> Config:
    """Return the config with the epochs of the runs that are there already."""
    begun = next((run for job in jobs if (run := RunFolder(job.folder)).exists), None)
    return config if begun is None or config.run.phases else config.replace(epochs=begun.config.run.epochs)


def shortened(
    config: Config, seeds: int, minutes: float, began: float, seconds: Callable[[Config, int], float]
) -> tuple[Config, int]:
    """Return the config and the number of seeds that fit into the minutes, and say what was left out."""
    epochs = config.total_epochs

    def with_epochs(epochs: int) -> Config:
        return config if epochs == config.total_epochs else config.replace(epochs=epochs)

    fixed = config.run.phases or config.optimizer.anneal_at
    fewest = epochs if fixed else max(1, epochs // 4)
    left = USABLE * 60 * minutes - (time.monotonic() - began)
    fitting = fit(lambda seeds, epochs: seconds(with_epochs(epochs), seeds), seeds, epochs, fewest, left)
    if fitting is None:
        least, few = min(2, seeds), with_epochs(fewest)
        needed = math.ceil((seconds(few, least) + time.monotonic() - began) / 60 / USABLE)
        raise ConfigError(
            f"--minutes {minutes:g} is too short for {least} seeds, even with {fewest} of {epochs} epochs; give "
            f"--minutes {needed}, or train on less: --train-size, --image-size, --network"
        )
    if fitting != (seeds, epochs):
        fewer = f" and {fitting[1]} epochs instead of {epochs}" if fitting[1] < epochs else ""
        logger.info("--minutes %g: %d seeds instead of %d%s", minutes, fitting[0], seeds, fewer)
    return with_epochs(fitting[1]), fitting[0]


def in_time(groups: Sequence[Sequence[Job]], forecast: Forecast, minutes: float | None, began: float) -> Iterator[Job]:
    """Yield the runs seed by seed; after two seeds, only as long as the next one fits into the minutes."""
    started = time.monotonic()
    for place, group in enumerate(groups):
        if minutes is not None and place > 1 and (ahead := forecast.seconds(group)):
            ahead = max(ahead, (time.monotonic() - started) / place)
            if time.monotonic() + ahead > began + 60 * minutes:
                logger.info("%g minutes are over after %d of %d seeds; the same command goes on", minutes, place,
                            len(groups))  # fmt: skip
                return
        yield from group
