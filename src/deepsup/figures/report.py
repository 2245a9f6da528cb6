"""Folders of runs and comparisons in, one HTML page about them out."""

import os
from collections.abc import Sequence
from pathlib import Path

from deepsup.errors import RunError
from deepsup.figures.contest_page import contest_sections
from deepsup.figures.methods import draw_sizes
from deepsup.figures.page import Section, render, save_drawings
from deepsup.figures.read import Contest, Story, read_contest, read_run
from deepsup.figures.run_page import run_sections, side_by_side
from deepsup.record import write_whole


def write_report(folders: Sequence[str | os.PathLike[str]], out: Path | None = None) -> Path:
    """Write one self-contained page about runs and comparisons; return its path.

    out: the file; by itself ``report.html`` in the first folder.
    Its figures are left beside it, in ``plots/``, as PNG and SVG.
    """
    paths = [Path(folder) for folder in folders]
    if not paths:
        raise RunError("no run given; expected at least one folder of deepsup train or deepsup compare")
    contests = [read_contest(path) for path in paths if (path / "comparison.json").is_file()]
    stories = [read_run(path) for path in paths if not (path / "comparison.json").is_file()]
    sections = all_sections(contests, stories)
    page = render(title_of(contests, stories), "What every hidden layer knows. Written by deepsup.", sections)
    out = out or paths[0] / "report.html"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        save_drawings(sections, out.parent / "plots")
    except OSError as error:
        raise RunError(f"cannot write {out.parent}: {error.strerror}; give another file, --out FILE") from error
    write_whole(out, page.encode())
    return out


def all_sections(contests: Sequence[Contest], stories: Sequence[Story]) -> list[Section]:
    """Return what the page shows, most wanted first."""
    sections: list[Section] = []
    if len(contests) > 1:
        sizes = Section("Error against the size of the training set")
        sizes.show(draw_sizes(contests), "Mean and deviation over seeds; the paper's Fig. 2b.")
        sections.append(sizes)
    for contest in contests:
        sections += contest_sections(contest, several=len(contests) > 1)
    if len(stories) > 1:
        sections += side_by_side(stories)
    for story in stories:
        sections += run_sections(story, several=len(stories) > 1)
    return sections


def title_of(contests: Sequence[Contest], stories: Sequence[Story]) -> str:
    """Return the page's title: the names of what it is about."""
    names = [contest.name for contest in contests] + [story.name for story in stories]
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
