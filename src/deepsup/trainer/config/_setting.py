"""A field of a group of settings and a value -> the value in the field's type, or one line that says what is wrong."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, fields
from functools import cache
from itertools import pairwise
from math import inf, isfinite
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from deepsup.errors import ConfigError, nearest

_RENAMED = {("anneal", "epochs"): "step", ("anneal", "stall"): "plateau", ("anneal", "triangle"): "triangular"}
_RENAMED_SETTINGS = {
    "taps": "at", "learning_rate": "lr", "head_lr": "companion_lr", "head_lr_decay": "companion_lr_decay",
}  # fmt: skip
_SWITCHED = {True: "on", False: "off", "true": "on", "false": "off", "True": "on", "False": "off"}
"""YAML reads on as true."""


def current_name(name: str) -> str:
    """Return the name of a setting in this version; older files, records and commands have other names for some.

    >>> current_name("taps"), current_name("epochs")
    ('at', 'epochs')
    """
    return _RENAMED_SETTINGS.get(name, name)


def current(name: str, value: Any) -> Any:
    """Return a setting's value in the words of this version; older files and commands have other words for some."""
    if not isinstance(value, str | bool):
        return value
    return _SWITCHED.get(value, value) if name == "amp" else _RENAMED.get((name, str(value)), value)


class Bounds(NamedTuple):
    """The least and the greatest value of a number; it annotates the number's type."""

    least: float
    most: float = inf


class Settings:
    """A group of settings, a frozen dataclass: every value is put into its field's type, or refused."""

    def __post_init__(self) -> None:
        for setting in settings_of(type(self)):
            value = current(setting.name, getattr(self, setting.field))
            object.__setattr__(self, setting.field, typed(setting, setting.kind, value))


class Setting(NamedTuple):
    """A field of a group. ``name`` is its flag and its key in a YAML file, unique over all groups of a Config."""

    group: type[Settings]
    field: str
    name: str
    kind: Any

    @property
    def doc(self) -> str:
        """The string literal below the field."""
        return _docs(self.group.__module__)[self.group.__name__, self.field]


def settings_of(group: type[Any]) -> list[Setting]:
    """Return the fields of a group, in order; a field's metadata may give it another name."""
    kinds = _kinds(group)  # type: ignore[arg-type] # mypy takes classes for unhashable
    return [Setting(group, each.name, each.metadata.get("name", each.name), kinds[each.name]) for each in fields(group)]


@cache
def _kinds(group: type[Any]) -> dict[str, Any]:
    """Return field -> type, bounds included."""
    return get_type_hints(group, include_extras=True)


@cache
def _docs(module: str) -> dict[tuple[str, str], str]:
    """Return class and field -> the string literal below the field, which Python itself does not keep."""
    tree, docs = ast.parse(inspect.getsource(sys.modules[module])), {}
    for node in (each for each in tree.body if isinstance(each, ast.ClassDef)):
        for above, below in pairwise(node.body):
            match above, below:
                case ast.AnnAssign(target=ast.Name(id=field)), ast.Expr(value=ast.Constant(value=str(doc))):
                    docs[node.name, field] = " ".join(doc.split())
    return docs


def typed(setting: Setting, kind: Any, value: Any) -> Any:
    """Return a value as ``kind``, the setting's type or a part of it; refuse others in the words the user typed."""
    value = value.tolist() if hasattr(value, "tolist") else value  # numbers and arrays of numpy
    origin, (first, *rest) = get_origin(kind), get_args(kind) or (kind,)
    if origin in (Union, UnionType):  # with None, or with words beside a number
        words = [word for each in rest if get_origin(each) is Literal for word in get_args(each)]
        if value in words or (value is None and not words):
            return value
        if words and isinstance(value, str) and not is_number(value):
            raise ConfigError(f"{setting.name}={value!r}; expected a number or {' or '.join(words)}: {setting.doc}")
        return typed(setting, first, value)
    if origin is tuple:
        return tuple(typed(setting, first, each) for each in (value if isinstance(value, list | tuple) else (value,)))
    if origin is Annotated:
        return bounded(setting, rest[0], typed(setting, first, value))
    if origin is Literal:
        if value not in (first, *rest):
            raise ConfigError(f"{setting.name}={value!r}; {nearest(str(value), (first, *rest))}")
        return value
    if issubclass(origin or kind, Settings):
        return value if isinstance(value, kind) else from_mapping(kind, value)
    return scalar(setting, origin or kind, value)


def is_number(word: str) -> bool:
    """Whether a word is a number.

    >>> is_number("1e-3"), is_number("softmax")
    (True, False)
    """
    try:
        float(word)
    except ValueError:
        return False
    return True


def scalar(setting: Setting, kind: type, value: Any) -> Any:
    """Return a value that is neither list nor choice as ``kind``."""
    if kind is float and type(value) in (int, str):
        with suppress(ValueError):
            value = float(value)  # YAML reads 1e-3 as a word
    if kind is str and type(value) is int:
        value = str(value)  # YAML reads pool: 4 as a number
    if type(value) is not kind:
        raise ConfigError(f"{setting.name}={value!r}; expected {kind.__name__}: {setting.doc}")
    return value


def bounded(setting: Setting, bounds: Bounds, value: float) -> float:
    """Return a number that is within its bounds."""
    if isfinite(value) and bounds.least <= value <= bounds.most:
        return value
    most = f" and at most {bounds.most:g}" if isfinite(bounds.most) else ""
    raise ConfigError(f"{setting.name}={value}; expected a number of at least {bounds.least:g}{most}: {setting.doc}")


def from_mapping(group: type[Any], given: Any) -> Any:
    """Make a group, such as a phase, of keys and values."""
    name, known = group.__name__.lower(), [setting.field for setting in settings_of(group)]
    if not isinstance(given, Mapping):
        raise ConfigError(f"a {name} is {given!r}; expected keys and values: {', '.join(known)}")
    for key in given:
        if key not in known:
            raise ConfigError(f"a {name} has no key {key!r}; {nearest(str(key), known)}")
    needed = [each.name for each in fields(group) if each.default is MISSING]
    if not given.keys() >= set(needed):
        raise ConfigError(f"{name} {dict(given)}; expected at least {' and '.join(needed)}")
    return group(**given)


def option_words(name: str, value: Any) -> list[str]:
    """Return a setting as the words that the command line takes for it.

    >>> option_words("shuffle", False), option_words("alpha", [0.1, 0.2]), option_words("network_options", {"a": 1})
    (['--no-shuffle'], ['--alpha', '0.1', '0.2'], ['--network-options', 'a=1'])
    """
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{option}" if value else f"--no-{option}"]
    return [f"--{option}", *value_words(value)]


def value_words(value: Any) -> list[str]:
    """Return a value as the words that follow its option."""
    if isinstance(value, Mapping):
        import yaml

        texts = {key: yaml.safe_dump(each, default_flow_style=True, width=10**6) for key, each in value.items()}
        return [f"{key}={text.splitlines()[0]}" for key, text in texts.items()]
    return list(map(str, value)) if isinstance(value, list | tuple) else [str(value)]
