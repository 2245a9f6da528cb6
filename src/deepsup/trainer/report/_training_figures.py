"""Figures of a training: errors, losses, active companions, gradients."""

import math
from collections.abc import Sequence
from itertools import islice

import numpy as np
from matplotlib.ticker import MaxNLocator, NullFormatter

from deepsup.trainer.report._read import RunRecord
from deepsup.trainer.report._style import (
    INK,
    MOST_LINES,
    WIDTH,
    Drawing,
    drawable,
    look,
    series,
    series_by_layer,
    thinned,
    tidy,
)

LEGEND = 8
"""Lines of a figure that has one per layer."""


def draw_layer_errors(run: RunRecord) -> Drawing | None:
    """Draw the errors of the companions and of the output over the epochs: training, validation, test."""
    lines = series_by_layer(run.metrics, "companion_errors") | {"output": series(run.metrics, "error")}
    measured = {"output, validation": "validation_error", "output, test": "test_error"}
    if run.dense:  # wrong pixels, which cannot stand beside 100 % minus the mean IoU
        measured = {}
    what = "wrong pixels" if run.dense else "error"
    lines |= {name: series(run.metrics, key) for name, key in measured.items()}
    alt = f"{what.capitalize()} of every layer of {run.name} over the epochs; at the end {ends(lines, ' %')}."
    return draw_lines(run, "layer-errors", alt, lines, f"{what} in training, %")


def draw_dense_errors(run: RunRecord) -> Drawing | None:
    """Draw 100 % minus the mean IoU of a dense run over the epochs, on validation and test images."""
    measured = {"output, validation": "validation_error", "output, test": "test_error"}
    lines = {name: series(run.metrics, key) for name, key in measured.items()} if run.dense else {}
    alt = f"100 % minus the mean IoU of {run.name} over the epochs; at the end {ends(lines, ' %')}."
    return draw_lines(run, "mean-iou", alt, lines, "100 % minus mean IoU")


def draw_losses(run: RunRecord) -> Drawing | None:
    """Draw the objective, the loss of the output and of every companion over the epochs."""
    lines = {"objective": series(run.metrics, "loss"), "output": series(run.metrics, "output_loss")}
    lines |= series_by_layer(run.metrics, "companion_losses")
    alt = f"Losses of {run.name} over the epochs; at the end {ends(lines)}."
    return draw_lines(run, "losses", alt, lines, "loss")


def draw_gradients(run: RunRecord) -> Drawing | None:
    """Draw the variance of the layers' gradients over the epochs; of a deep net, of some of them."""
    lines = some(series_by_layer(run.metrics, "gradient_variances"))
    alt = f"Variance of the gradient of layers of {run.name} over the epochs; at the end {ends(lines)}."
    return draw_lines(run, "gradients", alt, lines, "variance of the gradient", log=True)


def some(lines: dict[str, list[float]]) -> dict[str, list[float]]:
    """Return at most as many lines as a legend has room for, from the first layer to the last at equal distances.

    >>> list(some({str(layer): [] for layer in range(22)}))
    ['0', '3', '6', '9', '12', '15', '18', '21']
    """
    names = list(lines)
    steps = min(len(names), LEGEND) - 1
    return {
        name: lines[name] for name in (names[round(i * (len(names) - 1) / max(1, steps))] for i in range(steps + 1))
    }


def draw_shares(run: RunRecord) -> Drawing | None:
    """Draw the companions' share of the gradient at every tapped layer over the epochs."""
    shares = series_by_layer(run.metrics, "companion_shares")
    lines = {tap: [100 * value for value in values] for tap, values in shares.items()}
    alt = f"Share of the gradient that companions of {run.name} gave over the epochs, in percent; {ends(lines)}."
    return draw_lines(run, "companion-shares", alt, lines, "gradient from companions, %")


