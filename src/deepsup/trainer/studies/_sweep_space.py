"""The settings that a sweep searches, and their ranges: by default, or from a YAML file of the user's own.

lr: {low: 0.003, high: 0.3, log: true}     # a range; log: equal ratios are equally likely
batch_size: {low: 16, high: 64}            # whole numbers where the setting is one
schedule: [constant, linear]               # choices
at: [[conv1], [conv1, conv2]]              # choices that are lists
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepsup.errors import ConfigError, DeepsupError, nearest
from deepsup.io import faults_named, read_yaml
from deepsup.trainer.config import PLACES, Config, current_name, plain_types
from deepsup.trainer.data import load_data
from deepsup.trainer.training import build_net, build_objective

COMPANIONS = frozenset(
    {"at", "pool", "hidden", "companion_length", "companion_init", "companion_loss", "companion_labels", "alpha",
     "gamma", "schedule", "decay_by", "average", "join", "companion_lr", "companion_lr_decay"}
)  # fmt: skip
"""Settings that mean nothing for the plain net."""
DECIDED = frozenset(
    {"data", "train_size", "validation", "image_size", "extra", "seed", "test", "test_every", "validate_every",
     "select", "phases", "limit_steps", "device", "tensorboard", "keep", "checkpoint_minutes", "checkpoint_steps",
     "gradient_every", "network_options"}
)  # fmt: skip
"""Settings that a sweep does not search: the data, what it decides itself, and what changes no result."""


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``."""

    low: float
    high: float
    log: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return it as the YAML file has it."""
        return {"low": self.low, "high": self.high} | ({"log": True} if self.log else {})


@dataclass(frozen=True)
class Choice:
    """Values to choose from."""

    values: tuple[Any, ...]

    def named(self) -> dict[str, Any]:
        """Return a name per value: Optuna chooses among words and numbers."""
        return {name_of_choice(value): value for value in self.values}

    def to_dict(self) -> list[Any]:
        """Return it as the YAML file has it."""
        return [plain_types(value) for value in self.values]


Space = Mapping[str, Range | Choice]
"""Name of a setting -> what to search."""


def name_of_choice(value: Any) -> str:
    """Return a choice as a word.

    >>> name_of_choice(("conv1", "conv2")), name_of_choice(()), name_of_choice("linear")
    ('conv1 conv2', 'none', 'linear')
    """
    return (" ".join(map(str, value)) or "none") if isinstance(value, list | tuple) else str(value)


def default_space(config: Config, taps: tuple[str, ...]) -> dict[str, Range | Choice]:
    """Return what a sweep searches by default, around the config.

    taps: the layers that get companions by default.
    """
    rate = config.optimizer.lr or 0.01
    given = config.supervision
    return {
        "lr": Range(rate / 10, rate * 10, log=True),
        "weight_decay": Range(1e-5, 1e-2, log=True),
        "alpha": Range(0.03, 3.0, log=True),
        "gamma": Range(0.0, 0.3),
        "schedule": choice(config.objective.schedule, "constant", "linear", "paper", "cut:0.25", "cut:0.5"),
        "at": choice(given.taps, *some_of(taps)),
        "pool": choice(given.pool, "avg", "2", "4"),
        "hidden": choice(given.hidden, (), (64,)),
    }


def choice(*values: Any) -> Choice:
    """Return a choice, each value once."""
    return Choice(tuple(dict.fromkeys(values)))


def some_of(taps: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the choices of taps beside all of them: the first, the last, the lower and the upper half.

    >>> some_of(("a", "b", "c"))
    [('a',), ('c',), ('a', 'b'), ('b', 'c')]
    """
    half = (len(taps) + 1) // 2
    choices = dict.fromkeys([taps[:1], taps[-1:], taps[:half], taps[-half:]])
    return [each for each in choices if 0 < len(each) < len(taps)]


def read_space(path: Path, config: Config) -> dict[str, Range | Choice]:
    """Read a space from a YAML file; every value in it is tried on the config."""
    given = read_yaml(path)
    if not given:
        raise ConfigError(f"{path} is empty; expected settings and their ranges, e.g. 'lr: {{low: 0.01, high: 0.1}}'")
    with faults_named(path, ConfigError, "expected settings and their ranges"):
        return parsed_space(given, config, str(path))


def parsed_space(given: Mapping[str, Any], config: Config, where: str) -> dict[str, Range | Choice]:
    """Return the ranges and choices of all settings, under the names of this version."""
    named = {current_name(str(name)): each for name, each in given.items()}
    return {name: parsed(name, each, config, where) for name, each in named.items()}


def parsed(name: str, given: Any, config: Config, where: str) -> Range | Choice:
    if name not in PLACES:
        raise ConfigError(f"{where}: no setting {name!r}; {nearest(name, PLACES.keys() - DECIDED)}")
    if name in DECIDED:
        raise ConfigError(f"{where}: {name} is not searched; expected a setting of the training, e.g. lr or alpha")
    if isinstance(given, list):
        if not given:
            raise ConfigError(f"{where}: {name} has no choices; expected at least one, e.g. [linear, constant]")
        return Choice(tuple(value_of(config.replace(**{name: each}), name) for each in given))
    return parsed_range(name, given, config, where)


def parsed_range(name: str, given: Any, config: Config, where: str) -> Range:
    """Return a range; whole numbers where the setting is one."""
    form = f"{where}: {name} is {given!r}; expected {{low: NUMBER, high: NUMBER}}, with log: true or not, or choices"
    if not isinstance(given, dict) or not {"low", "high"} <= given.keys() <= {"low", "high", "log"}:
        raise ConfigError(form)
    ends = [value_of(config.replace(**{name: given[end]}), name) for end in ("low", "high")]
    low, high = (end[0] if isinstance(end, tuple) and len(end) == 1 else end for end in ends)
    log = given.get("log", False)
    numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high))
    if not numbers or not isinstance(log, bool):
        raise ConfigError(form)
    if low >= high or (log and low <= 0):
        expected = "low below high" + (", and above 0 for log" if log else "")
        raise ConfigError(f"{where}: {name} has an empty range, {low:g} to {high:g}; expected {expected}")
    return Range(low, high, log)


def value_of(config: Config, name: str) -> Any:
    group, field = PLACES[name]
    return getattr(getattr(config, group), field)


def own_value(config: Config, name: str) -> Any:
    """Return the config's own value as a space has it: one number where a setting may have one per tap."""
    value = value_of(config, name)
    return value[0] if isinstance(value, tuple) and len(value) == 1 and isinstance(value[0], float) else value


def contains(space: Range | Choice, value: Any) -> bool:
    if isinstance(space, Choice):
        return value in space.values
    return isinstance(value, int | float) and space.low <= value <= space.high


def check_buildable(space: Space, config: Config) -> tuple[str, ...]:
    """Refuse choices with which no net or objective can be built; return the taps of the config's own net."""
    data = load_data(config.data.source, image_size=config.data.image_size, extra=config.data.extra)
    net = build_net(config, len(data.classes), data.shape)
    for name, each in space.items():
        for value in each.values if isinstance(each, Choice) else ():
            changed = config.replace(**{name: value})
            try:
                build_objective(changed, build_net(changed, len(data.classes), data.shape))
            except DeepsupError as error:
                raise ConfigError(
                    f"the space's choice {name}={name_of_choice(value)} cannot be built: {error}"
                ) from error
    return net.taps if isinstance(net.taps, tuple) else tuple(net.taps)
