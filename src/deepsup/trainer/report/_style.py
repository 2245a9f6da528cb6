"""The common style of all figures: SVG in the colours of the page, or PNG and SVG files for print."""

import io
import math
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.text import Text

from deepsup.io import disk_errors_named, file_name, printable, whole_file, write_whole
from deepsup.trainer.report._names import FONTS, cut, drawable_name, has_glyphs, shorten
from deepsup.trainer.report._read import MOST_LAYERS

# Okabe and Ito's colours for colour-blind readers, without those too pale on white or black
CYCLE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6BB1", "#7F7F7F")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", "-.", ":")
# inches: so narrow that a 10-point font stays readable on a screen of 400 pixels
WIDTH = 4.8
# for print; a page replaces them by its own colours of text, background and accent
INK, PAPER = "#2b2f36", "#fefefe"
# in every figure: blue and filled is a net with companions, grey and hollow a plain net
SUPERVISED, PLAIN = "#0072b2", "#7a828e"
# what a figure shows at most; a file of a stranger can name more
MOST_LINES, MOST_POINTS, MOST_PICTURES, LONGEST_TEXT = 64, 4000, 60, 300
XML = '<?xml version="1.0" encoding="utf-8"?>\n'

_LOOK: Any = {
    "font.family": FONTS,
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
        self.salt = name  # keeps the ids of two figures on one page distinct
        self._names: dict[str, tuple[str, str]] = {}  # id of a text -> what a browser shows, and the tooltip
        with mpl.rc_context(_LOOK):
            self.figure = Figure(figsize=size, layout="constrained")
            self._axes = self.figure.subplots(*axes)

    def __enter__(self) -> Any:
        self._context = mpl.rc_context(_LOOK)
        self._context.__enter__()
        return self._axes

    def __exit__(self, *error: Any) -> None:
        for text in self.figure.findobj(Text):
            assert isinstance(text, Text)
            words = printable(cut(text.get_text(), LONGEST_TEXT))  # of a stranger: XML has no control characters
            text.set_text(words if len(words) <= LONGEST_TEXT else shorten(words, LONGEST_TEXT))
            if text.get_gid() is None and not has_glyphs(text.get_text()):
                self._name(text, text.get_text(), limit=80)
        self._context.__exit__(*error)

    def name_ticks(
        self, axis: Axis, places: Sequence[float], names: Sequence[str], limit: int = 14, turned: bool = False,
        **style: Any,
    ) -> None:  # fmt: skip
        """Write names at an axis: long ones are shortened, and a tooltip shows them in full."""
        if turned:  # anchored at the axis: the name in the SVG may be shorter than the one in the layout
            above = axis.get_tick_params().get("labeltop", False)
            style |= {"rotation": 90, "rotation_mode": "anchor", "ha": "left" if above else "right", "va": "center"}
        names = [printable(cut(name, LONGEST_TEXT)) for name in names]
        axis.set_ticks(places, [drawable_name(name, limit) for name in names], **style)
        for text, name in zip(axis.get_ticklabels(), names, strict=True):
            self._name(text, name, limit)

    def _name(self, text: Text, name: str, limit: int) -> None:
        """Draw a name in the available characters; the SVG leaves all others to the browser."""
        drawn, shown = drawable_name(name, limit), shorten(name, limit)
        if drawn != name:
            text.set_text(drawn)
            text.set_gid(f"name{len(self._names)}")
            self._names[f"name{len(self._names)}"] = (shown, name)

    def svg(self) -> str:
        """Return the SVG element for a page: no background, the page's colours, unique ids."""
        # only ids that are referred to are unique; drop the others
        text = re.sub(r' id="(?:figure|axes|patch|line2d|text|matplotlib|xtick|ytick|legend)[^"]*"', "", self._drawn)
        for colour, own in ((INK, "currentColor"), (PAPER, "var(--paper)"), (SUPERVISED, "var(--accent)")):
            text = text.replace(colour, own)
        return text

    def save(self, folder: Path) -> Path:
        """Write ``name.png`` and ``name.svg`` into ``folder``, on white; return the PNG's path."""
        with disk_errors_named(folder):
            folder.mkdir(parents=True, exist_ok=True)
        head, end, rest = self._drawn.partition(">")
        white = '<rect width="100%" height="100%" fill="white"/>'
        name = file_name(self.name)
        write_whole(folder / f"{name}.svg", f"{XML}{head}{end}{white}{rest}".encode())
        return self.save_png(folder / f"{name}.png")

    def close(self) -> None:
        """Give the memory of the figure back; it cannot be drawn again."""
        self.figure.clear()
        self.__dict__.pop("_drawn", None)

    def save_png(self, path: Path) -> Path:
        """Write only the PNG, on white; return its path."""
        with mpl.rc_context(_LOOK), whole_file(path) as file:
            self.figure.savefig(file, format="png", dpi=150, facecolor="white")
        return path

    @cached_property
    def _drawn(self) -> str:
        """The SVG element as drawn, without a background."""
        out = io.StringIO()
        with mpl.rc_context({**_LOOK, "svg.hashsalt": self.salt}):
            self.figure.draw_without_rendering()
            self.figure.set_layout_engine("none")  # one layout for SVG and PNG
            self.figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        drawn = out.getvalue()
        drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn[drawn.index("<svg") :], flags=re.DOTALL)
        return re.sub(r'<g id="(name\d+)">(\s*<text[^>]*>).*?</text>', self._named, drawn, flags=re.DOTALL)

    def _named(self, match: re.Match[str]) -> str:
        """Return a text element of the SVG with the name and a tooltip."""
        shown, whole = self._names[match[1]]
        return f"<g><title>{escape(whole)}</title>{match[2]}{escape(shown)}</text>"