def draw_activity(run: RunRecord) -> Drawing | None:
    """Draw the fraction of steps in which each companion was above gamma, unless all always were.

    Dark is never, bright is always.
    """
    lines = series_by_layer(run.metrics, "active")
    shown = [value for values in lines.values() if drawable(values) for value in values]
    if all(value == 1 for value in shown):
        return None
    alt = f"Fraction of steps at which each companion of {run.name} was active; at the end {ends(lines)}."
    drawing = Drawing("activity", alt, size=(WIDTH, 1.3 + 0.34 * len(lines)))
    with drawing as axes:
        extent = (0.5, len(run.metrics) + 0.5, len(lines) - 0.5, -0.5)
        shades = axes.imshow(
            np.array(list(lines.values())), vmin=0, vmax=1, cmap="cividis", aspect="auto", interpolation="nearest",
            extent=extent,
        )  # fmt: skip
        drawing.name_ticks(axes.yaxis, range(len(lines)), list(lines))
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        drawing.figure.colorbar(shades, ax=axes, label="active", ticks=[0, 0.5, 1])
    return drawing


def draw_lines(
    run: RunRecord, name: str, alt: str, lines: dict[str, list[float]], ylabel: str, log: bool = False
) -> Drawing | None:
    """Draw one line per name with numbers; return None if there is none."""
    lines = dict(islice(((each, values) for each, values in lines.items() if drawable(values)), MOST_LINES))
    if not lines:
        return None
    drawing = Drawing(name, alt)
    with drawing as axes:
        for index, (each, values) in enumerate(lines.items()):
            epochs, points = thinned(values)
            style = look(index, run.supervised) | {"markevery": max(1, len(points) // 12)}
            axes.plot(epochs, points, label=each, **style)
        positive = any(value > 0 for values in lines.values() for value in values)
        if log and positive:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")  # the default formatter writes formulas
            axes.yaxis.set_minor_formatter(NullFormatter())
        elif not log:
            axes.set_ylim(bottom=0)
        tidy(axes, "epoch", ylabel)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        columns = 3 if max(map(len, lines)) <= 16 else 2  # layer4.0.downsample.0 is as wide as half of the figure
        drawing.figure.legend(loc="outside upper center", fontsize=9, ncols=min(columns, len(lines)))
    return drawing


def draw_gradient_ratio(ours: Sequence[RunRecord], theirs: Sequence[RunRecord]) -> Drawing | None:
    """Draw the ratio of gradient variances of two groups of runs per layer, means over epochs."""
    ratios = gradient_ratios(ours, theirs)
    if not ratios:
        return None
    values = ", ".join(f"{layer} {ratio:.2f}" for layer, ratio in ratios.items())
    names = f"{ours[0].label} over {theirs[0].label}"
    drawing = Drawing(
        "gradient-ratio", f"Gradient variance, {names}, by layer: {values}.", size=(WIDTH, 1 + 0.3 * len(ratios))
    )
    with drawing as axes:
        places = range(len(ratios))
        axes.barh(places, list(ratios.values()), color="#009E73", height=0.6)
        axes.axvline(1, color=INK, linewidth=1, linestyle="--")
        for place, ratio in enumerate(ratios.values()):
            axes.annotate(f"{ratio:.2f}", (ratio, place), (4, -4), textcoords="offset points")
        drawing.name_ticks(axes.yaxis, places, list(ratios))
        axes.invert_yaxis()
        axes.margins(x=0.12)
        tidy(axes, f"gradient variance, {names}", "")
        axes.grid(visible=False)
    return drawing


def gradient_ratios(ours: Sequence[RunRecord], theirs: Sequence[RunRecord]) -> dict[str, float]:
    """Return layer -> ratio of the mean gradient variances of ``ours`` and ``theirs``, for common layers."""
    top, bottom = mean_variances(ours), mean_variances(theirs)
    return {layer: top[layer] / bottom[layer] for layer in top if bottom.get(layer, 0) > 0}


def mean_variances(runs: Sequence[RunRecord]) -> dict[str, float]:
    """Return layer -> mean over all epochs and runs of the variance of its gradient."""
    variances: dict[str, list[float]] = {}
    for run in runs:
        for layer, values in series_by_layer(run.metrics, "gradient_variances").items():
            variances.setdefault(layer, []).extend(value for value in values if math.isfinite(value))
    return {layer: sum(values) / len(values) for layer, values in variances.items() if values}


def ends(lines: dict[str, list[float]], unit: str = "") -> str:
    """Return the last number of each line as text.

    >>> ends({"conv1": [9.0, 3.5]}, " %")
    'conv1 3.5 %'
    """
    parts = [f"{name} {values[-1]:.3g}{unit}" for name, values in lines.items() if values and math.isfinite(values[-1])]
    return ", ".join(parts) or "nothing recorded"
