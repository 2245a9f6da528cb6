"""``deepsup demo``: one or two runs in, a page on which one draws and sees what each layer answers, out."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from deepsup.cli.app import Flag, show, verb
from deepsup.cli.trusted import opened
from deepsup.errors import RunError

_Runs = Annotated[tuple[Path, ...], Positional, arg(metavar="RUN [RUN2]")]
_File = Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: RUN/demo.html)")]


@verb("demo")
def demo(runs: _Runs, out: _File = None, trust: Flag = False, json: Flag = False) -> None:
    """Write a page on which you draw or drop an image and see what each layer of a net answers; it needs no server.

    Args:
        runs: folder of a finished run, and of a second one to show beside it, such as the same net without companions
        out: file to write
        trust: import the network that a run names (package.module:factory); only for runs of people you trust
        json: print one JSON object
    """
    from deepsup.trainer.demo import write_demo

    if len(runs) not in (1, 2):
        raise RunError(f"{len(runs)} runs given; expected one or two: deepsup demo RUN RUN2")
    first, *others = (opened(run, trust) for run in runs)
    path = write_demo(first, others[0] if others else None, out)
    size = path.stat().st_size
    show({"page": str(path), "bytes": size}, f"{path}: {size / 1e6:.2f} MB; open it in a browser", json)
    if not json and sys.stderr.isatty() and has_display():  # standard output is redirected while a verb runs
        webbrowser.open(path.resolve().as_uri())


def has_display() -> bool:
    """Whether a browser could show something here."""
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
