"""The sections of the page about a sweep: the winners, how they were found, and which settings matter."""

import shlex
from itertools import islice
from pathlib import Path
from typing import Any

from deepsup.trainer.report import _sweep_figures as figures
from deepsup.trainer.report._html import PageTable, Section
from deepsup.trainer.report._labels import NONE, shown
from deepsup.trainer.report._read import SweepRecord
from deepsup.trainer.report._run_page import percent
from deepsup.trainer.report._style import MOST_LINES, number
from deepsup.trainer.statistics import excludes

BEST = 10
"""Trials in the table of the best."""


def sweep_title(sweep: SweepRecord) -> str:
    """Return the question that a sweep answers."""
    return f"Which settings are best on {data_name(sweep)}, and do companions help?"


def data_name(sweep: SweepRecord) -> str:
    """Return the name of the data set, or of the folder."""
    return Path(str(sweep.table["config"].get("data", "?"))).name


def sweep_lead(sweep: SweepRecord) -> str:
    """Return what was searched and the result, in a few sentences."""
    ours, plain = sweep.methods["supervised"], sweep.methods["plain"]
    sentence = (
        f"{ours['trials']} {'trial' if ours['trials'] == 1 else 'trials'} with companions and {plain['trials']} of the "
        f"plain net were judged on "
        f"{sweep.table['validation_images']:,} validation images of {data_name(sweep)}; the first of each has the "
        f"default settings. {gain('The net with companions', ours)}; {gain('the plain net', plain)}."
    )
    return f"{sentence} {outcome(sweep)}"


def gain(what: str, method: dict[str, Any]) -> str:
    """Return what the search gained over the defaults."""
    before, best = method.get("defaults_error"), number(method["validation_error"])
    if before is None:
        return f"{what} diverged at the defaults, and has an error of {best:.2f} % at the best settings"
    if best < before:
        return f"{what} went from an error of {before:.2f} % at the defaults to {best:.2f} %"
    return f"{what} found nothing better than the defaults, {before:.2f} %"


def outcome(sweep: SweepRecord) -> str:
    """Return whether companions help, by the test errors of the winners."""
    paired = sweep.table.get("difference")
    if not paired or paired["mean"] is None:
        return "The winners have not been tested."
    ours, plain = (sweep.methods[method] for method in ("supervised", "plain"))
    sentence = (
        f"On the test set the winners have {ours['mean']:.2f} % with companions and {plain['mean']:.2f} % without"
    )
    if paired["interval"] is None:
        return f"{sentence}; one seed cannot show whether that is more than chance."
    low, high = paired["interval"]
    difference = "a significant difference" if excludes((low, high), 0) else "not a significant difference"
    verdict = sweep.table.get("verdict", difference)  # sweeps of earlier versions have none
    seeds = len(ours["errors"])
    return f"{sentence}: {verdict} (95 % interval of the difference {low:+.2f} to {high:+.2f} points, {seeds} seeds)."


def sweep_sections(sweep: SweepRecord, several: bool) -> list[Section]:
    parts = [winners(sweep), search(sweep), importance(sweep), slices(sweep), best_trials(sweep), next_step(sweep)]
    parts.append(searched(sweep))
    for part in parts:
        if several:
            part.set_apart(sweep.name)
    return parts


def winners(sweep: SweepRecord) -> Section:
    """Return the two winners beside the defaults."""
    section = Section("Result", "Both nets had the same number of trials. The test set was read by the winners only.")
    head = [
        "",
        "trials",
        "validation error of the defaults",
        "of the best trial",
        "test error, all images",
        "each seed",
    ]
    rows = []
    for method, each in sweep.methods.items():
        deviation = "" if each.get("deviation") is None else f" ± {each['deviation']:.2f}"
        tested = NONE if each.get("mean") is None else f"{each['mean']:.2f}{deviation} %"
        seeds = ", ".join(percent(error) for error in each.get("errors", [])) or NONE
        rows.append([figures.LABELS[method], each["trials"], percent(each.get("defaults_error")),
                     percent(each["validation_error"]), tested, seeds])  # fmt: skip
    section.tables.append(PageTable(head, rows))
    names = list(sweep.space)
    chosen = [[figures.LABELS[method], *(value_text(each["settings"].get(name)) for name in names)]
              for method, each in sweep.methods.items()]  # fmt: skip
    section.tables.append(
        PageTable(["settings of the best trial", *(name.replace("_", " ") for name in names)], chosen)
    )
    return section


