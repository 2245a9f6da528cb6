"""What a user gives as ``at`` -> the names of taps: names, suffixes, wildcards, expressions, modules, numbers.

layer1            a name from ``model.named_modules()``
attn              every module whose name ends in ``.attn``, as peft has it
layer*, h.[0-3]   a wildcard within one part of the name; of a whole name, or else of its end
re:layer[12]      a regular expression that fits the whole name
model.layer1      the module itself
h, model.h        of an ``nn.ModuleList``, every layer in it
0, -2             a number counts the model's main blocks, or the layers of an ``nn.Sequential``
block#2           the second call of a layer that runs several times; of an LSTM or GRU, time step 2
block#*           all calls, or all time steps
"""

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any

from torch import Tensor, nn

from deepsup.errors import SupervisionError, nearest
from deepsup.supervision._companions import Companion
from deepsup.supervision._taps import place_of

WILD = frozenset("*?[")


def named_companions(
    model: nn.Module, at: Any, companion: Companion, blocks: Callable[[], Sequence[str]] | None = None
) -> dict[str, Companion]:
    """Return tap name -> companion.

    blocks: gives the names of the model's main blocks, which numbers count.
    """
    if isinstance(at, str | Integral) or callable(at):
        at = [at]
    if not isinstance(at, Iterable) or isinstance(at, bytes | Tensor):
        raise SupervisionError(f"at={at!r}; expected layer names, 'auto', or a mapping from names to companions")
    companions: dict[str, Companion] = {}
    given: dict[str, str] = {}
    for key, each in at.items() if isinstance(at, Mapping) else ((key, companion) for key in at):
        shown = shown_key(key)
        if not isinstance(each, Companion):
            raise SupervisionError(f"at[{shown}] is {each!r}; expected a Companion, e.g. Companion(pool='avg')")
        for name in matching(model, key, blocks):
            if name in companions:
                how = f", by {given[name]} and by {shown}" if given[name] != shown else ""
                raise SupervisionError(f"at names {name!r} more than once{how}; expected each layer once")
            companions[name], given[name] = each, shown
    check_once(model, companions)
    return companions


def check_once(model: nn.Module, names: Iterable[str]) -> None:
    """Raise an error for two names of one layer, and for a layer whose own name reads like one of its calls."""
    first: dict[tuple[nn.Module, int], str] = {}
    for name in names:
        place = place_of(name.removesuffix("#*"))
        try:
            layer = model.get_submodule(place.layer)
        except AttributeError:
            raise SupervisionError(
                f"layer {name!r} has a name that stands for call {place.call} of a layer {place.layer!r}; expected a "
                f"layer whose name does not end in # and a number; rename it"
            ) from None
        same = first.setdefault((layer, place.call), name)
        if same != name:
            raise SupervisionError(
                f"at names {same!r} and {name!r}, which are one layer under two names; expected each layer once; leave "
                f"one out"
            )


def exact_names(model: nn.Module, companions: Mapping[str, Companion]) -> dict[str, Companion]:
    """Return them, if every name is that of a layer; of a stranger's file, which gets no wildcards."""
    layers = [name for name, _ in model.named_modules(remove_duplicate=False) if name]
    for name in companions:
        if place_of(name).layer not in layers:
            raise SupervisionError(f"no layer {name!r} in {type(model).__name__}; {nearest(name, layers)}")
    return dict(companions)


def matching(model: nn.Module, key: Any, blocks: Callable[[], Sequence[str]] | None) -> list[str]:
    """Return the names that one entry of ``at`` stands for; raise an error if there are none."""
    layers = {name: layer for name, layer in model.named_modules(remove_duplicate=False) if name}
    if isinstance(key, nn.Module):
        names = unrolled([name for name, layer in layers.items() if layer is key][:1], layers)
    elif isinstance(key, Integral) and not isinstance(key, bool):
        return [counted(model, int(key), blocks)]
    elif isinstance(key, str):
        names = once(unrolled(by_text(key, layers), layers), layers)
    elif callable(key):
        names = chosen(key, dict(model.named_modules()))
    else:
        raise SupervisionError(
            f"at has {key!r}; expected a layer's name, a wildcard such as 'layer*', 're:...', a module or a number"
        )
    if not names:
        text = key if isinstance(key, str) else ""
        fault = f"at={shown_key(key)} chooses no layer of" if is_choice(key) else f"no layer {shown_key(key)} in"
        raise SupervisionError(f"{fault} {type(model).__name__}; {nearest(text.removeprefix('re:'), layers)}")
    return names


