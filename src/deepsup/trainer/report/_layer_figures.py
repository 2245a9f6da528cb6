"""Figures of what each layer knows: its test error, and the layer at which images are first right.

A linear probe is a linear classifier fitted on one layer of the trained, frozen net.
"""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

import matplotlib as mpl
import numpy as np

from deepsup.trainer.report._names import shorten
from deepsup.trainer.report._read import Comparison, RunRecord
from deepsup.trainer.report._style import WIDTH, Drawing, look, mark, number, tidy

Errors = dict[str, list[float]]  # layer -> one test error per run
KINDS = {"agreement": "companions", "probe_agreement": "linear probes"}
TITLE = "What each layer knows: test error of a linear classifier on its output"


def draw_layers(groups: Mapping[str, Sequence[RunRecord]], wide: bool = False) -> Drawing | None:
    """Draw the test error of every layer, of linear probes and of companions: mean and standard deviation.

    groups: label -> runs that differ only in their seed.
    wide: as a separate picture with a title.
    """
    lines = {label: layer_lines(runs) for label, runs in groups.items()}
    lines = {label: each for label, each in lines.items() if any(len(errors) > 1 for errors in each.values())}
    if not lines:
        return None
    known = [layer for each in lines.values() for errors in each.values() for layer in errors]
    names = [*dict.fromkeys(layer for layer in known if layer != "output"), "output"]
    described = "; ".join(f"{label}: {describe_lines(each)}" for label, each in lines.items())
    size = (9.0, 3.5) if wide else (WIDTH, 2.7 + 0.2 * sum(map(len, lines.values())))
    drawing = Drawing("layer-insight", f"Test error of every layer, in percent. {described}.", size)
    with drawing as axes:
        for index, (label, style) in enumerate(line_styles({label: groups[label] for label in lines}).items()):
            shift = 0.07 * (index - (len(lines) - 1) / 2)  # so that error bars of two nets do not overlap
            for kind, errors in lines[label].items():
                draw_line(axes, [names.index(layer) + shift for layer in errors], errors, label, kind, style)
        crowded = sum(len(name) + 1 for name in names) > (110 if wide else 50)
        drawing.name_ticks(axes.xaxis, range(len(names)), names, turned=crowded)
        axes.set_ylim(bottom=0)
        tidy(axes, "layer, from the input to the output", "test error, %")
        if wide:
            axes.set_title(TITLE, fontsize=12, loc="left", fontweight="bold")
            axes.legend(fontsize=11)
        else:
            drawing.figure.legend(loc="outside upper center", fontsize=9)
    return drawing


def layer_lines(runs: Sequence[RunRecord]) -> dict[str, Errors]:
    """Return the lines of one group: errors of the probes and the output, and of the companions."""
    probed = [run for run in runs if run.insight.get("probes")]
    used = probed or [run for run in runs if run.insight.get("layers")]
    probes, companions = gather(used, "probes"), gather(used, "layers")
    output = {"output": companions.pop("output")} if "output" in companions else {}
    lines = {"probe": probes | output} if probes else {}
    return lines | ({"companion": companions if probes else companions | output} if companions else {})


def gather(runs: Sequence[RunRecord], key: str) -> Errors:
    """Return layer -> errors, one per run."""
    errors: Errors = {}
    for run in runs:
        for layer, each in run.insight.get(key, {}).items():
            error = number(each.get("error"))
            if error == error:
                errors.setdefault(layer, []).append(error)
    return errors


def draw_line(axes: Any, places: list[float], errors: Errors, label: str, kind: str, style: dict[str, Any]) -> None:
    """Draw one line over the layers, with error bars if there are several seeds."""
    values = list(errors.values())
    deviations = [stdev(each) if len(each) > 1 else 0.0 for each in values]
    own = {"linestyle": "-", "markersize": 6} if kind == "probe" else {"linestyle": ":", "marker": "D", "markersize": 4}
    net = "trained with companions" if style["markerfacecolor"] == style["color"] else "plain net"
    text = f"{label}: {net}" if kind == "probe" else f"{label}: its companions"
    axes.errorbar(
        places, [mean(each) for each in values], yerr=deviations if any(deviations) else None, capsize=4,
        label=text, **{**style, **own},
    )  # fmt: skip


