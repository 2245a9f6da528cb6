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
import math
import multiprocessing
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, TextIO

from tyro.conf import DisallowNone, FlagCreatePairsOff, OmitArgPrefixes, arg
from tyro.extras import SubcommandApp

import deepsup
from deepsup.cli import help as help_
from deepsup.cli import mistakes
from deepsup.cli.help import Short
from deepsup.cli.mistakes import Function
from deepsup.errors import DeepsupError, extras_named
from deepsup.io import one_line, printable

_GROUPS = {"data": "List, fetch and verify data sets."}

Flag = Annotated[bool, FlagCreatePairsOff, arg(help_behavior_hint="(default: off)")]
"""An option without a value and without a ``--no-`` twin."""

_standard_output: list[TextIO] = []
_arguments: list[str] = []
_verbs: dict[str, mistakes.Verb] = {}
_app = SubcommandApp()
_groups = {name: SubcommandApp() for name in _GROUPS}
for _name, _help in _GROUPS.items():
    _app.command(_groups[_name], name=_name, help=_help)


def verb(
    name: str, instead: Mapping[str, str] | None = None, short: Short | None = None
) -> Callable[[Function], Function]:
    """Mark a function as a verb, ``"train"``, or as a verb of a group, ``"data get"``.

    instead: for options that the verb does not have but people expect, what to do instead.
    short: what ``--help`` shows where that is not everything; then ``--help-all`` shows everything.
    """
    *group, last = name.split()

    def register(function: Function) -> Function:
        # The parser would take an error of the verb for one of its own, so it only notes what to call.
        @functools.wraps(function)
        def note(*args: Any, **kwargs: Any) -> Callable[[], int | None]:
            return functools.partial(function, *args, **kwargs)

        (_groups[group[0]] if group else _app).command(name=last)(note)
        _verbs[name] = mistakes.Verb(function, instead or {}, short)
        return function

    return register


def show(figures: dict[str, Any], text: str, json: bool) -> None:
    """Print the answer of a verb: one JSON object, or the text for people."""
    if os.environ.get("RANK", "0") != "0":  # under torchrun one process speaks for all
        return
    out = _standard_output[-1] if _standard_output else sys.stdout
    answer = json_format.dumps(_finite(figures), allow_nan=False) if json else printable(text.rstrip())
    out.write(answer + "\n")
    out.flush()


def _finite(value: Any) -> Any:
    """Return figures as JSON can hold them: null for NaN and infinite numbers."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class _Once(logging.Filter):
    """Lets each notice pass once: a command may read the same data several times."""

    def __init__(self) -> None:
        super().__init__()
        self.seen_texts = set[str]()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the notice is new."""
        before, text = len(self.seen_texts), record.getMessage()
        self.seen_texts.add(text)
        return len(self.seen_texts) > before


class _Printable(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


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
        grid.add_row(*map(one_line, row))
    out = io.StringIO()
    Console(file=out, width=1000, markup=False, highlight=False).print(grid)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _parse(words: Sequence[str]) -> Callable[[], int | None]:
    """Return the call that the words ask for; a mistake becomes one line instead of the parser's box."""
    messages = io.StringIO()
    name = mistakes.find(words, _verbs)
    if words[:1] == ["--tyro-print-completion"] and words[1:] not in (["bash"], ["zsh"], ["fish"]):
        raise DeepsupError(f"{words[0]} got {' '.join(words[1:]) or 'no shell'}; expected bash, zsh or fish")
    if not words or words[0] in ("-h", "--help", "--help-all", "help"):
        return lambda: show({}, help_.overview(_verbs), json=False)
    try:
        if name and (short := _verbs[name].short) and not {"-h", "--help"}.isdisjoint(words):
            help_.print_short(name, _verbs[name], short)
        with contextlib.redirect_stderr(messages):
            call: Callable[[], int | None] = _app.cli(
                prog="deepsup",
                description="Deep supervision for any PyTorch model.",
                args=mistakes.for_parser(words, _verbs[name]) if name else list(words),
                config=(DisallowNone, OmitArgPrefixes),
            )
    except SystemExit as end:
        if end.code:
            raise DeepsupError(mistakes.explain(words, _verbs, messages.getvalue())) from None
        return lambda: 0  # the help has been printed
    return call


class Terminated(KeyboardInterrupt):
    """SIGTERM has come: answered as Ctrl-C is, then the process dies of it."""


@contextlib.contextmanager
def resumable(advice: Callable[[], str]) -> Iterator[None]:
    """Have a Ctrl-C or SIGTERM in this block end with words on how to go on."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise type(stop)(advice()) from None


def same_command() -> str:
    """Return the command that is running, quoted for a shell."""
    return shlex.join(["deepsup", *_arguments])


def _stop(number: int, _frame: object) -> None:
    """Answer SIGINT and SIGTERM: processes that train are asked to save and leave, and this one unwinds."""
    for process in multiprocessing.active_children():
        process.terminate()
    raise KeyboardInterrupt if number == signal.SIGINT else Terminated


@contextlib.contextmanager
def _signals_answered() -> Iterator[None]:
    """Answer SIGINT and SIGTERM unless somebody else does, or they are ignored (nohup)."""
    own = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    main_thread = threading.current_thread() is threading.main_thread()
    before = {number: each for number, each in own.items() if main_thread and signal.getsignal(number) is each}
    try:
        for number in before:
            signal.signal(number, _stop)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 1 where doctor finds a fault, 2 for a mistake, 130 after Ctrl-C."""
    _arguments[:] = sys.argv[1:] if arguments is None else arguments
    logger = logging.getLogger("deepsup")
    handler = logging.StreamHandler()
    handler.setFormatter(_Printable())
    handler.addFilter(_Once())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with _signals_answered(), extras_named(f"deepsup {_arguments[0]}" if _arguments else "deepsup"):
            return _run(_arguments)
    except DeepsupError as error:
        sys.stderr.write(f"deepsup: {printable(' '.join(str(error).split()))}\n")
        return 2
    except KeyboardInterrupt as stop:
        sys.stderr.write("; ".join(["deepsup: interrupted", *map(str, stop.args)]) + "\n")
        if isinstance(stop, Terminated):
            signal.raise_signal(signal.SIGTERM)  # what started this process sees what ended it
        return 130
    except BrokenPipeError:
        # whoever read our answer has left (deepsup ... | head); what Python flushes at the end must not fail again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    finally:
        logger.removeHandler(handler)


def _run(words: Sequence[str]) -> int:
    if list(words) == ["--version"]:
        sys.stdout.write(f"deepsup {deepsup.__version__}\n")
        return 0
    call = _parse(words)
    with _answers_only():
        return call() or 0
