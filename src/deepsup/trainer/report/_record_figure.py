"""The record of a reproduced target in, its figure out: lines, bars beside the paper's, or feature maps."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator

from deepsup.trainer.report._budget_figure import draw_budgets
from deepsup.trainer.report._insight_figures import draw_maps
from deepsup.trainer.report._read import read_run
from deepsup.trainer.report._style import CYCLE, WIDTH, Drawing, look, mark, number, tidy
from deepsup.trainer.report._theory_figure import draw_theory

HATCHES = ("", "//")
LABEL = 34
"""Letters per line of a bar's label."""
METHODS = ("CNN-Softmax", "DSN-Softmax", "CNN-SVM", "DSN-SVM")


def draw_record(record: Mapping[str, Any], folder: Path) -> Path | None:
    """Draw what a record says and write it as PNG and SVG; return the PNG's path, nothing where nothing was found."""
    if record["target"] == "theory":
        return draw_theory(dict(record), folder)
    drawing: Drawing | None
    match record["figure"]["kind"]:
        case "maps":
            drawing = draw_feature_maps(record, folder.parents[1])  # runs lie beside the folder of the records
        case "budgets":
            drawing = draw_budgets(record)
        case "lines":
            drawing = draw_panels(record, [record["figure"]])
        case "panels":
            drawing = draw_panels(record, record["figure"]["panels"])
        case _:
            drawing = draw_bars(record)
    return None if drawing is None else drawing.save(folder)


def draw_panels(record: Mapping[str, Any], panels: Sequence[Mapping[str, Any]]) -> Drawing:
    """Draw lines, one panel below the other, with one legend; a panel whose rows are not run yet is left out."""
    panels = [panel for panel in panels if panel["lines"]]
    drawing = Drawing(record["target"], alt_text(record), (WIDTH, 0.8 + 2.6 * len(panels)), (len(panels), 1))
    ranges = {
        row["mean"]: [row.get("guessing") if value is None else value for value in row["values"]]  # like the mean
        for row in record["rows"]
        if row.get("deviation")
    }
    names = list(dict.fromkeys(name for panel in panels for name in panel["lines"]))
    with drawing as axes:
        labels: dict[str, Any] = {}
        for panel, place in zip(panels, axes if len(panels) > 1 else [axes], strict=True):
            draw_lines(place, panel, names, ranges)
            labels |= dict(zip(*reversed(place.get_legend_handles_labels()), strict=True))
        drawing.figure.legend(labels.values(), labels.keys(), loc="outside upper center", fontsize=9,
                              ncols=2 if max(map(len, labels)) < 25 else 1, title_fontsize=9,
                              title="mean; from the lowest to the highest seed" if ranges else None)  # fmt: skip
    return drawing


def draw_lines(
    axes: Axes, panel: Mapping[str, Any], names: Sequence[str], ranges: Mapping[float, Sequence[float | None]]
) -> None:
    """Draw one line per method, with whiskers from the lowest to the highest seed.

    names: of the lines of all panels, so that a line looks the same in each.
    ranges: mean -> the values of its seeds; a mean and its deviation would leave the range of skewed values.
    """
    for name, line in panel["lines"].items():
        like, index = line.get("look", name), names.index(name)
        whiskers = [whisker(y, ranges.get(y, ())) for y in line["y"]]
        # a line of one point, of the same method as a longer one: a large mark, told by the panel's title
        point = len(line["x"]) == 1 and any(other.get("look") == like and len(other["x"]) > 1
                                            for other in panel["lines"].values())  # fmt: skip
        style = mark(like) if like in METHODS else look(index)
        order = sorted(range(len(line["x"])), key=lambda place: line["x"][place])
        axes.errorbar(
            [line["x"][i] * (1.1 if point else 1) for i in order], [number(line["y"][i]) for i in order],
            yerr=[[whiskers[i][end] for i in order] for end in (0, 1)], capsize=3, label=None if point else name,
            **style | ({"markersize": 9, "linestyle": ""} if point else {}),
        )  # fmt: skip
    if panel.get("log"):
        ticks = sorted({x for line in panel["lines"].values() for x in line["x"]})
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.minorticks_off()
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    values = [number(y) for line in panel["lines"].values() for y in line["y"] if y is not None]
    if values and max(values) > 6 * min(values) > 0:  # a grid of rates ends where nothing is learned
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_locator(NullLocator())
    tidy(axes, panel["x"], panel["y"])
    if panel.get("title"):
        axes.set_title(panel["title"], fontsize=10)