def line_styles(groups: Mapping[str, Sequence[RunRecord]]) -> dict[str, dict[str, Any]]:
    """Return the style of each group: that of its method, or its own colour if methods repeat."""
    firsts = {label: runs[0] for label, runs in groups.items()}
    if len({run.supervised for run in firsts.values()}) == len(firsts):
        return {label: mark(run.method) for label, run in firsts.items()}
    return {label: look(index, run.supervised) for index, (label, run) in enumerate(firsts.items())}


def describe_lines(lines: Mapping[str, Errors]) -> str:
    """Return the mean error of every layer as text."""
    return ", ".join(
        f"{layer} {mean(each):.2f}{f' ({kind})' if layer != 'output' else ''}"
        for kind, errors in lines.items()
        for layer, each in errors.items()
    )


def probed_pairs(comparison: Comparison) -> dict[str, dict[str, list[RunRecord]]]:
    """Return, by loss, the CNN and DSN runs if both have probes; the loss with the most seeds first."""
    pairs = {}
    for loss in ("Softmax", "SVM"):
        pair = {
            method: [run for run in comparison.runs.get(method, []) if run.insight.get("probes")]
            for method in (f"CNN-{loss}", f"DSN-{loss}")
        }
        if all(pair.values()):
            pairs[loss] = pair
    return dict(sorted(pairs.items(), key=lambda each: -min(map(len, each[1].values()))))


def draw_agreement(runs: Sequence[RunRecord]) -> Drawing | None:
    """Draw, for each run, from which layer on images are classified correctly.

    By companions if every run has them, otherwise by linear probes.
    """
    key = next((key for key in KINDS if runs and all(len(run.insight.get(key, {})) > 2 for run in runs)), None)
    if key is None:
        return None
    layers = list(dict.fromkeys(layer for run in runs for layer in run.insight[key]))
    alt = "; ".join(
        f"{run.name}: " + ", ".join(f"{layer} {n}" for layer, n in run.insight[key].items()) for run in runs
    )
    drawing = Drawing(
        "agreement",
        f"Images by the layer from which they are right, by {KINDS[key]}. {alt}.",
        (WIDTH, 1.3 + 0.45 * len(runs) + 0.2 * (len(layers) // 3)),
    )
    colours = layer_colours(layers)
    with drawing as axes:
        for place, run in enumerate(runs):
            draw_shares(axes, place, run.insight[key], colours)
        drawing.name_ticks(axes.yaxis, range(len(runs)), [run.label for run in runs] if runs[1:] else [""], limit=20)
        axes.invert_yaxis()
        tidy(axes, f"test images, %, by {KINDS[key]}", "")
        axes.grid(visible=False)
        drawing.figure.legend(loc="outside upper center", ncols=min(3, len(layers)), fontsize=9)
    return drawing


def draw_shares(axes: Any, place: int, counts: Mapping[str, int], colours: Mapping[str, str]) -> None:
    """Draw one stacked bar of 100 %."""
    whole, left = sum(counts.values()) or 1, 0.0
    for layer, colour in colours.items():
        share = 100 * counts.get(layer, 0) / whole
        label = "never right" if layer == "never" else f"from {shorten(layer, 14)} on"
        axes.barh(place, share, left=left, color=colour, label=label if place == 0 else None, height=0.6)
        if share > 6:
            ink = "white" if np.dot(mpl.colors.to_rgb(colour), (0.3, 0.6, 0.1)) < 0.5 else "black"
            axes.text(left + share / 2, place, f"{share:.0f}", ha="center", va="center", color=ink)
        left += share


def layer_colours(layers: Sequence[str]) -> dict[str, str]:
    """Return a colour for every layer, brighter for deeper layers; grey for images that are never right."""
    deep = [layer for layer in layers if layer != "never"]
    shades = mpl.colormaps["viridis"](np.linspace(0.15, 0.9, max(2, len(deep))))
    colours = {layer: mpl.colors.to_hex(shade) for layer, shade in zip(deep, shades, strict=False)}
    return colours | ({"never": "#9a9a9a"} if "never" in layers else {})
