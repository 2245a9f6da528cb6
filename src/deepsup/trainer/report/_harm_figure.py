"""The record of ``deepsup bench harm`` in, its figure out: a dot per model and optimizer, below 1 if they help."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from deepsup.trainer.report._style import CYCLE, INK, MARKERS, Drawing, tidy

TICKS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.3)


def draw_harm(record: Mapping[str, Any], folder: Path, name: str = "harm") -> Path:
    """Draw the ratios of a record and write them as PNG and SVG; return the PNG's path."""
    models = list(dict.fromkeys(row["model"] for row in record["rows"]))
    optimizers = list(dict.fromkeys(row["optimizer"] for row in record["rows"]))
    drawing = Drawing(name, alt_text(record["rows"]), (7.0, 1.5 + 0.21 * len(models)))
    with drawing as axes:
        for index, optimizer in enumerate(optimizers):
            for trains in (True, False):
                rows = [row for row in record["rows"] if (row["optimizer"], row["trains"]) == (optimizer, trains)]
                axes.scatter(
                    [row["ratio"] for row in rows], [models.index(row["model"]) for row in rows], s=42,
                    marker=MARKERS[index], facecolors=CYCLE[index] if trains else "none", edgecolors=CYCLE[index],
                    label=optimizer if trains else None, zorder=3,
                )  # fmt: skip
        axes.scatter([], [], s=42, facecolors="none", edgecolors=INK, label="hollow: the plain model does not train")
        finish(axes, models)
        drawing.figure.legend(loc="outside upper left", ncols=2, fontsize=9)
    return drawing.save(folder)


def finish(axes: Axes, models: Sequence[str]) -> None:
    """Label the axes; a ratio of 1 is a line."""
    axes.axvline(1.0, color=INK, linewidth=1.2)
    axes.set_xscale("log")
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.minorticks_off()
    axes.set_yticks(range(len(models)), models)
    axes.invert_yaxis()
    tidy(axes, "test error with companions / without (left of 1: companions help)", "")


def alt_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Say what the figure shows."""
    trained = [row["ratio"] for row in rows if row["trains"]]
    return (
        f"Test error with default companions over test error without, for {len(rows)} pairs of a model and an "
        f"optimizer: of the {len(trained)} in which the plain model trains, {sum(each < 1 for each in trained)} are "
        f"below 1; the smallest ratio is {min(trained, default=1):.2f}, the largest {max(trained, default=1):.2f}."
    )
