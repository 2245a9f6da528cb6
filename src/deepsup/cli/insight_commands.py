"""``deepsup inspect``, ``deepsup report``: what the layers of runs know, and an HTML page about it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from deepsup.cli.app import Flag, show, table, verb
from deepsup.cli.trusted import opened
from deepsup.errors import MissingPackageError, extras_named

_Runs = Annotated[tuple[Path, ...], Positional, arg(metavar="RUN ...")]
_Page = Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: report.html in the first folder)")]


@verb("report")
def report(runs: _Runs, out: _Page = None, json: Flag = False) -> None:
    """Write one self-contained HTML page about runs or comparisons, finished or not.

    Args:
        runs: folders that deepsup train or deepsup compare made; two runs are also shown side by side
        out: file of the page
        json: print one JSON object
    """
    page = _figures().write_report(runs, out)
    show({"report": str(page), "runs": [str(run) for run in runs]}, f"report: {page}", json)


@verb("inspect")
def inspect(
    runs: _Runs,
    layer: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: the first convolution)")] = None,
    image: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: none)")] = None,
    out: _Page = None,
    trust: Flag = False,
    json: Flag = False,
) -> None:
    """Show what every hidden layer knows: by its companion, by a linear probe, in its feature maps.

    Args:
        runs: folders of finished runs; two are shown side by side, e.g. one with companions and one without
        layer: layer whose feature maps are shown
        image: image file that each layer classifies, in place of the page
        out: file of the page
        trust: import the network that a run names (package.module:factory); only for runs of people you trust
        json: print one JSON object
    """
    from deepsup.trainer.runs import inspect as inspect_run

    figures = figures_if_there()  # before the work, not after it
    if image is not None:
        _inspect_image(runs, image, layer, trust, json)
        return
    results = {str(run): inspect_run(opened(run, trust), layer) for run in runs}
    page = str(figures.write_report(runs, out)) if figures else None
    text = "\n\n".join(f"{name}\n{_layers(each)}" for name, each in results.items())
    show({"runs": results, "report": page}, f"{text}\n\nreport: {page}" if page else text, json)


def _layers(insight: dict[str, Any]) -> str:
    """Return the table of a run's layers."""
    layers, probes, first = insight["layers"], insight["probes"], insight["agreement"]
    if len(layers) == 1:  # no companions: by the probes
        first = insight["probe_agreement"]
    rows = [
        [
            name,
            f"{layers[name]['error']:.2f} %" if name in layers else "",
            f"{probes[name]['error']:.2f} %" if name in probes else "",
            f"{first[name]:,}" if name in first else "",
        ]
        for name in dict.fromkeys([*probes, *layers])
    ]
    rows.append(["never", "", "", f"{first['never']:,}"])
    text = table(["layer", "test error", "of a linear probe", "images right from here on"], rows)
    return "\n\n".join([text, *understated(insight)])


def understated(insight: Mapping[str, Any]) -> list[str]:
    """Return a line where companions have far more errors than linear probes of their layers, by a run's insight."""
    layers, probes = insight.get("layers", {}), insight.get("probes", {})
    far = [
        f"{name} ({layers[name]['error']:.1f} % where a linear probe has {probes[name]['error']:.1f} %)"
        for name in probes
        if name in layers and layers[name]["error"] > max(1.3 * probes[name]["error"], probes[name]["error"] + 1)
    ]
    return [f"companions learn slowly and understate {', '.join(far)}: judge layers by the probe"] if far else []


def _inspect_image(runs: tuple[Path, ...], image: Path, layer: str | None, trust: bool, json: bool) -> None:
    """Return the prediction of each layer of each run for one image, and draw its feature maps."""
    from deepsup.trainer.runs import inspect_image

    figures = figures_if_there()
    answers, texts = {}, []
    for run in runs:
        insight, arrays = inspect_image(opened(run, trust), image, layer)
        picture = figures.draw_image(run, insight, arrays) if figures else None
        answers[str(run)] = {**insight, "figure": str(picture) if picture else None}
        rows = [
            [name, each["judged_by"], each["label"], f"{each['confidence']:.3f}"]
            for name, each in insight["layers"].items()
        ]
        drawn = f"\n\nmaps: {picture}" if picture else ""
        texts.append(f"{run}\n{table(['layer', 'judged by', 'says', 'confidence'], rows)}{drawn}")
    show({"runs": answers}, "\n\n".join(texts), json)


def _figures() -> Any:
    """Return what draws, or say what to install for it."""
    with extras_named("the report"):
        from deepsup.trainer import report
    return report


def figures_if_there() -> Any:
    """Return what draws; where it is not installed say so, and None: the table needs no picture."""
    try:
        return _figures()
    except MissingPackageError as error:
        sys.stderr.write(f"{error}\n")
        return None
