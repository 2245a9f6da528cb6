"""Settings by name or in groups, from keywords or a YAML file -> a Config, frozen and checked; and back."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepsup.errors import ConfigError, nearest
from deepsup.io import file_named, read_yaml
from deepsup.trainer.config._groups import (
    GROUPS,
    PLACES,
    DataSettings,
    NetworkSettings,
    ObjectiveSettings,
    OptimizerSettings,
    Phase,
    RunSettings,
    SupervisionSettings,
)
from deepsup.trainer.config._setting import current_name, settings_of


@dataclass(frozen=True, init=False)
class Config:
    """All settings of a run, in six groups.

    Give them by name, ``Config(data="mnist", lr=0.1)``, or in groups, ``Config(optimizer={"lr": 0.1})``. Read them in
    their groups, ``config.optimizer.lr``. A name is also an option of ``deepsup train`` and a key of its YAML file.
    """

    data: DataSettings
    network: NetworkSettings
    supervision: SupervisionSettings
    objective: ObjectiveSettings
    optimizer: OptimizerSettings
    run: RunSettings

    def __init__(self, **settings: Any) -> None:
        named = by_name(settings)
        for group, kind in GROUPS.items():
            given = {each.field: named[each.name] for each in settings_of(kind) if each.name in named}
            object.__setattr__(self, group, kind(**given))
        self._check()

    def _check(self) -> None:
        """Refuse settings of several groups that do not go together."""
        anneal, select = self.optimizer.anneal, self.run.select
        judges = anneal == "plateau" or select == "best"
        if judges and not self.data.validation:
            raise ConfigError(
                f"anneal={anneal} select={select} without validation images; expected some to judge by; "
                f"set validation, e.g. --validation 100"
            )
        if judges and self.run.validate_every != 1:
            raise ConfigError(
                f"validate_every={self.run.validate_every} with anneal={anneal} select={select}; expected 1: they "
                f"judge every epoch"
            )
        if anneal == "cosine" and self.run.phases:
            raise ConfigError("anneal=cosine with phases; expected anneal=cosine in the phases that have that schedule")

    if not TYPE_CHECKING:  # our own code reads groups, and the type checker sees to it

        def __getattr__(self, name: str) -> Any:
            """Read a setting by its name, as scripts of earlier versions do."""
            if name in GROUPS or current_name(name) not in PLACES:
                raise AttributeError(f"Config has no attribute {name!r}")
            group, field = PLACES[current_name(name)]
            warnings.warn(f"config.{name} is now config.{group}.{field}", DeprecationWarning, stacklevel=2)
            return getattr(getattr(self, group), field)

    @property
    def plan(self) -> tuple[Phase, ...]:
        """The phases of training: those given, or a single one."""
        if self.run.phases:
            return self.run.phases
        optimizer = self.optimizer
        stops = optimizer.anneal_at if optimizer.anneal == "step" else ()
        anneal = "step" if optimizer.anneal == "plateau" else optimizer.anneal
        return (
            Phase(self.run.epochs, optimizer.lr, anneal=anneal, anneal_at=stops, anneal_factor=optimizer.anneal_factor),
        )

    @property
    def total_epochs(self) -> int:
        """The epochs of all phases."""
        return sum(phase.epochs for phase in self.plan)

    def side(self, epoch: int) -> int | None:
        """Return what training images are scaled to in an epoch; None: they stay as they are."""
        sides = self.data.sides
        return sides[epoch * len(sides) // self.total_epochs] if sides else None

    def replace(self, **changes: Any) -> Config:
        """Return a Config with some settings changed, by name or in groups: ``config.replace(lr=0.1, seed=3)``."""
        return Config(**{**self._named(), **by_name(changes)})

    def _named(self) -> dict[str, Any]:
        return {name: getattr(getattr(self, group), field) for name, (group, field) in PLACES.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return all settings by name, without groups, in plain types: what files, records and checkpoints hold."""
        return {name: plain_types(value) for name, value in self._named().items()}

    @staticmethod
    def from_dict(given: Mapping[str, Any], where: str = "config") -> Config:
        """Make a Config of settings by name or in groups; unknown names are refused with the nearest one."""
        return Config(**by_name(given, where))

    @staticmethod
    def recorded(given: Mapping[str, Any], where: str = "config") -> Config:
        """Make a Config of what a run or a record holds; settings that are newer than it are as they were then."""
        then = {"companion_length": 0.0, "average": False, "join": "sum", "decay_by": "epoch"}
        return Config(**{**then, **by_name(given, where)})

    @staticmethod
    def from_yaml(path: str | os.PathLike[str]) -> Config:
        """Read a Config from a YAML file of settings, by name or in groups."""
        with file_named(path, ConfigError):
            return Config.from_dict(read_yaml(path), str(path))

    def to_yaml(self) -> str:
        """Return the Config as a YAML file, without groups."""
        import yaml

        return yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True)


def by_name(given: Mapping[str, Any], where: str = "config") -> dict[str, Any]:
    """Return settings by name, of settings that may stand in groups.

    A group is an object, which a name beside it overrides, or a mapping; duplicates are errors.
    """
    whole = {key: value for key, value in given.items() if key in GROUPS and isinstance(value, GROUPS[key])}
    settings = {
        each.name: getattr(value, each.field) for key, value in whole.items() for each in settings_of(GROUPS[key])
    }
    seen: set[str] = set()
    for key, value in given.items():
        if key in whole:
            continue
        if whole and key in GROUPS:  # dataclasses.replace would reset the rest of the group
            raise ConfigError(f"{where}: {key}={value!r} beside whole groups; expected e.g. config.replace({key}=...)")
        grouped = key in GROUPS and isinstance(value, Mapping)
        named = {_within(key, each, where): value[each] for each in value} if grouped else {_known(key, where): value}
        for name in seen & named.keys():
            raise ConfigError(f"{where}: {name} is given twice, by itself and in {PLACES[name][0]}; expected it once")
        seen |= named.keys()
        settings |= named
    return settings


def _known(name: Any, where: str) -> str:
    name = current_name(name) if isinstance(name, str) else name
    if name in GROUPS and name not in PLACES:
        raise ConfigError(f"{where}: {name} is a group; expected settings and their values in it")
    if name not in PLACES:
        raise ConfigError(f"{where}: no setting {name!r}; {nearest(str(name), PLACES)}")
    return str(name)


def _within(group: str, key: Any, where: str) -> str:
    """Return the name of a setting that stands in a group, under its name or its field."""
    fields = {each.field: each.name for each in settings_of(GROUPS[group])}
    name = str(fields.get(key, current_name(key) if isinstance(key, str) else key))
    if name in fields.values():
        return name
    if name in PLACES:
        raise ConfigError(f"{where}: {name} stands in {group}; expected it in {PLACES[name][0]}, or without a group")
    raise ConfigError(f"{where}: no setting {key!r} in {group}; {nearest(name, fields)}")


def plain_types(value: Any) -> Any:
    """Return phases as dictionaries and tuples as lists, all the way down."""
    if isinstance(value, Phase):
        value = dataclasses.asdict(value)
    if isinstance(value, dict):
        return {key: plain_types(each) for key, each in value.items()}
    return [plain_types(each) for each in value] if isinstance(value, list | tuple) else value
