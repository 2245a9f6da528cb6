"""What a target trains: rows of methods with the paper's numbers, the three presets, and how long they take."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from deepsup.errors import ConfigError, nearest
from deepsup.io import whole_file
from deepsup.paper.row_id import RowId
from deepsup.trainer.config import Config
from deepsup.trainer.data import COMPOSED, HALVES, KNOWN, load_data
from deepsup.trainer.networks import describe
from deepsup.trainer.studies import Method, with_precision

PRESETS = ("paper", "cpu", "smoke", "start")
START_STEPS = 300
"""Of each row under the preset start, which shows that the rows of the preset paper learn."""

# images per second in training on two cores with fast bfloat16 (AVX512): cnn and NIN on MNIST and CIFAR-10 are
# measured, the others are guessed from these and from older measurements by their multiply-adds
SPEED = {
    "cnn": 5000.0, "nin-mnist": 460.0, "nin-cifar10": 180.0,
    "nin-cifar100": 180.0, "nin-svhn": 140.0, "maxout-mnist": 400.0, "maxout-cifar10": 55.0, "maxout-svhn": 130.0,
    "stochastic-pooling-mnist": 450.0, "stochastic-pooling-cifar10": 300.0, "stochastic-pooling-svhn": 270.0,
    "dropconnect-cifar10": 220.0, "dropconnect-svhn": 150.0, "tree-cifar100": 180.0, "unet-small": 500.0,
}  # fmt: skip
WORK_SPEED = {"fast": 2e10, "plain": 1.5e10}
"""Nets whose size is an option -> multiply-adds of forward passes per second in training, on two cores."""


@dataclass(frozen=True)
class Panel:
    """Axes of a figure with lines."""

    x: str
    """Label of the horizontal axis."""
    title: str = ""
    log: bool = True
    """Whether the horizontal axis is logarithmic."""


@dataclass(frozen=True)
class Place:
    """One point of a line."""

    line: str
    """Label of the line."""
    x: float
    panel: int = 0
    look: str = ""
    """The method whose color and marker the line has; default: the line's own label."""


@dataclass(frozen=True)
class Row:
    """A method, the paper's number for it if there is one, and what differs from the paper's protocol."""

    id: RowId
    method: Method
    """Its name is the row's label, for people."""
    paper: float | None = None
    differs: str = ""
    places: tuple[Place, ...] = ()
    """Its points in the figure, if the figure has lines."""


