"""The rows of a record -> what is read off them beyond their test errors; and what is measured on a run for that."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from math import exp, log
from statistics import mean, stdev
from typing import Any

import torch

from deepsup.insight import measure
from deepsup.paper.printed import GAIN_AT_500, VARIANCE_RATIO
from deepsup.paper.row_id import WITHOUT, RowId
from deepsup.paper.verdicts import at_chance, errors_of
from deepsup.paper.when_targets import FACTORS, combinations, companion_id
from deepsup.trainer.preprocess import to_tensor
from deepsup.trainer.runs import RunFolder, data_of, inspect, load_model

Rows = Mapping[RowId, Mapping[str, Any]]
"""Rows of a record by their ids."""
Measure = Callable[[RunFolder], dict[str, Any]]
"""A run that has ended -> what its row keeps of it under ``measured``: a record outlives its runs."""
FIRST = "conv1"
LEAST = 0.01
"""Percent: smaller errors count as this one in a ratio."""


def reading(
    name: RowId,
    label: str,
    values: Sequence[float],
    unit: str,
    *,
    paper: float | None = None,
    base: RowId | None = None,
) -> dict[str, Any]:
    """Return what was read off the runs of a row, one value per seed.

    base: the row that it is relative to; if that row did not learn, the reading says nothing.
    """
    return {
        "id": name.to_dict(),
        "row": label,
        "unit": unit,
        "paper": paper,
        "values": list(values),
        "mean": mean(values) if values else None,
        "deviation": stdev(values) if len(values) > 1 else None,
        **({} if base is None else {"base": base.to_dict()}),
    }


def measurements(row: Mapping[str, Any], what: str) -> list[Any]:
    """Return what was measured on the runs of a row that ended, seed by seed."""
    return [each[what] for each in row["measured"] if what in each]


def gains(rows: Rows) -> dict[str, Any]:
    """Fig. 2b's number: by how many percent DSN-SVM's mean error is below CNN-Softmax's, at every number of digits.

    A training that diverged has the error of guessing.
    """
    read = []
    for name, row in rows.items():
        base = replace(name, method="CNN-Softmax", loss="")
        if name.method != "DSN-SVM" or base not in rows:
            continue
        own, theirs = (mean(errors_of(each)) for each in (row, rows[base]))
        label = f"gain, {row['row'].removeprefix('DSN-SVM ')}"
        paper = GAIN_AT_500 if name.size == 500 else None
        read.append(reading(replace(name, reading="gain"), label, [100 * (1 - own / max(theirs, 1e-9))], "%",
                             paper=paper, base=base))  # fmt: skip
    return {"rows": read}


def test_errors(run: RunFolder) -> dict[str, Any]:
    """Measure a run for Fig. 2a: its test error after every epoch, and the minutes of training until then."""
    tested = [each for each in run.metrics if "test_error" in each]
    minutes = accumulate(each["seconds"] / 60 for each in tested)
    return {"test_errors": [each["test_error"] for each in tested], "minutes": list(minutes)}


def course(rows: Rows) -> dict[str, Any]:
    """Fig. 2a: the test error after every epoch, and when each net comes near the end of its CNN, seed by seed."""
    curves = {name.method: measurements(row, "test_errors") for name, row in rows.items()}
    lines = {}
    for method, runs in curves.items():
        by_epoch = list(zip(*runs, strict=False))
        lines[method] = {
            "x": list(range(1, len(by_epoch) + 1)),
            "y": [mean(each) for each in by_epoch],
            "deviation": [stdev(each) if len(each) > 1 else None for each in by_epoch],
        }
    read = []
    for method in curves:
        base = f"CNN-{method.partition('-')[2]}"
        ends = [curve[-1] for curve in curves.get(base, [])]
        epochs = [first_within(curve, 1.1 * end) for curve, end in zip(curves[method], ends, strict=False)]
        spent = [
            spent[epoch - 1] for spent, epoch in zip(measurements(rows[RowId(method)], "minutes"), epochs, strict=False)
        ]
        for unit, values in (("epochs", epochs), ("minutes", spent)):
            label = f"{method}, {unit} to within 10 % of the CNN's last error"
            read += [reading(RowId(method, reading=unit), label, values, unit)] if values else []
    return {"rows": read, "figure": {"kind": "lines", "x": "epoch", "y": "test error, %", "lines": lines}}


def first_within(curve: Sequence[float], bound: float) -> int:
    """Return the first epoch, from 1, whose error is within a bound; the last epoch if none is."""
    return next((epoch for epoch, error in enumerate(curve, 1) if error <= bound), len(curve))


def generalisation(rows: Rows) -> dict[str, Any]:
    """Fig. 2c: the error on the training images at the end, dropout off, beside the test error."""
    read, bars = [], {}
    for name, row in rows.items():
        if trained := measurements(row, "training_error"):
            read.append(
                reading(replace(name, reading="training error"), f"{name.method}, training error", trained,
                        "% error on the training images")
            )  # fmt: skip
            bars[name.method] = {"training": mean(trained), "test": mean(errors_of(row))}
    return {"rows": read, "figure": {"kind": "bars", "y": "error, %", "bars": bars}}


def training_error(run: RunFolder) -> dict[str, Any]:
    """Measure a run for Fig. 2c: its error on the images it was trained on, in percent."""
    model = load_model(run)
    part = data_of(run, model.config).train
    answer = measure(model.net, to_tensor(part.images), torch.from_numpy(part.labels), model.normalize)
    return {"training_error": answer.error}


def variances(rows: Rows) -> dict[str, Any]:
    """The variance of each layer's gradient, mean over steps: DSN over CNN, seed by seed; the claim is on the first."""
    cnn = next((name for name in rows if name.method.startswith("CNN")), None)
    if cnn is None:
        return {}
    read: list[dict[str, Any]] = []
    bars: dict[str, dict[str, float]] = {}
    for dsn in [name for name in rows if name.method.startswith("DSN")]:
        pairs = [
            (ours["variances"], theirs["variances"])
            for ours, theirs in zip(rows[dsn]["measured"], rows[cnn]["measured"], strict=False)
            if "variances" in ours and "variances" in theirs  # of seeds with which neither diverged
        ]
        words = f", alpha {dsn.alpha:g}" if dsn.alpha is not None else ""
        for layer in pairs[0][0] if pairs else ():
            ratios = [ours[layer] / theirs[layer] for ours, theirs in pairs]
            paper = VARIANCE_RATIO if layer == FIRST else None
            label = f"variance of {layer}'s gradient, DSN over CNN{words}"
            read.append(reading(replace(dsn, reading="variance", layer=layer), label, ratios, "times", paper=paper,
                                base=cnn))  # fmt: skip
            bars.setdefault(layer, {})[f"DSN over CNN{words}"] = mean(ratios)
    if not bars or at_chance(rows[cnn]["mean"], rows[cnn]["guessing"]):
        return {"rows": read}  # ratios to a net that did not learn are not drawn
    figure = {"kind": "bars", "y": "variance of the gradient, DSN over CNN", "bars": bars, "level": 1.0}
    return {"rows": read, "figure": figure}