def whisker(y: float | None, values: Sequence[float | None]) -> tuple[float, float]:
    """Return how far the lowest and the highest value lie from a mean; no numbers where one is not known.

    >>> whisker(3.0, [1.0, 2.0, 6.0]), whisker(3.0, [])
    ((2.0, 3.0), (nan, nan))
    """
    known = [value for value in values if value is not None]
    if y is None or not known:
        return (math.nan, math.nan)
    return (max(0.0, y - min(known)), max(0.0, max(known) - y))  # a mean of equal values may be off by rounding


def draw_bars(record: Mapping[str, Any]) -> Drawing | None:
    """Draw the bars of every row beside each other: the paper's and ours with its deviation, or training and test."""
    figure = record["figure"]
    bars = {name: each for name, each in figure["bars"].items() if any(v is not None for v in each.values())}
    if not bars:
        return None
    kinds = [kind for kind in next(iter(bars.values())) if any(each.get(kind) is not None for each in bars.values())]
    labels = [broken(name) for name in bars]  # a long one must leave room for the bars
    height = max(0.2 * len(kinds), *(0.08 + 0.16 * (1 + label.count("\n")) for label in labels))
    drawing = Drawing(record["target"], alt_text(record), (WIDTH + 0.6, 1.2 + height * len(bars)))
    thick = 0.8 / len(kinds)
    deviations = {row["row"]: row["deviation"] for row in record["rows"] if row.get("deviation")}
    with drawing as axes:
        for index, kind in enumerate(kinds):
            places = [place + (index - (len(kinds) - 1) / 2) * thick for place in range(len(bars))]
            values = [number(each.get(kind)) for each in bars.values()]
            whiskers = [deviations.get(name, 0.0) for name in bars] if deviations and kind == "ours" else None
            shown = axes.barh(
                places, values, thick * 0.92, label=kind, color=CYCLE[index], hatch=HATCHES[index % 2],
                edgecolor="white", xerr=whiskers, error_kw={"linewidth": 2},  # a cap would mark one seed as 0
            )  # fmt: skip
            axes.bar_label(shown, [f" {value:.3g}" if value == value else "" for value in values], fontsize=8)
        axes.set_yticks(range(len(bars)), labels, fontsize=9)
        drawn = [value for each in bars.values() for value in each.values() if value]
        if drawn and max(drawn) > 1000 * min(drawn) > 0:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")  # its own one writes formulas
            axes.xaxis.set_minor_formatter(NullFormatter())
        axes.invert_yaxis()
        if "level" in figure:
            axes.axvline(figure["level"], color="#888888", linewidth=1)
        tidy(axes, figure["y"], "")
        axes.grid(visible=False)
        axes.margins(x=0.12)
        if len(kinds) > 1:
            drawing.figure.legend(loc="outside upper center", ncols=len(kinds), fontsize=9)
    return drawing


def broken(label: str) -> str:
    """Break a long label into lines: behind commas, and inside of what would not fit into a line."""
    parts = [part if len(part) >= LABEL else part.replace(" ", "\N{NO-BREAK SPACE}") for part in label.split(", ")]
    return fill(", ".join(parts), LABEL, break_long_words=False, break_on_hyphens=False)


def draw_feature_maps(record: Mapping[str, Any], runs: Path) -> Drawing | None:
    """Draw Fig. 3: one image of each class through the first convolution of the two nets."""
    folders = [runs / folder for folder in record["figure"]["runs"]]
    drawing = draw_maps([read_run(folder) for folder in folders if folder.is_dir()])
    if drawing is not None:
        drawing.name = record["target"]
    return drawing


def alt_text(record: Mapping[str, Any]) -> str:
    """Say what the figure shows."""
    means = ", ".join(f"{row['row']} {number(row['mean']):.3g}" for row in record["rows"])
    return f"{record['title']}. {means}."
