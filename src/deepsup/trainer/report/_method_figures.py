"""Figures of the methods of a comparison: each seed's errors, and the paper's Fig. 2."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from deepsup.trainer.report._read import Comparison
from deepsup.trainer.report._style import INK, MOST_POINTS, PAPER, WIDTH, Drawing, drawable, mark, number, series, tidy

LEAST = 0.01  # percent: what a logarithmic axis shows for an error of 0
KINDS = {"test_error": "test error", "validation_error": "validation error", "error": "error in training"}


def draw_methods(comparison: Mapping[str, Any], folder: Path) -> Path:
    """Draw the methods of ``comparison`` into ``folder/methods.png`` and ``.svg``; return the PNG's path."""
    return methods_figure(comparison).save(folder)


def methods_figure(comparison: Mapping[str, Any]) -> Drawing:
    """Draw the test error of every method on a logarithmic axis: a line for each seed, and the mean."""
    methods = comparison["methods"]
    means = ", ".join(f"{method} {error_text(each)}" for method, each in methods.items())
    drawing = Drawing("methods", f"Test error of the methods, percent, each seed and the mean: {means}.", (WIDTH, 3.4))
    with drawing as axes:
        for errors in zip(*(each["errors"] for each in methods.values()), strict=False):
            values = [max(number(error), LEAST) for error in errors]
            axes.plot(range(len(values)), values, color=INK, alpha=0.35, linewidth=1, marker=".", markersize=5)
        for place, (method, each) in enumerate(methods.items()):
            mean = max(number(each["mean"]), LEAST)
            axes.plot(place, mean, **(mark(method) | {"markersize": 10, "linestyle": "none"}))
            axes.annotate(
                f"{each['mean']:.2f} %", (place, mean), (9, 0), textcoords="offset points", va="center",
                bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1, "alpha": 0.7},
            )  # fmt: skip
        kinds = [f"{method}\n{kind_of(method)}" for method in methods]
        axes.set_xticks(range(len(methods)), kinds, fontsize=9 if len(methods) < 4 else 8)
        axes.set_xlim(-0.4, len(methods) - 0.3)
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")  # the default formatter writes formulas
        axes.yaxis.set_minor_formatter(NullFormatter())
        tidy(axes, "", "test error, % (logarithmic)")
        axes.set_title(subject(comparison), fontsize=10)
    return drawing


def kind_of(method: str) -> str:
    """Return what a method is, for readers who do not know its name.

    >>> kind_of("DSN-Softmax"), kind_of("BatchNorm")
    ('companions', 'no companions')
    """
    return "companions" if method.startswith("DSN") else "no companions"


def mean_curves(comparison: Comparison) -> tuple[str, dict[str, np.ndarray]]:
    """Return which error is recorded over the epochs, and its mean over the seeds by method: test, else validation."""
    records = [record for runs in comparison.runs.values() for run in runs for record in run.metrics]
    key = next((key for key in ("test_error", "validation_error") if any(key in each for each in records)), "error")
    curves = {}
    for method, runs in comparison.runs.items():
        lines = [series(run.metrics, key) for run in runs if drawable(series(run.metrics, key))]
        if lines:
            length = min(len(line) for line in lines)
            curves[method] = np.array([line[:length] for line in lines]).mean(0)
    return KINDS[key], curves


def draw_epochs(comparison: Comparison) -> Drawing | None:
    """Draw the error of the methods over the epochs (Fig. 2a)."""
    what, curves = mean_curves(comparison)
    if not curves:
        return None
    drawing = Drawing("epochs", f"{what} of the methods over the epochs, mean over seeds.".capitalize())
    with drawing as axes:
        for method, values in curves.items():
            seen = np.isfinite(values)
            step = 1 + len(values) // MOST_POINTS
            style = mark(method) | {"markevery": max(1, int(seen.sum()) // step // 10)}
            axes.plot(np.arange(1, len(values) + 1)[seen][::step], values[seen][::step], label=method, **style)
        axes.set_ylim(bottom=0)
        tidy(axes, "epoch", f"{what}, %")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        drawing.figure.legend(loc="outside upper center", ncols=2, fontsize=9)
    return drawing


def draw_train_and_test(comparison: Comparison) -> Drawing | None:
    """Draw the final training and test error of each method (Fig. 2c)."""
    trained = {
        method: float(np.mean([number(run.metrics[-1].get("error")) for run in runs if run.metrics]))
        for method, runs in comparison.runs.items()
        if any(run.metrics for run in runs)
    }
    if not trained:
        return None
    tested = {method: number(comparison.table["methods"][method]["mean"]) for method in trained}
    values = ", ".join(f"{method} {trained[method]:.2f} and {tested[method]:.2f}" for method in trained)
    drawing = Drawing("train-and-test", f"Error in training (last epoch) and on the test set, percent: {values}.")
    with drawing as axes:
        for place, method in enumerate(trained):
            axes.plot([trained[method], tested[method]], [place, place], color=INK, alpha=0.35, linewidth=2)
            axes.plot(trained[method], place, "|", color=INK, markersize=14, markeredgewidth=2)
            axes.plot(tested[method], place, **(mark(method) | {"markersize": 9, "linestyle": "none"}))
        axes.set_yticks(range(len(trained)), list(trained))
        axes.set_ylim(len(trained) - 0.5, -0.5)
        axes.set_xlim(0, 1.05 * max(*trained.values(), *tested.values(), 1e-3))
        tidy(axes, "error, %:\N{EM SPACE}| in training\N{EM SPACE}\N{BLACK CIRCLE} on the test set", "")
        axes.grid(visible=False)
        axes.grid(axis="x", color="#888888", alpha=0.25)
    return drawing


def draw_sizes(comparisons: Sequence[Comparison]) -> Drawing | None:
    """Draw the test error of several comparisons against the size of the training set (Fig. 2b)."""
    sized = [
        (size_of(comparison), comparison) for comparison in sorted(comparisons, key=size_of) if size_of(comparison)
    ]
    if len({size for size, _ in sized}) < 2:
        return None
    drawing = Drawing("sizes", "Test error of the methods against the size of the training set.")
    with drawing as axes:
        for method in sized[0][1].table["methods"]:
            cells = [(size, comparison.table["methods"][method]) for size, comparison in sized]
            axes.errorbar(
                [size for size, _ in cells], [number(each["mean"]) for _, each in cells],
                yerr=[each["deviation"] or 0 for _, each in cells], capsize=4, label=method, **mark(method),
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_xticks([size for size, _ in sized], [str(size) for size, _ in sized])
        axes.minorticks_off()
        tidy(axes, "training images", "test error, %")
        axes.legend(fontsize=9)
    return drawing


def size_of(comparison: Comparison) -> int:
    """Return the number of training images, or 0 if it is unknown."""
    given = comparison.table.get("config", {}).get("train_size")
    results = [run.result for runs in comparison.runs.values() for run in runs if run.result]
    return int(given or (results[0].get("train_images", 0) if results else 0))


def error_text(each: Mapping[str, Any]) -> str:
    """Return a mean and its standard deviation as text."""
    return f"{each['mean']:.2f}" + (f" ± {each['deviation']:.2f}" if each["deviation"] is not None else "")


def subject(comparison: Mapping[str, Any]) -> str:
    """Return the network, the data and the number of seeds as text."""
    config, seeds = comparison["config"], len(comparison["seeds"])
    images = f"{config['train_size']:,} images of " if config.get("train_size") else ""
    return f"{config['network']} on {images}{Path(config['data']).name}, {seeds} seed{'s' if seeds != 1 else ''}"
