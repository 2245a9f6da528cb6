"""The table of a comparison and its runs in, pictures of the four methods out, as the paper's Fig. 2 has them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from deepsup.figures.read import Contest
from deepsup.figures.style import DASHES, WIDTH, Drawing, drawable, number, series, tidy

# Okabe and Ito's colours, told apart by colour-blind readers too; companions are filled, plain nets hollow
COLOURS = {"CNN-Softmax": "#0072B2", "DSN-Softmax": "#0072B2", "CNN-SVM": "#D55E00", "DSN-SVM": "#D55E00"}


def draw_methods(comparison: Mapping[str, Any], folder: Path) -> Path:
    """Draw the methods of ``comparison`` into ``folder/methods.png`` and ``.svg``; return the PNG's path."""
    return methods_figure(comparison).save(folder)


def methods_figure(comparison: Mapping[str, Any]) -> Drawing:
    """Draw the test error of every method: every seed, the mean, the deviation."""
    methods = comparison["methods"]
    said = ", ".join(f"{method} {told_error(each)}" for method, each in methods.items())
    drawing = Drawing("methods", f"Test error of the four methods, percent: {said}.", size=(WIDTH, 3.2))
    with drawing as axes:
        for place, (method, each) in enumerate(methods.items()):
            colour, filled = COLOURS.get(method, "#7F7F7F"), method.startswith("DSN")
            axes.errorbar(
                place, number(each["mean"]), yerr=each["deviation"] or 0, fmt="o" if filled else "s", markersize=9,
                capsize=6, color=colour, markerfacecolor=colour if filled else "white",
            )  # fmt: skip
            axes.plot([place + 0.18] * len(each["errors"]), each["errors"], ".", color="#7a7a7a", markersize=5)
            axes.annotate(f"{each['mean']:.2f}", (place, number(each["mean"])), (-32, -4), textcoords="offset points")
        axes.set_xticks(range(len(methods)), list(methods))
        axes.set_xlim(-0.6, len(methods) - 0.4)
        tidy(axes, "mean and deviation over seeds; dots are the seeds", "test error, %")
        axes.set_title(subject(comparison), fontsize=10)
    return drawing


def draw_epochs(contest: Contest) -> Drawing | None:
    """Draw the error of the four methods over the epochs (Fig. 2a): test errors where recorded."""
    tested = any("test_error" in record for runs in contest.runs.values() for run in runs for record in run.metrics)
    key, what = ("test_error", "test error, %") if tested else ("error", "error in training, %")
    drawing = Drawing("epochs", f"{what[:-3]} of the four methods over the epochs, mean over seeds.".capitalize())
    drawn = False
    with drawing as axes:
        for index, (method, runs) in enumerate(contest.runs.items()):
            lines = [series(run.metrics, key) for run in runs if drawable(series(run.metrics, key))]
            if not lines:
                continue
            length = min(len(line) for line in lines)
            values = np.array([line[:length] for line in lines]).mean(0)
            seen = np.isfinite(values)
            axes.plot(np.arange(1, length + 1)[seen], values[seen], DASHES[index % 2], label=method, **mark(method))
            drawn = True
        axes.set_ylim(bottom=0)
        tidy(axes, "epoch", what)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if drawn:
            axes.legend(fontsize=9)
    return drawing if drawn else None


def draw_train_and_test(contest: Contest) -> Drawing | None:
    """Draw each method's error at the end, in training and on the test set (Fig. 2c)."""
    trained = {
        method: float(np.mean([number(run.metrics[-1].get("error")) for run in runs if run.metrics]))
        for method, runs in contest.runs.items()
        if any(run.metrics for run in runs)
    }
    if not trained:
        return None
    tested = {method: number(contest.table["methods"][method]["mean"]) for method in trained}
    said = ", ".join(f"{method} {trained[method]:.2f} and {tested[method]:.2f}" for method in trained)
    drawing = Drawing("train-and-test", f"Error in training (last epoch) and on the test set, percent: {said}.")
    with drawing as axes:
        places = np.arange(len(trained))
        axes.bar(places - 0.2, list(trained.values()), 0.38, label="training, with dropout", color="#56B4E9")
        axes.bar(
            places + 0.2, list(tested.values()), 0.38, label="test", color="#D55E00", hatch="//", edgecolor="white"
        )
        axes.set_xticks(places, list(trained))
        tidy(axes, "", "error, %")
        drawing.figure.legend(loc="outside upper center", ncols=2, fontsize=9)
    return drawing


def draw_sizes(contests: Sequence[Contest]) -> Drawing | None:
    """Draw the test error against the size of the training set, with deviations (Fig. 2b), of several comparisons."""
    sized = [(size_of(contest), contest) for contest in sorted(contests, key=size_of) if size_of(contest)]
    if len({size for size, _ in sized}) < 2:
        return None
    drawing = Drawing("sizes", "Test error of the four methods against the size of the training set.")
    with drawing as axes:
        for index, method in enumerate(sized[0][1].table["methods"]):
            cells = [(size, contest.table["methods"][method]) for size, contest in sized]
            axes.errorbar(
                [size for size, _ in cells], [number(each["mean"]) for _, each in cells],
                yerr=[each["deviation"] or 0 for _, each in cells], capsize=4, linestyle=DASHES[index % 2],
                label=method, **mark(method),
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_xticks([size for size, _ in sized], [str(size) for size, _ in sized])
        axes.minorticks_off()
        tidy(axes, "training images", "test error, %")
        axes.legend(fontsize=9)
    return drawing


def size_of(contest: Contest) -> int:
    """Return how many images a comparison trained on, 0 where it is not known."""
    given = contest.table.get("config", {}).get("train_size")
    results = [run.result for runs in contest.runs.values() for run in runs if run.result]
    return int(given or (results[0].get("train_images", 0) if results else 0))


def mark(method: str) -> dict[str, Any]:
    """Return a method's colour and marker."""
    colour, filled = COLOURS.get(method, "#7F7F7F"), method.startswith("DSN")
    face = colour if filled else "white"
    return {"color": colour, "marker": "o" if filled else "s", "markerfacecolor": face, "markersize": 4.5}


def told_error(each: Mapping[str, Any]) -> str:
    """Say a mean and its deviation."""
    return f"{each['mean']:.2f}" + (f" ± {each['deviation']:.2f}" if each["deviation"] is not None else "")


def subject(comparison: Mapping[str, Any]) -> str:
    """Say what was trained on what."""
    config, seeds = comparison["config"], len(comparison["seeds"])
    images = f"{config['train_size']} images of " if config.get("train_size") else ""
    return f"{config['network']} on {images}{Path(config['data']).name}, {seeds} seed{'s' if seeds != 1 else ''}"