@dataclass(frozen=True)
class Plan:
    """The rows of a target, in groups that are run one after the other."""

    groups: tuple[tuple[Row, ...], ...]
    runs: str
    """The folder of its runs; targets that name the same one share them."""
    pairs: tuple[tuple[RowId, RowId], ...] = ()
    """Rows to compare, paired over seeds: the one that should have the lower error first."""
    panels: tuple[Panel, ...] = ()
    """The figure's axes; none: bars."""
    amp: str | None = "auto"
    """The precision of all rows, in the words of ``--amp``; None: each row has its own."""

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows, in order."""
        return tuple(row for group in self.groups for row in group)


def check_preset(preset: str) -> None:
    """Refuse an unknown preset."""
    if preset not in PRESETS:
        raise ConfigError(f"no preset {preset!r}; {nearest(preset, PRESETS)}")


def with_seeds(plan: Plan, seeds: int | None) -> Plan:
    """Return the plan with another number of seeds in every row."""
    if seeds is None:
        return plan
    if seeds < 1:
        raise ConfigError(f"seeds={seeds}; expected at least 1")
    groups = tuple(
        tuple(replace(row, method=replace(row.method, seeds=seeds)) for row in group) for group in plan.groups
    )
    return replace(plan, groups=groups)


def in_one_precision(plan: Plan, recorded: Mapping[str, Any] | None, folder: Path) -> Plan:
    """Return the plan with all rows in one precision: that of the first recorded row or run, else what is fast here."""
    if plan.amp is None:
        return plan
    first = next((entry["config"] for entry in (recorded or {}).get("rows", []) if "config" in entry), None)
    choice = Config(amp=plan.amp) if first is None else Config(amp=Config.recorded(first).run.amp)
    amp = with_precision(choice, folder).run.amp

    def at(config: Config) -> Config:
        return config.replace(amp=amp)

    def in_precision(method: Method) -> Method:
        choices = {name: at(config) for name, config in method.choices.items()}
        return replace(method, choices=choices, start=None if method.start is None else at(method.start))

    groups = tuple(tuple(replace(row, method=in_precision(row.method)) for row in group) for group in plan.groups)
    return replace(plan, groups=groups)


def minutes(plan: Plan) -> float:
    """Return about how many minutes a plan takes on two cores: images to be seen, over images per second.

    The first choice stands for the one that will be chosen; what rows share is counted once.
    """
    shared: dict[str, Config] = {}
    total = 0.0
    for row in plan.rows:
        method = row.method
        for choice, config in method.choices.items() if len(method.choices) > 1 else ():
            for seed in range(method.searches):
                shared[f"{method.trial_name or method.name}-{choice}-{seed}"] = method.trial(config)
        if method.start is not None:
            shared |= {f"{method.start}-{seed}": method.start for seed in range(method.seeds)}
        total += method.seeds * seconds(next(iter(method.choices.values())))
    return (total + sum(map(seconds, shared.values()))) / 60


def seconds(config: Config) -> float:
    """Return about how long one run takes on two cores."""
    known = KNOWN | COMPOSED | HALVES
    images = config.data.train_size or known[config.data.source].counts["train"] + (531_131 if config.data.extra else 0)
    if config.network.name not in WORK_SPEED:
        width = float(config.network.options.get("width", 1.0))  # NIN's work grows with its square
        return 2 + images * config.total_epochs * width**2 / SPEED[config.network.name]
    channels, side, _ = (KNOWN | HALVES)[config.data.source].shape
    work = work_of(config.network.name, channels, side, json.dumps(config.network.options))
    smaller = mean((each / side) ** 2 for each in config.data.sides or (side,))
    return 2 + images * config.total_epochs * work * smaller / WORK_SPEED[config.network.name]


@cache
def work_of(network: str, channels: int, side: int, options: str) -> int:
    """Return the multiply-adds of a net per image; options are JSON, to be looked up: building a net takes 0.1 s."""
    return describe(network, in_channels=channels, image_size=side, **json.loads(options)).multiply_adds


def start_plan(plan: Plan) -> Plan:
    """Return the first steps of every row of a plan, as they are: one seed, the rate in the middle, nothing chosen."""

    def first_steps(method: Method) -> Method:
        names = list(method.choices)
        middle = names[len(names) // 2]
        config = method.choices[middle].replace(limit_steps=START_STEPS, tensorboard=False, keep=1)
        start = None if method.start is None else method.start.replace(limit_steps=START_STEPS)
        return replace(method, choices={middle: config}, seeds=1, searches=1, start=start)

    groups = tuple(tuple(replace(row, method=first_steps(row.method)) for row in group) for group in plan.groups)
    return replace(plan, groups=groups)


def smoke_plan(plan: Plan, folder: Path) -> Plan:
    """Return the plan of a few seconds: tiny images, two steps, one seed, the first row of each line of the figure.

    Only the first row has settings to choose from.
    """
    first, seen, kept = plan.rows[0], set[tuple[str, int]](), set[RowId]()
    for row in plan.rows:
        lines = {(place.line, place.panel) for place in row.places}
        if not lines or lines - seen:
            kept.add(row.id)
            seen |= lines
    groups = [
        tuple(smoke_row(row, folder, 2 if row is first else 1) for row in group if row.id in kept)
        for group in plan.groups
    ]
    return replace(plan, groups=tuple(group for group in groups if group))


def smoke_row(row: Row, folder: Path, most: int) -> Row:
    """Return a row of the smoke preset, with at most so many choices."""
    choices = {name: smoke_config(config, folder) for name, config in list(row.method.choices.items())[:most]}
    start = None if row.method.start is None else smoke_config(row.method.start, folder)
    method = replace(row.method, choices=choices, seeds=1, searches=1, trial=lambda config: config, start=start)
    return replace(row, method=method, differs="smoke: 60 embedded digits, two steps; it shows that all runs, no more")


def smoke_config(config: Config, folder: Path) -> Config:
    """Return a config that ends within a second or two."""
    if config.data.source in COMPOSED:
        return config.replace(train_size=16, epochs=1, batch_size=8, limit_steps=2, tensorboard=False, keep=1)
    small = config.network.name.startswith(("nin", "fast", "plain"))  # these take images of any size
    grey = config.data.source == "mnist"
    data = smoke_data(folder, channels=1 if grey else 3, side=12 if small else 28 if grey else 32)
    phases = tuple(replace(phase, epochs=1, anneal_at=()) for phase in config.run.phases)
    options = {key: value for key, value in config.network.options.items() if key != "prior"}  # needs 100 classes
    return config.replace(
        data=str(data), network_options=options, train_size=40, extra=False, epochs=2, batch_size=8, anneal_at=(),
        phases=phases, limit_steps=None if phases else 2, gradient_every=1, tensorboard=False, keep=1,
    )  # fmt: skip


def smoke_data(folder: Path, channels: int, side: int) -> Path:
    """Write 60 embedded digits to train on and 20 to test on, of so many channels and pixels; return the file."""
    path = folder.resolve() / f"smoke-{channels}x{side}.npz"
    if path.is_file():
        return path
    digits, edge = load_data("mnist-mini"), max(0, (side - 28) // 2)
    arrays: dict[str, np.ndarray] = {}
    for name, part, count in (("train", digits.train, 6), ("test", digits.test, 2)):
        first = np.concatenate([np.flatnonzero(part.labels == label)[:count] for label in range(10)])
        images = np.pad(part.images[first], ((0, 0), (0, 0), (edge, edge), (edge, edge)))
        if side < 28:
            images = images[:, :, 2:-2:2, 2:-2:2]
        images = np.repeat(images, channels, axis=1).transpose(0, 2, 3, 1)
        arrays |= {f"{name}_images": images, f"{name}_labels": part.labels[first]}
    folder.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type] # its own keyword comes first in the stubs
    return path


def differences(config: Config, full: Config) -> str:
    """Say in what a config departs from the paper's full protocol."""
    size = full.data.train_size or KNOWN[full.data.source].counts["train"] + (531_131 if full.data.extra else 0)
    facts = (
        (config.data.train_size or size, size, "{:,} training images, not {:,}"),
        (config.total_epochs, full.total_epochs, "{} epochs, not {}"),
        (config.run.batch_size, full.run.batch_size, "batch {}, not {}"),
        (config.network.name, full.network.name, "the net {}, not {}"),
        (config.network.options.get("width", 1.0), full.network.options.get("width", 1.0), "{} times the width"),
    )
    departures = [words.format(ours, theirs) for ours, theirs, words in facts if ours != theirs]
    he = config.network.options.get("init") == "he" != full.network.options.get("init")
    return "; ".join([*departures, *(["He initialization"] if he else [])])


def at(config: Config, rates: Sequence[float], alphas: Sequence[float] = ()) -> dict[str, Config]:
    """Return the choices: every learning rate, for a net with companions with every alpha."""
    if config.supervision.taps in (("none",), ()) or not alphas:
        return {f"lr{lr:g}": config.replace(lr=lr) for lr in rates}
    return {f"lr{lr:g}-alpha{alpha:g}": config.replace(lr=lr, alpha=(alpha,)) for lr in rates for alpha in alphas}