def gradient_variances(run: RunFolder) -> dict[str, Any]:
    """Measure a run: the mean over epochs of the variance of each layer's gradient."""
    records = [record["gradient_variances"] for record in run.metrics]
    return {"variances": {layer: mean(record[layer] for record in records) for layer in records[0]}}


def probe_first_layer(run: RunFolder) -> dict[str, Any]:
    """Measure a run for Fig. 3: what a linear probe reads in the first convolution, and where its feature maps are."""
    insight = run.insight if "probes" in run.insight else inspect(run)
    return {"probe": insight["probes"][FIRST]["error"], "run": "/".join(run.folder.parts[-2:])}


def maps(rows: Rows) -> dict[str, Any]:
    """Fig. 3: linear probes on the first convolution, and the first seed of each net to draw."""
    read, folders = [], []
    for name, row in rows.items():
        if probes := measurements(row, "probe"):
            words = f"{name.method}, alpha {name.alpha:g}" if name.alpha is not None else name.method
            label = f"{words}, linear probe on {FIRST}"
            read.append(reading(replace(name, reading="probe", layer=FIRST), label, probes, "% test error"))
            folders.append(measurements(row, "run")[0])
    return {"rows": read, "figure": {"kind": "maps", "runs": folders}}


def spread(rows: Rows) -> dict[str, Any]:
    """Robustness in two numbers per method: how far the error is above the method's own best, over the grid of rates.

    The geometric mean of error over best error, and how many rates are within twice the best. A training that diverged
    has the error of guessing.
    """
    by_line: dict[RowId, list[float]] = {}
    for name, row in rows.items():
        by_line.setdefault(replace(name, lr=None), []).append(mean(errors_of(row)))
    read = []
    for line, values in by_line.items():
        words, best = f"{line.method} ({line.loss})" if line.loss else line.method, max(min(values), LEAST)
        above = exp(mean(log(max(value, LEAST) / best) for value in values))
        label = f"{words}, error over its own best, mean over the rates"
        read.append(reading(replace(line, reading="above best"), label, [above], "times"))
        within = sum(value <= 2 * best for value in values)
        read.append(reading(replace(line, reading="good rates"), f"{words}, rates within twice its own best error",
                            [within], f"of {len(values)}"))  # fmt: skip
    return {"rows": read}


def effects(rows: Rows) -> dict[str, Any]:
    """Read what the paper's side of each choice does: its error minus the other's, seed by seed, mean over the rest.

    A seed that diverged with one of the combinations is left out.
    """
    errors = {name: rows[companion_id(name)]["values"] for name in combinations() if companion_id(name) in rows}
    if not errors.keys() >= combinations().keys():
        return {}
    complete = [place for place, seed in enumerate(zip(*errors.values(), strict=True)) if None not in seed]
    read = []
    for place, (factor, (ours, theirs)) in enumerate(FACTORS.items()):
        sides = [[errors[name] for name in errors if name != WITHOUT and name.split(", ")[place] == side]
                 for side in (theirs, ours)]  # fmt: skip
        values = [mean(each[seed] for each in sides[0]) - mean(each[seed] for each in sides[1]) for seed in complete]
        label = f"{theirs} instead of {ours}, over all other choices"
        read.append(reading(RowId(factor, reading="effect"), label, values, "points of test error"))
    return {"rows": read}
