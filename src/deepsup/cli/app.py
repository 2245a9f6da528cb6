"""Arguments in, one answer on standard output and an exit code out: the command ``deepsup``.

To add a verb, write one function and mark it ``@verb("name")`` or ``@verb("group name")``: its arguments become flags,
its docstring the help. It imports what it needs itself, so that ``deepsup --help`` never waits for torch. It ends with
``show(figures, text, json)``.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json as json_format
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

from tyro.conf import FlagCreatePairsOff
from tyro.extras import SubcommandApp

from deepsup.errors import DeepsupError

_GROUPS = {"data": "What data sets are known; fetch one; verify one."}

_standard_output: list[TextIO] = []
_app = SubcommandApp()
_groups = {name: SubcommandApp() for name in _GROUPS}
for _name, _help in _GROUPS.items():
    _app.command(_groups[_name], name=_name, help=_help)


def verb(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Mark a function as a verb, ``"train"``, or as a verb of a group, ``"data get"``."""
    *group, last = name.split()

    def register(function: Callable[..., None]) -> Callable[..., None]:
        # The parser would take an error of the verb for one of its own, so it only notes what to call.
        @functools.wraps(function)
        def note(*args: Any, **kwargs: Any) -> Callable[[], None]:
            return functools.partial(function, *args, **kwargs)

        (_groups[group[0]] if group else _app).command(name=last)(note)
        return function

    return register


def show(figures: dict[str, Any], text: str, json: bool) -> None:
    """Print the answer of a verb: one JSON object, or the text for people."""
    if os.environ.get("RANK", "0") != "0":  # under torchrun one process speaks for all
        return
    out = _standard_output[-1] if _standard_output else sys.stdout
    out.write((json_format.dumps(figures) if json else text.rstrip()) + "\n")
    out.flush()


@contextlib.contextmanager
def _answers_only() -> Iterator[None]:
    """Leave standard output to answers: whatever else is printed, by a user's own network too, goes to errors."""
    _standard_output.append(sys.stdout)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        _standard_output.pop()


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return rows as aligned columns."""
    from rich.console import Console
    from rich.table import Table

    grid = Table(*header, box=None, pad_edge=False, header_style="")
    for row in rows:
        grid.add_row(*(str(cell) for cell in row))
    out = io.StringIO()
    Console(file=out, width=1000, markup=False, highlight=False).print(grid)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _parse(arguments: Sequence[str]) -> Callable[[], None]:
    """Return the call that the arguments ask for; a wrong one becomes one line instead of the parser's box."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            call: Callable[[], None] = _app.cli(
                prog="deepsup",
                description="Deep supervision for any PyTorch model.",
                args=list(arguments),
                config=(FlagCreatePairsOff,),
            )
    except SystemExit as end:
        if end.code:
            raise DeepsupError(_one_line(said.getvalue())) from None
        raise
    return call


def _one_line(box: str) -> str:
    """Return the text inside a box of lines, without its asides; rules between paragraphs become semicolons."""
    inside = [line.strip("│ \t") for line in box.splitlines() if not line.startswith(("╭", "╰"))]
    text = " ".join("; " if line and set(line) <= {"─"} else line for line in inside)
    text = re.sub(r"\s+", " ", text).replace(" ;", ";").replace(".;", ";").strip()
    text = re.sub(r"(\. Got errors:|; Argument helptext:).*(; For full)", r"\2", text)
    return text or "wrong arguments; run deepsup --help"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 2 for what a user can mend, 130 after Ctrl-C."""
    logger = logging.getLogger("deepsup")
    handler = logging.StreamHandler()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        call = _parse(sys.argv[1:] if arguments is None else arguments)
        with _answers_only():
            call()
    except DeepsupError as error:
        sys.stderr.write(f"deepsup: {' '.join(str(error).split())}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("deepsup: interrupted\n")
        return 130
    except BrokenPipeError:
        # whoever read our answer has left (deepsup ... | head); what Python flushes at the end must not fail again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        logger.removeHandler(handler)
    return 0