def search(sweep: SweepRecord) -> Section:
    """Return how the search went, at equal numbers of trials."""
    section = Section("Plain against supervised, at equal budgets")
    section.show(
        figures.draw_search(sweep),
        "Every point is a trial that was trained to its end; the line is the best so far. The worst quarter may be "
        "outside of the figure. The lowest of many errors is lower than the error of those settings on new images: "
        "compare the test errors above.",
    )
    rows = [[figures.LABELS[method], *(each["states"].get(state, 0) for state in STATES), f"{each['seconds']:,.0f} s"]
            for method, each in sweep.methods.items()]  # fmt: skip
    section.tables.append(PageTable(["", *STATES.values(), "training"], rows))
    return section


STATES = {"complete": "trained to the end", "pruned": "ended early", "diverged": "diverged", "failed": "failed"}


def importance(sweep: SweepRecord) -> Section:
    """Return which settings matter."""
    section = Section("Which settings matter")
    for method in sweep.methods:
        section.show(
            figures.draw_importance(sweep, method),
            "Share of the variance of the validation errors that a setting explains, among the trials that were "
            "trained to their end. With few trials it is a rough estimate.",
        )
    if not section.figures:
        section.text = "Too few trials were trained to their end to say."
    return section


def slices(sweep: SweepRecord) -> Section:
    """Return the error over each setting."""
    section = Section("The error over each setting", "Filled: with companions. Hollow: the plain net.")
    for name in islice(sweep.space, MOST_LINES):
        section.show(figures.draw_slice(sweep, name), f"Trials by {name.replace('_', ' ')}.")
    return section


def best_trials(sweep: SweepRecord) -> Section:
    """Return the best trials of both nets."""
    section = Section("The best trials")
    ended = [trial for trial in sweep.table["trials"] if trial["state"] == "complete"]
    ended.sort(key=lambda trial: (number(trial["validation_error"]), trial["number"]))
    names = list(sweep.space)
    rows = [
        [f"{figures.LABELS[trial['method']]}, trial {trial['number']}", percent(trial["validation_error"]),
         *(value_text(trial["settings"].get(name)) for name in names), f"{trial['seconds']:.0f} s"]
        for trial in ended[:BEST]
    ]  # fmt: skip
    head = ["", "validation error", *(name.replace("_", " ") for name in names), "training"]
    section.tables.append(PageTable(head, rows))
    return section


def next_step(sweep: SweepRecord) -> Section:
    """Return what to do with the result."""
    section = Section("What to try next")
    config = sweep.table["best"].get("config")
    if config:
        train = shlex.join(
            ["deepsup", "train", "--config", str(sweep.folder / Path(config).name), "--out", f"{sweep.folder}-best"]
        )
        section.commands.append(("Train the best settings again, on all images:", train))
    more = shlex.join(["deepsup", "sweep", "--out", str(sweep.folder), "--resume", "--trials",
                       str(2 * max(each["trials"] for each in sweep.methods.values()))])  # fmt: skip
    section.commands.append(("Go on searching, twice as many trials:", more))
    return section


def searched(sweep: SweepRecord) -> Section:
    """Return the space and the settings that were not searched."""
    section = Section("Settings", folded=True)
    section.tables.append(
        PageTable(["searched", "values"], [[name, shown(each)] for name, each in sweep.space.items()])
    )
    rest = [[name, shown(value)] for name, value in sweep.table["config"].items() if name not in sweep.space]
    section.tables.append(PageTable(["not searched", "value"], rest))
    return section


def value_text(value: Any) -> str:
    """Return a value in a table."""
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return NONE if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
