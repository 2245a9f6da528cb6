"""The figures of a sweep: how the search went, which settings matter, and the error over each setting."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullFormatter

from deepsup.trainer.report._labels import shown
from deepsup.trainer.report._read import SweepRecord
from deepsup.trainer.report._style import PAPER, PLAIN, SUPERVISED, WIDTH, Drawing, number, tidy

COLOURS = {"supervised": SUPERVISED, "plain": PLAIN}
LABELS = {"supervised": "with companions", "plain": "plain"}


def best_so_far(trials: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the lowest validation error after each trial; NaN before the first that was trained to its end.

    >>> best_so_far([{"validation_error": 5.0}, {"validation_error": None}, {"validation_error": 4.0}])
    [5.0, 5.0, 4.0]
    """
    lowest, best = [], math.nan
    for trial in trials:
        error = number(trial["validation_error"])
        best = error if math.isnan(best) or error < best else best
        lowest.append(best)
    return lowest


def marker(method: str) -> dict[str, Any]:
    """Return the look of a method's points: filled with companions, hollow without."""
    colour = COLOURS[method]
    return {"color": colour, "markerfacecolor": colour if method == "supervised" else PAPER, "marker": "o"}


def draw_search(sweep: SweepRecord) -> Drawing | None:
    """Draw the best validation error over the number of trials, of both methods."""
    lines = {method: best_so_far(sweep.counted(method)) for method in COLOURS}
    lines = {method: values for method, values in lines.items() if any(map(math.isfinite, values))}
    if not lines:
        return None
    ends = ", ".join(f"{LABELS[method]} {values[-1]:.2f} % after {len(values)}" for method, values in lines.items())
    drawing = Drawing("search", f"Lowest validation error by number of trials: {ends}.")
    with drawing as axes:
        for method, values in lines.items():
            places = range(1, len(values) + 1)
            axes.step(places, values, where="post", color=COLOURS[method], linewidth=1.8,
                      linestyle="-" if method == "supervised" else "--")  # fmt: skip
            errors = [number(trial["validation_error"]) for trial in sweep.counted(method)]
            axes.plot(places, errors, linestyle="none", markersize=4, label=LABELS[method], **marker(method))
        limit_errors(axes, sweep)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        tidy(axes, "trials", "validation error, %")
        drawing.figure.legend(loc="outside upper center", fontsize=9, ncols=2)
    return drawing


def limit_errors(axes: Axes, sweep: SweepRecord) -> None:
    """Leave out the worst trials, so that the good ones can be told apart."""
    errors = sorted(error for error in sweep.errors() if error <= 100)
    if errors:
        low, high = errors[0], errors[(len(errors) - 1) * 3 // 4]
        axes.set_ylim(low - 0.1 * (high - low) - 0.05, high + 0.3 * (high - low) + 0.1)


def draw_importance(sweep: SweepRecord, method: str) -> Drawing | None:
    """Draw the share of the errors' variance that each setting explains."""
    shares = sweep.methods[method].get("importance", {})
    if not shares:
        return None
    values = ", ".join(f"{name} {100 * number(share):.0f} %" for name, share in shares.items())
    drawing = Drawing(f"importance-{method}", f"Importance of each setting, {LABELS[method]}: {values}.",
                      size=(WIDTH, 1 + 0.3 * len(shares)))  # fmt: skip
    with drawing as axes:
        places = range(len(shares))
        axes.barh(places, [100 * number(share) for share in shares.values()], color=COLOURS[method], height=0.6)
        drawing.name_ticks(axes.yaxis, places, [name.replace("_", " ") for name in shares])
        axes.invert_yaxis()
        tidy(axes, f"importance, % ({LABELS[method]})", "")
        axes.grid(visible=False)
    return drawing


def draw_slice(sweep: SweepRecord, name: str) -> Drawing | None:
    """Draw the validation errors over the values of one setting; a default that is no number has no place."""
    words = choices_of(sweep, name)
    points = {
        method: [(value, error) for value, error in sweep.points(name, method) if words or math.isfinite(number(value))]
        for method in COLOURS
    }
    points = {method: each for method, each in points.items() if each}
    if not points:
        return None
    methods = " and ".join(LABELS[method] for method in points)
    drawing = Drawing(f"slice-{name}", f"Validation error of the trials {methods} over {name}.", size=(WIDTH, 2.6))
    with drawing as axes:
        for method, each in points.items():
            places = [words.index(shown(value)) if words else number(value) for value, _ in each]
            axes.plot(places, [error for _, error in each], linestyle="none", markersize=4, **marker(method))
        limit_errors(axes, sweep)
        tidy(axes, name.replace("_", " "), "validation error, %")
        if words:
            drawing.name_ticks(axes.xaxis, range(len(words)), [word.strip('[]"') or "none" for word in words], limit=16)
            axes.set_xlim(-0.5, len(words) - 0.5)
        elif sweep.space[name].get("log"):
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")  # the default formatter writes formulas
            axes.xaxis.set_minor_formatter(NullFormatter())
    return drawing


def choices_of(sweep: SweepRecord, name: str) -> list[str]:
    """Return the choices of a setting as words; none for a range."""
    space = sweep.space[name]
    if not isinstance(space, list):
        return []
    tried = [value for method in COLOURS for value, _ in sweep.points(name, method)]
    return list(dict.fromkeys(map(shown, [*space, *tried])))
