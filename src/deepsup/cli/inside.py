"""``deepsup report``: run folders in, one HTML page about what their layers know out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from deepsup.cli.app import show, verb
from deepsup.errors import DeepsupError

_Runs = Annotated[tuple[Path, ...], Positional, arg(metavar="RUN")]


@verb("report")
def report(runs: _Runs, out: Path | None = None, json: bool = False) -> None:
    """Write one self-contained HTML page about runs or comparisons, finished or not.

    Args:
        runs: folders that deepsup train or deepsup compare made; of two runs, also a side-by-side.
        out: the page's file; by itself report.html in the first folder.
        json: print one JSON object.
    """
    page = write_page(runs, out)
    show({"report": str(page), "runs": [str(run) for run in runs]}, f"report: {page}", json)


def write_page(folders: tuple[Path, ...], out: Path | None = None) -> Path:
    """Write the page, or say what to install for it."""
    try:
        from deepsup.figures import write_report
    except ImportError as error:
        raise DeepsupError(f"no report: {error.name} is not installed; pip install 'deepsup[figures]'") from error
    return write_report(folders, out)
