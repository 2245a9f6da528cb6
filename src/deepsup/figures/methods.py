"""The table of a comparison in, a picture of the four methods' test errors out: every seed, the mean, the deviation."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by colour-blind readers too; companions are filled, plain nets hollow
COLOURS = {"CNN-Softmax": "#0072B2", "DSN-Softmax": "#0072B2", "CNN-SVM": "#D55E00", "DSN-SVM": "#D55E00"}


def draw_methods(comparison: Mapping[str, Any], folder: Path) -> Path:
    """Draw the methods of ``comparison`` into ``folder/methods.png`` and ``.svg``; return the PNG's path."""
    methods = comparison["methods"]
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    for place, (method, each) in enumerate(methods.items()):
        colour, filled = COLOURS[method], method.startswith("DSN")
        face = colour if filled else "white"
        axes.errorbar(
            place, each["mean"], yerr=each["deviation"] or 0, fmt="o" if filled else "s", markersize=9, capsize=6,
            color=colour, markerfacecolor=face,
        )  # fmt: skip
        axes.plot([place + 0.18] * len(each["errors"]), each["errors"], ".", color="0.45", markersize=5)
        axes.annotate(f"{each['mean']:.2f}", (place, each["mean"]), (-34, -4), textcoords="offset points")
    axes.set_xticks(range(len(methods)), list(methods))
    axes.set_xlim(-0.6, len(methods) - 0.4)
    axes.set_ylabel("test error, %")
    axes.grid(axis="y", color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    config, seeds = comparison["config"], len(comparison["seeds"])
    images = f"{config['train_size']} images of " if config["train_size"] else ""
    axes.set_title(f"{config['network']} on {images}{Path(config['data']).name}, {seeds} seeds", fontsize=11)
    axes.set_xlabel("mean and deviation over seeds; dots are the seeds", color="0.35", fontsize=9)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "methods.svg")
    figure.savefig(folder / "methods.png", dpi=150)
    return folder / "methods.png"
