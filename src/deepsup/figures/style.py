"""A drawing in, the same look out everywhere: SVG that takes the page's own ink, or PNG and SVG files for print."""

import io
import math
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by colour-blind readers too, without those too pale on white or black
CYCLE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6BB1", "#7F7F7F")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", "-.", ":")
# inches: narrow enough that ten points stay readable on a screen of 400 pixels
WIDTH = 4.8
INK = "#2b2f36"  # dark enough for print; on a page it is replaced by the colour of the text around the figure
XML = '<?xml version="1.0" encoding="utf-8"?>\n'

_LOOK: Any = {
    "font.family": "sans-serif",
    "font.size": 10,
    "text.parse_math": False,  # a class may be called "$"
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "svg.fonttype": "none",
}


class Drawing:
    """One figure with its alternative text: ``with Drawing("name", "what it shows") as axes: ...``."""

    def __init__(self, name: str, alt: str, size: tuple[float, float] = (WIDTH, 3.0), axes: tuple[int, int] = (1, 1)):
        self.name, self.alt, self.size = name, alt, size
        self.salt = name  # what keeps the ids of two figures on one page apart
        with mpl.rc_context(_LOOK):
            self.figure = Figure(figsize=size, layout="constrained")
            self._axes = self.figure.subplots(*axes)

    def __enter__(self) -> Any:
        self._context = mpl.rc_context(_LOOK)
        self._context.__enter__()
        return self._axes

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)

    def svg(self) -> str:
        """Return the SVG element for a page: no background, the page's ink, ids of its own."""
        # ids repeat from one figure to the next, but for those that something refers to
        text = re.sub(r' id="(?:figure|axes|patch|line2d|text|matplotlib|xtick|ytick|legend)[^"]*"', "", self._drawn)
        return text.replace(INK, "currentColor")

    def save(self, folder: Path) -> Path:
        """Write ``name.png`` and ``name.svg`` into ``folder``, on white; return the PNG's path."""
        folder.mkdir(parents=True, exist_ok=True)
        head, end, rest = self._drawn.partition(">")
        white = '<rect width="100%" height="100%" fill="white"/>'
        (folder / f"{self.name}.svg").write_text(f"{XML}{head}{end}{white}{rest}", encoding="utf-8")
        with mpl.rc_context(_LOOK):
            self.figure.savefig(folder / f"{self.name}.png", dpi=150, facecolor="white")
        return folder / f"{self.name}.png"

    @cached_property
    def _drawn(self) -> str:
        """The SVG element as it is drawn, without a background."""
        out = io.StringIO()
        with mpl.rc_context({**_LOOK, "svg.hashsalt": self.salt}):
            self.figure.draw_without_rendering()
            self.figure.set_layout_engine("none")  # laid out once, for SVG and PNG alike
            self.figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        text = out.getvalue()
        return re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)


def tidy(axes: Axes, xlabel: str, ylabel: str) -> None:
    """Label the axes, and leave only the lines that help reading."""
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.grid(axis="y", color="#888888", alpha=0.25)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def look(index: int) -> dict[str, Any]:
    """Return colour, marker and dashes of the line ``index``: told apart in grey and by colour-blind readers too."""
    return {
        "color": CYCLE[index % len(CYCLE)],
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": DASHES[index % len(DASHES)],
        "markersize": 4,
        "linewidth": 1.7,
    }


def number(value: Any) -> float:
    """Return a recorded value as a number to draw; nothing, or what is no number, is a gap.

    >>> number(3), number(None)
    (3.0, nan)
    """
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else math.nan


def series(records: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    """Return one value an epoch."""
    return [number(record.get(key)) for record in records]


def series_by_layer(records: Sequence[Mapping[str, Any]], key: str) -> dict[str, list[float]]:
    """Return layer -> one value an epoch, for a key that holds one a layer."""
    held = [record.get(key) or {} for record in records]
    layers = list(dict.fromkeys(layer for each in held for layer in each))
    return {layer: [number(each.get(layer)) for each in held] for layer in layers}


def drawable(values: Sequence[float]) -> bool:
    """Whether there is at least one number to draw."""
    return any(math.isfinite(value) for value in values)
