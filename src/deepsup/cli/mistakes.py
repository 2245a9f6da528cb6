"""Turn arguments that the parser rejects into one line: what was given, what was expected, what to do."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, get_type_hints

from deepsup.cli.help import Short
from deepsup.errors import nearest
from deepsup.trainer.config import current_name

Function = Callable[..., int | None]
"""The function of a verb; it may return an exit code."""


@dataclasses.dataclass(frozen=True)
class Verb:
    """A function of the command line and, for some options that it lacks, what to use instead."""

    function: Function
    instead: Mapping[str, str] = dataclasses.field(default_factory=dict)
    short: Short | None = None
    """What its help shows without ``--help-all``; None: everything."""

    @property
    def help(self) -> str:
        """The option that shows all others."""
        return "--help" if self.short is None else "--help-all"

    @property
    def options(self) -> dict[str, Any]:
        """Option -> the type of its value; a boolean setting has two options."""
        return dict(_options(get_type_hints(self.function, include_extras=True)))


def _options(hints: Mapping[str, Any]) -> list[tuple[str, Any]]:
    options: list[tuple[str, Any]] = []
    for name, hint in hints.items():
        kind = getattr(hint, "__origin__", hint)
        if dataclasses.is_dataclass(kind):
            options += _options(get_type_hints(kind))
        elif name != "return":
            option = name.replace("_", "-")
            options.append((f"--{option}", hint))
            if hint == bool | None:
                options.append((f"--no-{option}", hint))
    return options


def find(words: Sequence[str], verbs: Mapping[str, Verb]) -> str | None:
    """Return the verb that the words begin with."""
    return next((name for name in (" ".join(words[:2]), " ".join(words[:1])) if name in verbs), None)


def for_parser(words: Sequence[str], verb: Verb) -> list[str]:
    """Return the words as the parser takes them: ``--taps`` is ``--at``, a bare ``--amp`` on, ``--quantize`` static.

    Switches take a word too: ``--test False`` is ``--no-test``.
    """
    options, parsed = verb.options, list[str]()
    words = ["--help" if word == "--help-all" else _renamed(word, options) for word in words]
    switches = {name for name, kind in options.items() if kind == bool | None or name == "--amp"}
    words = [part for word in words for part in (word.split("=", 1) if word.partition("=")[0] in switches else [word])]
    for word, after in zip_longest(words, words[1:], fillvalue="--"):
        last = parsed[-1] if parsed else ""
        if word in ("--amp", "--no-amp") and "--amp" in options and (word != "--amp" or after.startswith("--")):
            parsed += ["--amp", "on" if word == "--amp" else "off"]
        elif word == "--quantize" and word in options and after.startswith("--"):
            parsed += [word, "static"]
        elif word.lower() in ("true", "false") and last == "--amp":
            parsed.append("on" if word.lower() == "true" else "off")
        elif word.lower() in ("true", "false") and last in switches:
            parsed[-1] = last if word.lower() == "true" else f"--no-{last[2:]}"
        else:
            parsed.append(word)
    return parsed


def _renamed(word: str, options: Mapping[str, Any]) -> str:
    """Return an option under the name that its setting has in this version."""
    option, *value = word.split("=", 1)
    new = "--" + current_name(option.removeprefix("--").replace("-", "_")).replace("_", "-")
    known = option.startswith("--") and option not in options and new in options
    return "=".join([new, *value]) if known else word


def explain(words: Sequence[str], verbs: Mapping[str, Verb], box: str) -> str:
    """Return what is wrong with the words; ``box`` is the parser's message."""
    name = find(words, verbs)
    if name is None:
        return _no_verb(words, verbs)
    verb = verbs[name]
    for word in words:
        option = word.partition("=")[0].replace("_", "-")
        if option.startswith("--") and option not in {*verb.options, "--help", "--help-all"}:
            return f"{name} has no option {option}; {_remedy(option, name, verb)}"
    return _one_line(box, name) or f"wrong arguments; run deepsup {name} --help"


def _no_verb(words: Sequence[str], verbs: Mapping[str, Verb]) -> str:
    """Return that the words name no verb; the verbs of the group ``data`` take a second word."""
    first, second = (*words, "", "")[:2]
    members = [name.split()[1] for name in verbs if name.startswith(f"{first} ")]
    known = members or list(dict.fromkeys(name.split()[0] for name in verbs))
    word, place = (second, first) if members else (first, "deepsup")
    if not word or word.startswith("-"):
        return f"{place} got {word or 'no verb'}; expected a verb first: {', '.join(known)}"
    return f"{place} has no verb {word!r}; {nearest(word, known, most=len(known))}"


def _remedy(option: str, name: str, verb: Verb) -> str:
    bare = option.removeprefix("--")
    if bare in verb.instead:
        return verb.instead[bare]
    close = difflib.get_close_matches(bare, [each.removeprefix("--") for each in verb.options], n=2)
    if close:
        return "did you mean " + " or ".join(f"--{each}" for each in close) + "?"
    return f"run deepsup {name} {verb.help} for its options"


def _one_line(box: str, name: str) -> str:
    """Return the text of the parser's box in our words; rules between paragraphs become semicolons."""
    lines = [line.strip("│ \t") for line in box.splitlines() if not line.startswith(("╭", "╰"))]
    paragraphs = re.split(r"[─-]{10,}", " ".join(lines))
    if not box.startswith("╭"):
        del paragraphs[:1]  # a terminal without these characters: the title is above the first rule
    text = "; ".join(" ".join(each.split()).rstrip(".") for each in paragraphs)
    for theirs, ours in _WORDS.items():
        text = re.sub(theirs, ours.format(name=name), text)
    return text


_WORDS = {
    r"(\. Got errors:|; Argument helptext:).*(; For full)": r"\2",
    r"; For full helptext, (run|see):? .*": "; run deepsup {name} --help",
    r"Error parsing (\S+): no type matching \W*(\w+).* instantiated from \[(.*?)\]": r"\1 got \3; expected \2",
    r"expected FLOAT\b": "expected a number",
    r"expected INT\b": "expected a whole number",
    r"Missing value for argument '(\S+)'[^;]*": r"\1 got no value; expected one",
    r"Missing from deepsup [a-z ]+: (.*?) \(required\)": r"{name} got too few arguments; expected \1",
    r"Unrecognized options: ([^;]*)": r"{name} does not take \1",
}
"""Messages of the parser -> our words; all others stay unchanged."""
