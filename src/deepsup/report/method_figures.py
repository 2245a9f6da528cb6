"""Figures of the four methods of a comparison, as in the paper's Fig. 2."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from deepsup.report.read import Comparison
from deepsup.report.style import INK, MOST_POINTS, PAPER, WIDTH, Drawing, drawable, mark, number, series, tidy


def draw_methods(comparison: Mapping[str, Any], folder: Path) -> Path:
    """Draw the methods of ``comparison`` into ``folder/methods.png`` and ``.svg``; return the PNG's path."""
    return methods_figure(comparison).save(folder)


def methods_figure(comparison: Mapping[str, Any]) -> Drawing:
    """Draw the test error of every method: each seed, the mean, the standard deviation."""
    methods = comparison["methods"]
    said = ", ".join(f"{method} {error_text(each)}" for method, each in methods.items())
    drawing = Drawing("methods", f"Test error of the four methods, percent: {said}.", size=(WIDTH, 3.2))
    with drawing as axes:
        for place, (method, each) in enumerate(methods.items()):
            style = mark(method) | {"markersize": 9, "linestyle": "none"}
            axes.errorbar(place, number(each["mean"]), yerr=each["deviation"] or 0, capsize=6, **style)
            axes.plot([place + 0.18] * len(each["errors"]), each["errors"], ".", color=INK, alpha=0.6, markersize=5)
            axes.annotate(
                f"{each['mean']:.2f}", (place, number(each["mean"])), (-9, 0), textcoords="offset points", ha="right",
                va="center",
            )  # fmt: skip
        axes.set_xticks(range(len(methods)), list(methods))
        axes.set_xlim(-0.6, len(methods) - 0.4)
        tidy(axes, "", "test error, %")
        axes.set_title(subject(comparison), fontsize=10)
        drawing.figure.legend(
            handles=meanings(methods), loc="outside lower center", ncols=3, fontsize=9, handletextpad=0.3,
            columnspacing=1.2,
        )  # fmt: skip
    return drawing


def meanings(methods: Iterable[str]) -> list[Line2D]:
    """Return the legend entries of filled and hollow markers and of the dots."""
    kinds = {method.startswith("DSN"): mark(method) for method in methods}
    words = {True: "with companions (DSN)", False: "plain net (CNN)"}
    handles = [
        Line2D([], [], label=words[kind], **(kinds[kind] | {"linestyle": "none", "marker": "o", "markersize": 8}))
        for kind in (False, True)
        if kind in kinds
    ]
    return [*handles, Line2D([], [], label="each seed", color=INK, alpha=0.6, marker=".", linestyle="none")]


def draw_differences(comparison: Mapping[str, Any]) -> Drawing | None:
    """Draw the differences between methods with their 95 % intervals: below 0, the first of a pair is better."""
    pairs = {pair: each for pair, each in comparison.get("differences", {}).items() if each["interval"]}
    if not pairs:
        return None
    said = ", ".join(f"{pair} {each['mean']:+.2f}" for pair, each in pairs.items())
    drawing = Drawing("differences", f"Differences in test error, points: {said}.", (WIDTH, 3.2))
    with drawing as axes:
        for place, (pair, each) in enumerate(pairs.items()):
            low, high = each["interval"]
            axes.plot([low, high], [place, place], color=INK, linewidth=2.5, solid_capstyle="butt")
            axes.plot(each["mean"], place, "|", color=INK, markersize=14, markeredgewidth=3)
            axes.annotate(
                pair.replace(" - ", " minus "), (each["mean"], place), (0, 13), textcoords="offset points",
                ha="center", bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1},
            )  # fmt: skip
        axes.axvline(0, color=INK, linewidth=1, linestyle="--")
        axes.set_yticks([])
        axes.set_ylim(len(pairs) - 0.6, -0.7)
        axes.margins(x=0.25)
        tidy(axes, "← better\N{EM SPACE}difference in test error, points\N{EM SPACE}worse →", "")
        axes.grid(visible=False)
        axes.spines["left"].set_visible(False)
        axes.set_title("differences over the same seeds, 95 % intervals", fontsize=10)
    return drawing


def draw_epochs(comparison: Comparison) -> Drawing | None:
    """Draw the error of the four methods over the epochs (Fig. 2a): test errors if recorded."""
    tested = any("test_error" in record for runs in comparison.runs.values() for run in runs for record in run.metrics)
    key, what = ("test_error", "test error, %") if tested else ("error", "error in training, %")
    drawing = Drawing("epochs", f"{what[:-3]} of the four methods over the epochs, mean over seeds.".capitalize())
    drawn = False
    with drawing as axes:
        for method, runs in comparison.runs.items():
            lines = [series(run.metrics, key) for run in runs if drawable(series(run.metrics, key))]
            if not lines:
                continue
            length = min(len(line) for line in lines)
            values = np.array([line[:length] for line in lines]).mean(0)
            seen = np.isfinite(values)
            step = 1 + length // MOST_POINTS
            style = mark(method) | {"markevery": max(1, length // step // 10)}
            axes.plot(np.arange(1, length + 1)[seen][::step], values[seen][::step], label=method, **style)
            drawn = True
        axes.set_ylim(bottom=0)
        tidy(axes, "epoch", what)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if drawn:
            drawing.figure.legend(loc="outside upper center", ncols=2, fontsize=9)
    return drawing if drawn else None


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
    said = ", ".join(f"{method} {trained[method]:.2f} and {tested[method]:.2f}" for method in trained)
    drawing = Drawing("train-and-test", f"Error in training (last epoch) and on the test set, percent: {said}.")
    with drawing as axes:
        for place, method in enumerate(trained):
            axes.plot([trained[method], tested[method]], [place, place], color=INK, alpha=0.35, linewidth=2)
            axes.plot(trained[method], place, "|", color=INK, markersize=14, markeredgewidth=2)
            axes.plot(tested[method], place, **(mark(method) | {"markersize": 9, "linestyle": "none"}))
        axes.set_yticks(range(len(trained)), list(trained))
        axes.set_ylim(len(trained) - 0.5, -0.5)
        axes.set_xlim(left=0)
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
    drawing = Drawing("sizes", "Test error of the four methods against the size of the training set.")
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