def tidy(axes: Axes, xlabel: str, ylabel: str) -> None:
    """Label the axes and remove lines that do not help."""
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.grid(axis="y", color="#888888", alpha=0.25)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def look(index: int, supervised: bool = True) -> dict[str, Any]:
    """Return colour, marker and dashes of line ``index``; distinct in grey and for colour-blind readers too."""
    colour = CYCLE[index % len(CYCLE)]
    return {
        "color": colour,
        "marker": MARKERS[index % len(MARKERS)],
        "markerfacecolor": colour if supervised else PAPER,
        "linestyle": DASHES[index % len(DASHES)],
        "markersize": 4,
        "linewidth": 1.7,
    }


def mark(method: str) -> dict[str, Any]:
    """Return the style of a method: colour and fill show companions or none, marker and dashes show the loss.

    >>> mark("CNN-SVM")["markerfacecolor"] == PAPER
    True
    """
    supervised, svm = method.startswith("DSN"), method.endswith("SVM")
    colour = SUPERVISED if supervised else PLAIN
    return {
        "color": colour,
        "marker": "^" if method == "BatchNorm" else "s" if svm else "o",
        "markerfacecolor": colour if supervised else PAPER,
        "linestyle": ":" if method == "BatchNorm" else "--" if svm else "-",
        "markersize": 5,
        "linewidth": 1.7,
    }


def number(value: Any) -> float:
    """Return a recorded value as a number to draw; NaN if it is missing or not finite.

    >>> number(3), number(None)
    (3.0, nan)
    """
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else math.nan


def series(records: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    """Return one value per epoch."""
    return [number(record.get(key)) for record in records]


def series_by_layer(records: Sequence[Mapping[str, Any]], key: str) -> dict[str, list[float]]:
    """Return layer -> one value per epoch, for a key with one value per layer."""
    epochs = [record.get(key) or {} for record in records]
    layers = list(islice(dict.fromkeys(layer for each in epochs for layer in each), MOST_LAYERS))
    return {layer: [number(each.get(layer)) for each in epochs] for layer in layers}


def thinned(values: Sequence[float]) -> tuple[Sequence[int], Sequence[float]]:
    """Return the epochs, from 1, and the values to draw: of a very long training evenly chosen ones.

    >>> thinned([0.5, 0.25])
    (range(1, 3), [0.5, 0.25])
    """
    step = 1 + len(values) // MOST_POINTS
    return range(1, len(values) + 1, step), values[::step]


def drawable(values: Sequence[float]) -> bool:
    """Whether there is at least one number to draw."""
    return any(math.isfinite(value) for value in values)
