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
from deepsup.trainer.statistics import chance_error, has_learned
from deepsup.trainer.studies._grid import SIDES, beyond, line_of, on_edges, sides_of
from deepsup.trainer.studies._pool import Job, RunAll

Watcher = Callable[[str, int, int], None]
EXTENSIONS = 4
"""How often the grid of a method grows at most."""


@dataclass(frozen=True)
class Method:
    """One method of a study: what to train, with which settings to choose from, and how often."""

    name: str
    choices: Mapping[str, Config]
    """A short name -> the config; a single one needs no choosing."""
    seeds: int = 3
    searches: int = 3
    """How many seeds judge a choice."""
    trial: Callable[[Config], Config] = lambda config: config
    """Turns a config into a cheaper one to choose by, such as ``quarter``."""
    start: Config | None = None
    """The run that each of its runs starts from: trained once per seed, also for other methods that start from it."""
    trial_name: str = ""
    """What the trials are filed under, if not the method's name: methods with the same trials can share them."""


@dataclass(frozen=True)
class Outcome:
    """The result of one method. A run that diverged counts as guessing, in the choice and among the errors."""

    method: str
    choice: str
    config: Config
    """Of the first seed."""
    search: dict[str, list[float]]
    """Choice -> its validation errors in percent, one per seed; empty where there was no choice."""
    jobs: list[Job]
    results: list[dict[str, Any]]
    """One per job: ``result.json``, or ``failed`` with the reason where the training diverged."""
    starts: list[tuple[Job, dict[str, Any]]] = field(default_factory=list)
    """One per job that starts from another run: that run and its result."""
    candidates: Mapping[str, Config] = field(default_factory=dict)
    """All that was chosen from: the method's choices, and those by which the grid grew."""
    chance: float = 100.0
    """The error of guessing in percent."""
    extensions: int = 0
    """How often the grid grew."""
    edges: tuple[str, ...] = ()
    """What was chosen on an edge of the grid, in words: "lr 0.1 is the highest of 7"; the grid had grown as often as
    it may, or another setting than the learning rate is meant."""
    diverged: dict[str, int] = field(default_factory=dict)
    """Choice -> how many of its trainings diverged, where any did."""
    choosing_seconds: float = 0.0
    """Of training, in all trainings that judged candidates."""

    @property
    def errors(self) -> list[float]:
        """The test error of every seed in percent; where the training diverged, that of guessing."""
        return [self.chance if "failed" in result else result["error"] for result in self.results]

    @property
    def seconds(self) -> float:
        """Of training, in the runs of all seeds."""
        return sum(float(result.get("seconds", 0)) for result in self.results)


@dataclass
class Chosen:
    """A method while its settings are chosen."""

    method: Method
    chance: float
    """The error of guessing in percent: what a training that diverged counts as."""
    classes: int
    scores: dict[str, list[float]] = field(default_factory=dict)
    """Choice -> its validation errors."""
    diverged: dict[str, int] = field(default_factory=dict)
    """Choice -> how many of its trainings diverged."""
    seconds: float = 0.0
    extensions: int = 0

    def note(self, choice: str, result: Mapping[str, Any]) -> None:
        """Take the result of one training into account."""
        lost = "failed" in result
        self.scores.setdefault(choice, []).append(self.chance if lost else result["validation_error"])
        self.seconds += result.get("seconds", 0.0)
        if lost:
            self.diverged[choice] = self.diverged.get(choice, 0) + 1

    @property
    def best(self) -> str:
        """The candidate with the lowest mean validation error; of those that are equal one inside the grid."""
        inside = self.method.choices
        return min(self.scores, key=lambda choice: (mean(self.scores[choice]), len(sides_of(inside, choice))))

    @property
    def choice(self) -> str:
        """The best candidate, or the only one. Where all trainings have diverged there is none."""
        if not self.scores:
            return next(iter(self.method.choices))
        if sum(self.diverged.values()) == sum(map(len, self.scores.values())):
            raise TrainingError(
                f"{self.method.name} diverges at every rate tried; expected one that trains; give lower --rates"
            )
        return self.best

    @property
    def edges(self) -> tuple[str, ...]:
        """What the choice has on an edge of the grid, in words."""
        return tuple(on_edges(self.method.choices, self.choice)) if self.scores else ()

    def further(self) -> dict[str, Config]:
        """Return the candidates beyond the edge at which the best one is; beyond both edges if none has learned.

        There is nothing to find above a rate at which every training diverges.
        """
        if not self.scores:
            return {}
        candidates, best = self.method.choices, self.best
        if has_learned(mean(self.scores[best]), self.classes):
            ends = [(best, side) for side in sides_of(candidates, best)]
        else:
            line = line_of(candidates, best)
            ends = [*zip((line[0], line[-1]), SIDES, strict=True)] if len(line) > 1 else []
        lost = {name for name, times in self.diverged.items() if times == len(self.scores[name])}
        more: dict[str, Config] = {}
        for name, side in ends:
            if side == "lowest" or name not in lost:
                more |= beyond(candidates, name, side)
        return more


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
    extensions: int = EXTENSIONS,
) -> list[Outcome]:
    """Choose for every method on validation images, then train all its seeds on all images and read the test set once.

    Runs that ``folder`` already has are not trained again. ``watch`` is called with the run that has ended, how many
    have, and how many there are. Where the best learning rate of a method is the lowest or the highest of its grid, or
    none has learned, the grid grows by its own factor, at most ``extensions`` times.
    """
    starts = {job.folder: job for method in methods for job in start_jobs(method, folder)}
    tried = [job for method in methods for job in search_jobs(method, folder)]
    run = Running(run_all, watch, len(starts) + len(tried) + sum(method.seeds for method in methods))
    begun = run_starts(list(starts.values()), run) if starts else {}
    searches = search(methods, tried, folder, run, extensions)
    finals = [list(final_jobs(each.method, each.choice, folder)) for each in searches]
    results = iter(run([job for jobs in finals for job in jobs]))
    return [outcome_of(each, jobs, [next(results) for _ in jobs], folder, begun)
            for each, jobs in zip(searches, finals, strict=True)]  # fmt: skip


