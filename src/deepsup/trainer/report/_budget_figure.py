"""The figure of the budget curves: error over epochs, a dot per seed, and the two distances, faster and better."""

from collections.abc import Mapping
from math import exp, log
from statistics import mean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from deepsup.trainer.report._style import INK, WIDTH, Drawing, mark, tidy


def draw_budgets(record: Mapping[str, Any]) -> Drawing | None:
    """Draw one panel per loss; nothing where no method stands beside its twin yet."""
    panels = record["figure"]["panels"]
    if not panels:
        return None
    values = "; ".join(f"{row['row']}: {row['values'][0]:.3g}" for row in record["readings"])
    drawing = Drawing(
        record["target"], f"{record['title']}. {values}.", (WIDTH + 0.6, 0.9 + 3.0 * len(panels)), (len(panels), 1)
    )
    with drawing as axes:
        drawing.figure.suptitle(record["title"].replace("? ", "?\n", 1), fontsize=10, fontweight="bold")
        for panel, place in zip(panels, axes if len(panels) > 1 else [axes], strict=True):
            draw_panel(place, panel)
    return drawing


def draw_panel(axes: Axes, panel: Mapping[str, Any]) -> None:
    """Draw two curves on logarithmic axes, the geometric mean over seeds as a line."""
    means: dict[str, dict[int, float]] = {}
    for method, given in panel["curves"].items():
        curve = {
            int(epochs): [max(each, 0.01) for each in errors] for epochs, errors in given.items()
        }  # JSON has texts
        means[method] = {epochs: exp(mean(map(log, errors))) for epochs, errors in sorted(curve.items())}
        style = mark(method)
        axes.plot(list(means[method]), list(means[method].values()), label=method, **style)
        for epochs, errors in curve.items():
            axes.plot([epochs] * len(errors), errors, linestyle="", marker="_", markersize=7, color=style["color"])
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = sorted({epochs for curve in means.values() for epochs in curve})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(ticks[0] / 1.15, ticks[-1] * 2.8)  # room for words beside the last budget
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    mark_distances(axes, panel, means)
    tidy(axes, "epochs", "test error, %")
    axes.set_title(panel["title"], fontsize=10)
    axes.legend(fontsize=9, title="line: geometric mean; dash: one seed", title_fontsize=8)


def mark_distances(axes: Axes, panel: Mapping[str, Any], means: Mapping[str, Mapping[int, float]]) -> None:
    """Mark the horizontal distance in the middle of the common errors, and the vertical one at the last epochs."""
    cnn, dsn = means.values()
    arrow = {"arrowstyle": "<->", "color": INK, "shrinkA": 0, "shrinkB": 0}
    if "faster" in panel:
        row = panel["faster"]
        level = exp(mean(map(log, row["common"])))
        ends = [epochs_at(level, curve) for curve in (dsn, cnn)]
        axes.annotate("", (ends[0], level), (ends[1], level), arrowprops=arrow)
        axes.annotate(f"faster: {row['values'][0]:.2f} of the epochs{interval(row)}", (max(ends), level), fontsize=8,
                      xytext=(5, 2), textcoords="offset points")  # fmt: skip
    last = max(cnn.keys() & dsn.keys())
    axes.annotate("", (last, dsn[last]), (last, cnn[last]), arrowprops=arrow)
    row = panel["better"]
    middle = (cnn[last] * dsn[last]) ** 0.5
    axes.annotate(f"better:\n{row['values'][0]:.2f} of the\nerror{interval(row)}", (last, middle), fontsize=8,
                  xytext=(7, 0), textcoords="offset points", va="center")  # fmt: skip


def interval(row: Mapping[str, Any]) -> str:
    """Say a 95 % interval on a line of its own."""
    return "" if row.get("interval") is None else "\n(95 % {:.2f} to {:.2f})".format(*row["interval"])


def epochs_at(level: float, curve: Mapping[int, float]) -> float:
    """Return the epochs at which a curve first has a level, in straight lines on logarithmic axes."""
    before: tuple[int, float] | None = None
    for epochs, error in curve.items():
        if error <= level:
            if before is None:
                return float(epochs)
            share = log(before[1] / level) / log(before[1] / error)
            return exp(log(before[0]) + share * log(epochs / before[0]))
        before = epochs, error
    return float(max(curve))
