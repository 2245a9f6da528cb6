"""Methods, each with settings to choose from -> for each the choice on validation images, and one run per seed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from deepsup.config import Config
from deepsup.data import load_data
from deepsup.errors import ConfigError, TrainingError
from deepsup.studies.pool import Job, RunAll

Watcher = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Method:
    """One method of a study: what to train, with which settings to choose from, and how often."""

    name: str
    choices: Mapping[str, Config]
    """A short name -> the config; a single one needs no choosing."""
    seeds: int = 3
    searches: int = 1
    """How many seeds judge a choice."""
    trial: Callable[[Config], Config] = lambda config: config
    """Turns a config into a cheaper one to choose by."""


@dataclass(frozen=True)
class Outcome:
    """The result of one method."""

    method: str
    choice: str
    config: Config
    """Of the first seed."""
    search: dict[str, float]
    """Choice -> its mean validation error in percent, 101 where it diverged; empty where there was no choice."""
    jobs: list[Job]
    results: list[dict[str, Any]]
    """One per job: ``result.json``, or ``failed`` with the reason where the training diverged."""


def run_study(
    methods: Sequence[Method], folder: Path, run_all: RunAll, watch: Watcher = lambda *_: None
) -> list[Outcome]:
    """Choose for every method on validation images, then train all its seeds on all images and read the test set once.

    Runs that ``folder`` already has are not trained again. ``watch`` is called with the run that has ended, how many
    have, and how many there are.
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
        trial = held_out(method.trial(config))
        for seed in range(trial.run.seed, trial.run.seed + method.searches):
            candidate = trial.replace(validate_every=0, seed=seed)
            yield Job(method.name, choice, candidate, folder / "search" / f"{slug(method.name)}-{choice}-seed{seed}")


def held_out(config: Config, spare: int = 5000) -> Config:
    """Return a config that is judged on images that are held out of training; the test set is not read.

    These are the images that are not trained on, at most ``spare``; at least a fifth of all, and at most 5000.
    """
    available = len(load_data(config.data.source, image_size=config.data.image_size).train)
    wanted = config.data.train_size or available
    validation = max(1, min(max(available // 5, min(spare, available - wanted)), 5000))
    size = min(wanted, available - validation)
    return config.replace(validation=validation, train_size=size, test=False, test_every=0)


def check_one_rate(config: Config, verb: str) -> None:
    """Refuse settings that need validation images of their own, or have learning rates of their own."""
    if config.run.phases or config.optimizer.anneal == "plateau" or config.run.select == "best":
        raise ConfigError(
            f"{verb} chooses one learning rate per method and then trains on all images, without phases; got "
            f"anneal={config.optimizer.anneal}, select={config.run.select}, {len(config.run.phases)} phases; expected "
            f"anneal step, triangular or cosine, and select last"
        )


def choose(method: Method, scores: Mapping[str, Sequence[float]]) -> str:
    """Return the choice with the lowest mean validation error; the first of those that are equal."""
    if not scores:
        return next(iter(method.choices))
    best = min(scores, key=lambda choice: mean(scores[choice]))
    if mean(scores[best]) > 100:
        raise TrainingError(f"{method.name} diverges at every rate tried; expected one that trains; give lower --rates")
    return best


def final_jobs(method: Method, choice: str, folder: Path) -> Iterator[Job]:
    """Yield the runs of one method: one per seed, with the settings chosen."""
    config = method.choices[choice]
    for seed in range(config.run.seed, config.run.seed + method.seeds):
        name = f"{slug(method.name)}-{choice}-seed{seed}"
        yield Job(method.name, choice, config.replace(seed=seed), folder / name)


def slug(name: str) -> str:
    """Return a name as part of a folder's."""
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower()).replace("--", "-").strip("-")
