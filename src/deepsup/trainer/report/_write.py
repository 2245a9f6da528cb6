"""Write one HTML page about runs, comparisons and sweeps."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from deepsup.errors import RunError
from deepsup.io import Budget, faults_named
from deepsup.trainer.report._comparison_page import comparison_lead, comparison_sections, comparison_title
from deepsup.trainer.report._html import Section, write_page
from deepsup.trainer.report._labels import labelled, unique_names
from deepsup.trainer.report._method_figures import draw_sizes
from deepsup.trainer.report._read import Comparison, RunRecord, SweepRecord, read_comparison, read_run, read_sweep
from deepsup.trainer.report._run_page import run_lead, run_sections, run_title, several_lead, side_by_side
from deepsup.trainer.report._sweep_page import sweep_lead, sweep_sections, sweep_title


def write_report(folders: Sequence[str | os.PathLike[str]], out: Path | None = None) -> Path:
    """Write one self-contained page about runs, comparisons and sweeps; return its path.

    out: the file (default: ``report.html`` in the first folder).
    Its figures are written to ``plots/`` next to it, as PNG and SVG.
    """
    paths = list({Path(folder).resolve(): Path(folder) for folder in folders}.values())
    if not paths:
        raise RunError("no run given; expected at least one folder of deepsup train, compare or sweep")
    out = out or paths[0] / "report.html"
    # records of the right types can still contradict each other, which shows only when they are drawn
    with faults_named(" and ".join(map(str, paths)), RunError, "expected records that deepsup wrote; inspect it again"):
        write(paths, out)
    return out


def write(paths: Sequence[Path], out: Path) -> None:
    """Read the folders and write the page about them."""
    budget = Budget()  # of all records on the page
    compared = [path for path in paths if (path / "comparison.json").is_file()]
    swept = [path for path in paths if (path / "sweep.json").is_file()]
    named = zip(compared, unique_names(compared), strict=True)
    comparisons = [replace(read_comparison(path, budget), name=name) for path, name in named]
    sweeps = [
        replace(read_sweep(path, budget), name=name) for path, name in zip(swept, unique_names(swept), strict=True)
    ]
    runs = labelled([read_run(path, budget) for path in paths if path not in (*compared, *swept)])
    leads = [sweep_lead(one) for one in sweeps] + lead_of(comparisons, runs)
    sections = chain(
        (each for one in sweeps for each in sweep_sections(one, several=len(paths) > 1)),
        all_sections(comparisons, runs),
    )
    write_page(title_of(sweeps, comparisons, runs), leads, sections, out)


def all_sections(comparisons: Sequence[Comparison], runs: Sequence[RunRecord]) -> Iterator[Section]:
    """Yield the sections of the page, most important first."""
    if len(comparisons) > 1:
        sizes = Section("Error against the size of the training set")
        sizes.show(draw_sizes(comparisons), "Mean and standard deviation over seeds, as in the paper's Fig. 2b.")
        yield sizes
    for comparison in comparisons:
        yield from comparison_sections(comparison, several=len(comparisons) > 1)
    if len(runs) > 1:
        yield from side_by_side(runs)
    for run in runs:
        yield from run_sections(run, several=len(runs) + len(comparisons) > 1)


def title_of(sweeps: Sequence[SweepRecord], comparisons: Sequence[Comparison], runs: Sequence[RunRecord]) -> str:
    if len(sweeps) + len(comparisons) + len(runs) == 1:
        titles = [*map(sweep_title, sweeps), *map(comparison_title, comparisons), *map(run_title, runs)]
        return titles[0]
    names = [each.name for group in (sweeps, comparisons, runs) for each in group]
    return f"Side by side: {', '.join(names[:4])}" + (" and more" if len(names) > 4 else "")


def lead_of(comparisons: Sequence[Comparison], runs: Sequence[RunRecord]) -> list[str]:
    """Return the introduction: what was done, and the result."""
    if len(comparisons) > 1:
        leads = [f"{comparison.name}: {' '.join(comparison_lead(comparison))}" for comparison in comparisons]
    else:
        leads = [paragraph for comparison in comparisons for paragraph in comparison_lead(comparison)]
    return leads + ([several_lead(runs)] if len(runs) > 1 else [run_lead(run) for run in runs])
