"""The Config's fields -> options of a verb, in groups; what was given on the command line -> a Config, and back."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Collection
from dataclasses import Field, fields, make_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import yaml
from tyro.conf import arg

from deepsup.config import GROUPS, Config
from deepsup.errors import ConfigError
from deepsup.recipes import find_recipe

_KINDS = get_type_hints(Config) | {"network_options": tuple[str, ...]}
_METAVARS = {int: "INT", float: "FLOAT", str: "NAME", int | None: "INT", str | None: "NAME", bool: ""} | {
    tuple[int, ...]: "INT ...", tuple[float, ...]: "FLOAT ...", tuple[str, ...]: "NAME ..."
}  # fmt: skip


def options(defaults: Config, without: Collection[str] = ()) -> Any:
    """Return a class with one field per group, each a class with one optional field per setting: the verb's options."""
    groups = []
    for group in GROUPS:
        held = [f for f in fields(Config) if f.metadata["group"] == group and f.name not in {*without, "phases"}]
        made = make_dataclass(group, [_option(f, defaults) for f in held], frozen=True)
        groups.append((group, made, dataclasses.field(default=made())))
    return make_dataclass("Settings", groups, frozen=True)


def _option(setting: Field[Any], defaults: Config) -> tuple[str, Any, Any]:
    """Return name, annotation and default of one option: None, unless it is given."""
    kind = _KINDS[setting.name]
    metavar = setting.metadata["metavar"] or _METAVARS[kind]
    shown = arg(help=_help(setting), metavar=metavar, help_behavior_hint=f"(default: {_shown(setting, defaults)})")
    return setting.name, Annotated[kind | None, shown], dataclasses.field(default=None)


def _help(setting: Field[Any]) -> str:
    doc, among = setting.metadata["doc"], setting.metadata["among"]
    named = all(choice in doc for choice in among)  # or there are none
    return str(doc) if named else f"{doc}: {', '.join(among[:-1])} or {among[-1]}"


def _shown(setting: Field[Any], defaults: Config) -> str:
    default = getattr(defaults, setting.name)
    if default is None or default == () or default == {}:
        return str(setting.metadata["unset"])
    if isinstance(default, bool):
        return "on" if default else "off"
    return " ".join(_words(default))


def _words(value: Any) -> list[str]:
    """Return a value as the words that follow its option."""
    if isinstance(value, dict):
        return [f"{key}={yaml.safe_dump(each, default_flow_style=True, width=10**6).splitlines()[0]}"
                for key, each in value.items()]  # fmt: skip
    return [str(each) for each in (value if isinstance(value, tuple) else (value,))]


def given(settings: Any) -> dict[str, Any]:
    """Return the settings that were given on the command line."""
    found = {name: value for group in dataclasses.asdict(settings).values() for name, value in group.items()}
    found = {name: value for name, value in found.items() if value is not None}
    if "network_options" in found:
        found["network_options"] = dict(_key_and_value(word) for word in found["network_options"])
    return found


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
    if changes.get("network", start.network) != start.network:
        changes = {"network_options": {}, **changes}
    return Config.from_dict({**start.to_dict(), **changes})


def command(verb: str, recipe: str | None, file: Path | None, given: dict[str, Any], out: Path, *more: str) -> str:
    """Return the command of a verb with the same recipe or file and these settings, quoted for a shell."""
    words = ["deepsup", verb]
    words += [] if recipe is None else ["--recipe", recipe]
    words += [] if file is None else ["--config", str(file)]
    for name, value in given.items():
        option = name.replace("_", "-")
        words += [f"--{option}" if value else f"--no-{option}"] if isinstance(value, bool) else [
            f"--{option}", *_words(value)]  # fmt: skip
    return shlex.join([*words, *more, "--out", str(out)])