def chosen(key: Callable[[str, nn.Module], Any], layers: Mapping[str, nn.Module]) -> list[str]:
    """Return the names that a user's function chooses."""
    try:
        return [name for name, layer in layers.items() if name and key(name, layer)]
    except Exception as error:
        raise SupervisionError(
            f"at={shown_key(key)} fails ({type(error).__name__}: {' '.join(str(error).split())[:200]}); expected a "
            f"function of a layer's name and the layer that tells whether to tap it: at=lambda name, layer: ..."
        ) from error


def unrolled(names: Sequence[str], layers: Mapping[str, nn.Module]) -> list[str]:
    """Return the names with each ``nn.ModuleList``, which never runs itself, replaced by those of its layers."""
    listed = {name: layers[name] for name in names if is_list(layers.get(name))}
    return [
        each
        for name in names
        for each in ([f"{name}.{child}" for child, _ in listed[name].named_children()] if name in listed else [name])
    ]


def is_list(layer: Any) -> bool:
    """Whether a module is a list of layers without a forward of its own."""
    return isinstance(layer, nn.ModuleList) and type(layer).forward is nn.ModuleList.forward


def once(names: Sequence[str], layers: Mapping[str, nn.Module]) -> list[str]:
    """Return the names without further names of the same layer."""
    first: dict[Any, str] = {}
    for name in names:
        place = place_of(name.removesuffix("#*"))
        first.setdefault((layers.get(place.layer, name), place.call), name)
    return list(first.values())


def by_text(text: str, layers: Mapping[str, nn.Module]) -> list[str]:
    """Return the names that a text stands for: a name, a suffix, a wildcard or an expression."""
    if text in layers:
        return [text]
    if text.startswith("re:"):
        try:
            pattern = re.compile(text.removeprefix("re:"))
        except re.error as error:
            raise SupervisionError(f"at={text!r} is no regular expression: {error}; expected one of Python's") from None
        return [name for name in layers if pattern.fullmatch(name)]
    base, mark, call = text.rpartition("#")
    if mark and (call == "*" or place_of(text).call):
        return [f"{name}#{call}" for name in by_text(base, layers)]
    if WILD.isdisjoint(text):
        return [name for name in layers if text and name.endswith(f".{text}")]
    whole = [name for name in layers if fits(name.split("."), text.split("."))]
    return whole or [name for name in layers if fits(name.split(".")[-len(text.split(".")) :], text.split("."))]


def fits(parts: Sequence[str], patterns: Sequence[str]) -> bool:
    """Whether each part of a name fits its wildcard.

    >>> fits(["h", "0"], ["h", "*"]), fits(["h", "0", "attn"], ["h", "*"])
    (True, False)
    """
    return len(parts) == len(patterns) and all(map(fnmatch.fnmatchcase, parts, patterns))


def counted(model: nn.Module, number: int, blocks: Callable[[], Sequence[str]] | None) -> str:
    """Return the name of the model's main block of that number."""
    names = [name for name, _ in model.named_children()] if type(model) is nn.Sequential else blocks and blocks()
    if not names:
        raise SupervisionError(
            f"at has the number {number}, and the blocks of {type(model).__name__} are not known; expected a layer's "
            f"name; a number counts the main blocks, which are found on example="
        )
    if not -len(names) <= number < len(names):
        raise SupervisionError(
            f"at has the number {number}; expected {-len(names)} to {len(names) - 1}: {type(model).__name__} has "
            f"{len(names)} main blocks, {names[0]!r} to {names[-1]!r}"
        )
    return names[number]


def is_choice(key: Any) -> bool:
    """Whether an entry of ``at`` is a function that chooses layers."""
    return callable(key) and not isinstance(key, nn.Module)


def shown_key(key: Any) -> str:
    """Return an entry of ``at`` in words; a module would be a page."""
    if isinstance(key, nn.Module):
        return f"(a {type(key).__name__})"
    return getattr(key, "__name__", "") if callable(key) else repr(key)