def outcome_of(
    search: Chosen, jobs: list[Job], results: list[dict[str, Any]], folder: Path, begun: Mapping[Path, dict[str, Any]]
) -> Outcome:
    """Return what one method gave."""
    return Outcome(
        method=search.method.name,
        choice=search.choice,
        config=jobs[0].config,
        search=search.scores,
        jobs=jobs,
        results=results,
        starts=[(job, begun[job.folder]) for job in start_jobs(search.method, folder)][: len(jobs)],
        candidates=search.method.choices,
        chance=search.chance,
        extensions=search.extensions,
        edges=search.edges,
        diverged=search.diverged,
        choosing_seconds=search.seconds,
    )


def run_starts(jobs: Sequence[Job], run: Running) -> dict[Path, dict[str, Any]]:
    """Train the runs that others start from; return their results by folder."""
    results = run(jobs)
    for job, result in zip(jobs, results, strict=True):
        if "failed" in result:
            raise TrainingError(f"{job}, from which others start: {result['failed']}; expected a run that ends")
    return {job.folder: result for job, result in zip(jobs, results, strict=True)}


def search(
    methods: Sequence[Method], tried: Sequence[Job], folder: Path, run: Running, extensions: int
) -> list[Chosen]:
    """Judge every candidate; as long as the best rate of a method is on an edge, go on beyond it."""
    classes: dict[str, int] = {}
    choices: dict[str, Chosen] = {}
    for method in methods:
        data = first_of(method).data
        if data.source not in classes:
            classes[data.source] = len(load_data(data.source, image_size=data.image_size).classes)
        choices[method.name] = Chosen(method, chance_error(classes[data.source]), classes[data.source])
    more = list(tried)
    for left in range(extensions, -1, -1):
        for job, result in zip(more, run(more) if more else (), strict=True):
            choices[job.method].note(job.choice, result)
        more = []
        for each in choices.values() if left else ():
            beyond_edge = each.further()
            if beyond_edge:
                before, each.extensions = each.method, each.extensions + 1
                each.method = replace(before, choices={**before.choices, **beyond_edge})
                more += [job for job in search_jobs(each.method, folder) if job.choice in beyond_edge]
        run.total += len(more)
        if not more:
            break
    return list(choices.values())


def quarter(config: Config, most: int = 10_000) -> Config:
    """Return a config to choose by: a quarter of the epochs, annealed within them, on at most ``most`` images.

    Schedules go by the share of training that is done; epochs at which a rate is divided move to a quarter.
    """

    def short(epochs: int) -> int:
        return max(1, round(epochs / 4))

    def moved(stops: tuple[int, ...], epochs: int) -> tuple[int, ...]:
        return tuple(max(min(stop, 1), stop * short(epochs) // epochs) for stop in stops)

    given = config.run
    available = len(load_data(config.data.source, image_size=config.data.image_size).train)
    return config.replace(
        epochs=short(given.epochs),
        phases=tuple(
            replace(phase, epochs=short(phase.epochs), anneal_at=moved(phase.anneal_at, phase.epochs))
            for phase in given.phases
        ),
        anneal_at=moved(config.optimizer.anneal_at, given.epochs),
        train_size=config.data.train_size if (config.data.train_size or available) <= most else most,
    )


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
            yield Job(
                method.name,
                choice,
                candidate,
                folder / "search" / f"{slug(method.trial_name or method.name)}-{choice}-seed{seed}",
            )


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


def final_jobs(method: Method, choice: str, folder: Path) -> Iterator[Job]:
    """Yield the runs of one method: one per seed, with the settings chosen."""
    config = method.choices[choice]
    for seed in range(config.run.seed, config.run.seed + method.seeds):
        name = f"{slug(method.name)}-{choice}-seed{seed}"
        yield Job(method.name, choice, started(method, config.replace(seed=seed), folder), folder / name)


def slug(name: str) -> str:
    """Return a name as part of a folder's."""
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower()).replace("--", "-").strip("-")
