"""Methods, each with settings to choose from -> for each the choice on validation images, and one run per seed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from typing import Any

from deepsup.errors import ConfigError, TrainingError
from deepsup.trainer.config import Config
from deepsup.trainer.data import load_data
from deepsup.trainer.runs import default_name
from deepsup.trainer.studies._pool import Job, RunAll

Watcher = Callable[[str, int, int], None]
Learned = Callable[[Config, float], bool]
"""A config and its validation error in percent -> whether the net has learned."""
ROUNDS = 2
"""How often a method that has not learned gets more candidates."""


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
    start: Config | None = None
    """The run that each of its runs starts from: trained once per seed, also for other methods that start from it."""


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
    rounds: int = 0
    """How often more candidates were tried because none had learned."""
    starts: list[tuple[Job, dict[str, Any]]] = field(default_factory=list)
    """One per job that starts from another run: that run and its result."""


@dataclass
class Chosen:
    """A method while its settings are chosen."""

    method: Method
    scores: dict[str, list[float]] = field(default_factory=dict)
    """Choice -> its validation errors."""
    rounds: int = 0

    @property
    def best(self) -> float:
        """The lowest mean validation error so far."""
        return min(map(mean, self.scores.values()))


@dataclass
class Running:
    """Trains jobs, and says how many of all have ended."""

    run_all: RunAll
    watch: Watcher
    total: int
    done: int = 0

    def __call__(self, jobs: Sequence[Job]) -> list[dict[str, Any]]:
        """Return the results of some jobs, in their order."""
        before = self.done
        results = self.run_all(jobs, lambda job, done: self.watch(str(job), before + done, self.total))
        self.done += len(jobs)
        return results


def run_study(
    methods: Sequence[Method],
    folder: Path,
    run_all: RunAll,
    watch: Watcher = lambda *_: None,
    learned: Learned = lambda *_: True,
) -> list[Outcome]:
    """Choose for every method on validation images, then train all its seeds on all images and read the test set once.

    Runs that ``folder`` already has are not trained again. ``watch`` is called with the run that has ended, how many
    have, and how many there are. A method of which no candidate has ``learned`` gets more of them.
    """
    starts = {job.folder: job for method in methods for job in start_jobs(method, folder)}
    tried = [job for method in methods for job in search_jobs(method, folder)]
    run = Running(run_all, watch, len(starts) + len(tried) + sum(method.seeds for method in methods))
    begun = run_starts(list(starts.values()), run) if starts else {}
    searches = search(methods, tried, folder, run, learned)
    finals = [list(final_jobs(each.method, choose(each.method, each.scores), folder)) for each in searches]
    results = iter(run([job for jobs in finals for job in jobs]))
    return [outcome_of(each, jobs, [next(results) for _ in jobs], folder, begun)
            for each, jobs in zip(searches, finals, strict=True)]  # fmt: skip


def outcome_of(
    search: Chosen, jobs: list[Job], results: list[dict[str, Any]], folder: Path, begun: Mapping[Path, dict[str, Any]]
) -> Outcome:
    """Return what one method gave."""
    means = {choice: mean(each) for choice, each in search.scores.items()}
    starts = [(job, begun[job.folder]) for job in start_jobs(search.method, folder)][: len(jobs)]
    first = jobs[0]
    return Outcome(search.method.name, first.choice, first.config, means, jobs, results, search.rounds, starts)


def run_starts(jobs: Sequence[Job], run: Running) -> dict[Path, dict[str, Any]]:
    """Train the runs that others start from; return their results by folder."""
    results = run(jobs)
    for job, result in zip(jobs, results, strict=True):
        if "failed" in result:
            raise TrainingError(f"{job}, from which others start: {result['failed']}; expected a run that ends")
    return {job.folder: result for job, result in zip(jobs, results, strict=True)}


def search(
    methods: Sequence[Method], tried: Sequence[Job], folder: Path, run: Running, learned: Learned
) -> list[Chosen]:
    """Judge every candidate; where none of a method has learned, go on with lower and higher rates."""
    found = {method.name: Chosen(method) for method in methods}
    note(found, tried, run(tried))
    for _ in range(ROUNDS):
        stuck = [each for each in found.values() if each.scores and not learned(first_of(each.method), each.best)]
        more: list[Job] = []
        for each in stuck:
            before = each.method
            each.method, each.rounds = widened(before), each.rounds + 1
            more += [job for job in search_jobs(each.method, folder) if job.choice not in before.choices]
        run.total += len(more)
        if more:
            note(found, more, run(more))
    return list(found.values())


def note(found: Mapping[str, Chosen], jobs: Sequence[Job], results: Sequence[Mapping[str, Any]]) -> None:
    """Add the validation errors of candidates to their methods."""
    for job, result in zip(jobs, results, strict=True):
        found[job.method].scores.setdefault(job.choice, []).append(result["validation_error"])


def widened(method: Method) -> Method:
    """Return the method with more candidates: a third of its lowest learning rate, and three times its highest."""
    rates = {name: config.optimizer.lr for name, config in method.choices.items()}
    low, high = min(rates.values()), max(rates.values())
    more = {f"{name}-third": times(method.choices[name], 1 / 3) for name, lr in rates.items() if lr == low}
    more |= {f"{name}-triple": times(method.choices[name], 3) for name, lr in rates.items() if lr == high}
    return replace(method, choices={**method.choices, **more})


def times(config: Config, factor: float) -> Config:
    """Return a config with all learning rates multiplied."""
    phases = tuple(replace(phase, lr=phase.lr * factor) for phase in config.run.phases)
    return config.replace(lr=config.optimizer.lr * factor, phases=phases)


def first_of(method: Method) -> Config:
    """Return the first of the configs to choose from."""
    return next(iter(method.choices.values()))


def start_jobs(method: Method, folder: Path) -> Iterator[Job]:
    """Yield the runs that a method's runs start from, one per seed."""
    if method.start is None:
        return
    seed = first_of(method).run.seed
    for each in range(seed, seed + max(method.seeds, method.searches)):
        start = method.start.replace(seed=each)
        yield Job("pre-training", start.network.name, start, start_folder(start, folder))


def start_folder(start: Config, folder: Path) -> Path:
    """Return where a run to start from is, below the folder of its study."""
    return folder / "start" / default_name(start)


def started(method: Method, config: Config, folder: Path) -> Config:
    """Return the config of a run with the run to start from, the one of its seed."""
    if method.start is None:
        return config
    return config.replace(start_from=str(start_folder(method.start.replace(seed=config.run.seed), folder)))


def search_jobs(method: Method, folder: Path) -> Iterator[Job]:
    """Yield a run for every choice, judged on images that are held out of training; the test set is not read."""
    if len(method.choices) < 2:
        return
    for choice, config in method.choices.items():
        trial = held_out(method.trial(config))
        for seed in range(trial.run.seed, trial.run.seed + method.searches):
            candidate = started(method, trial.replace(validate_every=0, seed=seed), folder)
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
        yield Job(method.name, choice, started(method, config.replace(seed=seed), folder), folder / name)


def slug(name: str) -> str:
    """Return a name as part of a folder's."""
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower()).replace("--", "-").strip("-")
