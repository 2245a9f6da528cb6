"""``deepsup --help``: the verbs in groups; the help of a verb that has many settings: those that people change."""

from __future__ import annotations

import dataclasses
import inspect
import shutil
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_type_hints

import tyro
from tyro.conf import DisallowNone, OmitArgPrefixes

if TYPE_CHECKING:
    from deepsup.cli.mistakes import Verb

GROUPS = {
    "use": ("train", "compare", "predict", "evaluate", "inspect", "demo", "report", "export"),
    "more": ("sweep", "exits", "data list", "data get", "data check", "networks", "doctor"),
    "paper": ("reproduce", "bench"),
}
"""The verbs, in the order of ``deepsup --help``."""


@dataclasses.dataclass(frozen=True)
class Short:
    """The short help of a verb: options of its own and settings, in this order, and commands to copy."""

    options: tuple[str, ...]
    examples: tuple[str, ...]


def overview(verbs: Mapping[str, Verb]) -> str:
    """Return the help of ``deepsup``: a line per verb, in groups."""
    lines = ["usage: deepsup VERB [OPTIONS]", "", "Deep supervision for any PyTorch model."]
    for group, names in GROUPS.items():
        lines += ["", f"{group}:"]
        for name in names:
            lines += _wrapped(f"  {name:<12}", (inspect.getdoc(verbs[name].function) or "").partition("\n\n")[0])
    lines += ["", "deepsup VERB --help lists the options of a verb; deepsup --version prints the version."]
    return "\n".join([*lines, "A first step: deepsup compare --data photos/ --image-size 64"])


def _wrapped(label: str, text: str) -> list[str]:
    width = min(shutil.get_terminal_size().columns, 110)
    return textwrap.wrap(" ".join(text.split()), width, initial_indent=label, subsequent_indent=" " * len(label))


def print_short(name: str, verb: Verb, short: Short) -> None:
    """Print what people change, with examples; the parser formats it."""
    first = (inspect.getdoc(verb.function) or "").partition("\nArgs:")[0].strip()
    examples = "\n".join(f"  {example}" for example in short.examples)
    text = f"{first}\n\nExamples:\n{examples}\n\nAll options: deepsup {name} --help-all"
    tyro.cli(
        _with_options(verb, short.options), prog=f"deepsup {name}", description=text, args=["--help"],
        config=(DisallowNone, OmitArgPrefixes),
    )  # fmt: skip


def _with_options(verb: Verb, names: tuple[str, ...]) -> Any:
    """Return a function that has only these of a verb's options."""
    known = _parameters(verb.function)

    def few(**_: Any) -> None: ...

    few.__doc__ = verb.function.__doc__
    few.__signature__ = inspect.Signature([known[name] for name in names])  # type: ignore[attr-defined]
    few.__annotations__ = {name: known[name].annotation for name in names}
    return few


def _parameters(function: Any) -> dict[str, inspect.Parameter]:
    """Return the options of a function or a class by name, those of its groups beside its own."""
    hints = get_type_hints(function, include_extras=True)
    parameters: dict[str, inspect.Parameter] = {}
    for name, each in inspect.signature(function).parameters.items():
        kind = getattr(hints[name], "__origin__", hints[name])
        if dataclasses.is_dataclass(kind):
            parameters |= _parameters(kind)
        else:
            parameters[name] = each.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
    return parameters
