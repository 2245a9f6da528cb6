"""The Config's fields -> options of a verb, in groups; what was given on the command line -> a Config, and back."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Collection
from dataclasses import make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import yaml
from tyro.conf import arg

from deepsup.errors import ConfigError
from deepsup.trainer.config import GROUPS, PLACES, Config, Setting, option_words, settings_of, value_words
from deepsup.trainer.recipes import find_recipe

_KINDS = {int: "INT", float: "FLOAT", str: "NAME", bool: ""}
_METAVARS = {"data": "NAME|PATH", "pool": "NAME|INT", "network_options": "KEY=VALUE ...",
             "balance": "FLOAT|NAME", "start_from": "RUN", "weights": "FILE"}  # fmt: skip
"""The value of a setting in the help, where its type does not say enough."""
_UNSET = {
    "train_size": "all", "image_size": "as they are", "sides": "as they are", "companion_loss": "the output's",
    "full_precision": "measured", "limit_steps": "no limit", "checkpoint_steps": "by the minutes only",
}  # fmt: skip
"""What the help says for a default of None or of no values; for all others, none."""


def options(defaults: Config, without: Collection[str] = ()) -> Any:
    """Return a class with one field per group, each a class with one optional field per setting: the verb's options."""
    groups = []
    for name, group in GROUPS.items():
        shown = [each for each in settings_of(group) if each.name not in {*without, "phases"}]
        made = make_dataclass(name, [_option(each, defaults) for each in shown], frozen=True)
        groups.append((name, made, dataclasses.field(default=made())))
    return make_dataclass("Settings", groups, frozen=True)


def _option(setting: Setting, defaults: Config) -> tuple[str, Any, Any]:
    """Return name, annotation and default of one option: None, unless it is given."""
    kind, many = _kind(setting)
    metavar = _METAVARS.get(setting.name) or _KINDS[kind] + " ..." * many
    hint = f"(default: {default_of(setting, defaults)})"
    shown = arg(help=help_of(setting), metavar=metavar, help_behavior_hint=hint)
    taken: Any = tuple[kind, ...] if many else kind  # type: ignore[valid-type] # it is for the parser
    return setting.name, Annotated[taken | None, shown], dataclasses.field(default=None)


def _kind(setting: Setting) -> tuple[type, bool]:
    """Return the type of a setting's value, or of each of its values, and whether it has many.

    A choice is a word here: the Config checks it, and takes those of earlier versions too.
    """
    kind = get_type_hints(setting.group)[setting.field]
    origin, (first, *_) = get_origin(kind), get_args(kind) or (kind,)
    if origin in (tuple, dict):
        return first, True  # options of a network are words, KEY=VALUE
    first = str if _choices(kind) else first
    return first, False


def _choices(kind: Any) -> tuple[str, ...]:
    """Return the words among which a setting is chosen, none where it is not."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    return next((choices for each in get_args(kind) if (choices := _choices(each))), ())


def help_of(setting: Setting) -> str:
    """Return what a setting sets, with its choices."""
    choices = _choices(setting.kind)
    named = "--" in setting.doc or all(choice in setting.doc for choice in choices)  # or there are none
    return setting.doc if named else f"{setting.doc}: {', '.join(choices[:-1])} or {choices[-1]}"


def default_of(setting: Setting, defaults: Config) -> str:
    """Return the default of a setting as the help says it."""
    group, field = PLACES[setting.name]
    default = getattr(getattr(defaults, group), field)
    if default is None or default == () or default == {}:
        return _UNSET.get(setting.name, "none")
    if isinstance(default, bool):
        return "on" if default else "off"
    return " ".join(value_words(default))


def given(settings: Any) -> dict[str, Any]:
    """Return the settings that were given on the command line."""
    values = {name: value for group in dataclasses.asdict(settings).values() for name, value in group.items()}
    values = {name: value for name, value in values.items() if value is not None}
    if "network_options" in values:
        values["network_options"] = dict(_key_and_value(word) for word in values["network_options"])
    return values


def _key_and_value(word: str) -> tuple[str, Any]:
    key, equals, value = word.partition("=")
    if not equals:
        raise ConfigError(f"--network-options {word}; expected KEY=VALUE, e.g. drop=0.3")
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigError(f"--network-options {word}: the value is not YAML; expected e.g. drop=0.3") from error


def base(recipe: str | None, file: Path | None, default: Config) -> Config:
    """Return the config that the settings start from: a recipe's, a file's or the default one."""
    if recipe is not None and file is not None:
        raise ConfigError(f"both --recipe {recipe} and --config {file}; expected one of them")
    if file is not None:
        return Config.from_yaml(file)
    return default if recipe is None else find_recipe(recipe)


def resolved(start: Config, settings: Any) -> Config:
    """Return a config with the settings that were given on the command line; another network has its own options."""
    changes = given(settings)
    if changes.get("network", start.network.name) != start.network.name:
        changes = {"network_options": {}, **changes}
    return start.replace(**changes)


def command(verb: str, recipe: str | None, file: Path | None, given: dict[str, Any], out: Path, *more: str) -> str:
    """Return the command of a verb with the same recipe or file and these settings, quoted for a shell."""
    words = ["deepsup", verb]
    words += [] if recipe is None else ["--recipe", recipe]
    words += [] if file is None else ["--config", str(file)]
    for name, value in given.items():
        words += option_words(name, value)
    return shlex.join([*words, *more, "--out", str(out)])
