"""The figure of the theory study: errors of P and of P + Q with their bounds, and their ratio.

One row per step rule; the columns are two cases and the ratio of errors in several. P is the objective of the output, Q
that of the companions.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from deepsup.trainer.report._style import CYCLE, INK, MARKERS, Drawing, tidy

# one case on either side of lambda = 1, where Lemma 3 breaks
PANELS = ((0.1, 0.2), (0.75, 0.75))
RATIOS = ((0.1, 0.2), (0.75, 0.75), (0.1, 5.0), (0.1, 0.9))
BLUE, ORANGE, GREEN = CYCLE[:3]
LINES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("error_p", "P alone, measured", {"color": BLUE, "marker": "o"}),
    ("error_f", "P + Q, measured", {"color": ORANGE, "marker": "s"}),
    ("printed_f", "P + Q, bound as printed", {"color": INK, "linestyle": "--"}),
    ("corrected_f", "P + Q, bound corrected", {"color": GREEN, "linestyle": ":"}),
)


def draw_theory(record: Mapping[str, Any], folder: Path) -> Path:
    """Draw the curves of a study's record; write ``theory.png`` (and an SVG) into ``folder``, return the PNG's path."""
    curves: Mapping[str, Sequence[Mapping[str, Any]]] = record["curves"]
    drawing = Drawing("theory", alternative(record), size=(11.0, 6.4), axes=(len(curves), len(PANELS) + 1))
    with drawing as grid:
        for axes, (step, cases) in zip(grid, curves.items(), strict=True):
            for panel, pair in zip(axes, PANELS, strict=False):
                draw_errors(panel, step, find_case(cases, pair))
            draw_ratios(axes[-1], step, [find_case(cases, pair) for pair in RATIOS])
        # one legend per kind of panel, below them: inside, it would cover the lines
        below: dict[str, Any] = {"ncols": 2, "fontsize": 9}
        title = "ratios; dashed: Theorem 1"
        drawing.figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower left", **below)
        drawing.figure.legend(*grid[0][-1].get_legend_handles_labels(), loc="outside lower right", title=title, **below)
    return drawing.save(folder)


def find_case(cases: Sequence[Mapping[str, Any]], pair: tuple[float, float]) -> Mapping[str, Any]:
    """Return the first case with these lambda1 and lambda2."""
    return next(case for case in cases if (case["lambda1"], case["lambda2"]) == pair)


def draw_errors(axes: Axes, step: str, case: Mapping[str, Any]) -> None:
    """Draw the errors of one case and the bounds over T."""
    for key, label, style in LINES:
        axes.plot(case["times"], case[key], label=label, markersize=4, linewidth=1.7, **style)
    # a bound may fall through thirty decades; show the measured range
    lowest = min(case["error_f"] + case["error_p"])
    axes.set_ylim(lowest / 30, 30)
    axes.set_title(f"λ1 = {case['lambda1']:g}, λ2 = {case['lambda2']:g}, step {rule(step)}", fontsize=10)
    logarithmic(axes, "T", "mean of |W_T - W*|²")


def draw_ratios(axes: Axes, step: str, cases: Sequence[Mapping[str, Any]]) -> None:
    """Draw the measured ratio of errors of several cases, and the theorem's dashed in the same colour."""
    for index, case in enumerate(cases):
        label = f"{case['case']}: λ1 {case['lambda1']:g}, λ2 {case['lambda2']:g}"
        colour = CYCLE[index]
        axes.plot(case["times"], case["ratio"], label=label, color=colour, marker=MARKERS[index], markersize=4)
        axes.plot(case["times"], case["printed_ratio"], color=colour, linestyle="--", linewidth=1.2)
    top = max(value for case in cases for value in case["ratio"])
    axes.set_ylim(0.3, top * 10)  # a printed ratio may be outside the figure
    axes.set_title(f"error of P / error of P + Q, step {rule(step)}", fontsize=10)
    logarithmic(axes, "T", "ratio of errors")


def logarithmic(axes: Axes, xlabel: str, ylabel: str) -> None:
    """Make both axes logarithmic, with plain numbers at the decades."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")  # the default formatter writes formulas
        axis.set_minor_formatter(NullFormatter())
    tidy(axes, xlabel, ylabel)


def rule(step: str) -> str:
    """Return a step rule for people.

    >>> rule("1/(lambda t)")
    '1/(λt)'
    """
    return step.replace("lambda ", "λ")


def alternative(record: Mapping[str, Any]) -> str:
    """Return the alternative text: the verdict on each statement."""
    verdicts = "; ".join(f"{finding['statement']} {finding['verdict']}" for finding in record["findings"])
    return f"Errors of SGD on P and on P + Q over T with the paper's bounds. {verdicts}."
