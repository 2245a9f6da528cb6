"""The runs of a target -> what is read off them beyond their test errors: rows, and what a figure draws."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import mean, stdev
from typing import Any

import torch

from deepsup.insight import measure
from deepsup.paper.printed import GAIN_AT_500, VARIANCE_RATIO
from deepsup.paper.row_id import RowId
from deepsup.paper.verdicts import at_chance, guessing
from deepsup.preprocess import to_tensor
from deepsup.runs.folder import RunFolder
from deepsup.runs.inspect import inspect
from deepsup.runs.model import load_model
from deepsup.runs.run_data import data_of
from deepsup.studies.study import Outcome

Outcomes = Mapping[RowId, Outcome]
FIRST = "conv1"


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


def errors(outcome: Outcome) -> list[float]:
    """Return the test error of every seed; those that diverged are left out."""
    return [result["error"] for result in outcome.results if "error" in result]


def runs_of(outcome: Outcome) -> list[RunFolder]:
    """Return the run folders of the seeds that came to their end."""
    pairs = zip(outcome.jobs, outcome.results, strict=True)
    return [RunFolder(job.folder) for job, result in pairs if "error" in result]


def gains(outcomes: Outcomes) -> dict[str, Any]:
    """Fig. 2b's number: by how many percent DSN-SVM's mean error is below CNN-Softmax's, at every number of digits."""
    rows = []
    for name, outcome in outcomes.items():
        base = replace(name, method="CNN-Softmax", companions="")
        if name.method != "DSN-SVM" or base not in outcomes:
            continue
        own, theirs = errors(outcome), errors(outcomes[base])
        if own and theirs:
            paper = GAIN_AT_500 if name.size == 500 and not name.companions else None
            gain = 100 * (1 - mean(own) / max(mean(theirs), 1e-9))
            label = "gain, " + ("paper's companions, " if name.companions else "") + f"{name.size:,} digits"
            rows.append(reading(replace(name, reading="gain"), label, [gain], "%", paper=paper, base=base))
    return {"rows": rows}


def course(outcomes: Outcomes) -> dict[str, Any]:
    """Fig. 2a: the test error after every epoch, and when each net comes near the end of its CNN, seed by seed."""
    curves = {
        name.method: [[each["test_error"] for each in run.metrics if "test_error" in each] for run in runs_of(outcome)]
        for name, outcome in outcomes.items()
    }
    lines = {}
    for method, found in curves.items():
        by_epoch = list(zip(*found, strict=False))
        lines[method] = {
            "x": list(range(1, len(by_epoch) + 1)),
            "y": [mean(each) for each in by_epoch],
            "deviation": [stdev(each) if len(each) > 1 else None for each in by_epoch],
        }
    rows = []
    for loss in ("Softmax", "SVM"):
        ends = [curve[-1] for curve in curves[f"CNN-{loss}"]]
        for method in (f"DSN-{loss}", f"CNN-{loss}"):
            epochs = [first_within(curve, 1.1 * end) for curve, end in zip(curves[method], ends, strict=False)]
            label = f"{method}, epochs to within 10 % of the CNN's last error"
            if epochs:
                rows.append(reading(RowId(method, reading="epochs"), label, epochs, "epochs"))
    return {"rows": rows, "figure": {"kind": "lines", "x": "epoch", "y": "test error, %", "lines": lines}}


def first_within(curve: Sequence[float], bound: float) -> int:
    """Return the first epoch, from 1, whose error is within a bound; the last epoch if none is."""
    return next((epoch for epoch, error in enumerate(curve, 1) if error <= bound), len(curve))


def generalisation(outcomes: Outcomes) -> dict[str, Any]:
    """Fig. 2c: the error on the training images at the end, dropout off, beside the test error."""
    rows, bars = [], {}
    for name, outcome in outcomes.items():
        trained = [training_error(run) for run in runs_of(outcome)]
        if trained:
            rows.append(
                reading(replace(name, reading="training error"), f"{name.method}, training error", trained,
                        "% error on the training images")
            )  # fmt: skip
            bars[name.method] = {"training": mean(trained), "test": mean(errors(outcome))}
    return {"rows": rows, "figure": {"kind": "bars", "y": "error, %", "bars": bars}}


def training_error(run: RunFolder) -> float:
    """Return the error of a finished run on the images it was trained on, in percent."""
    model = load_model(run)
    part = data_of(run, model.config).train
    return measure(model.net, to_tensor(part.images), torch.from_numpy(part.labels), model.normalize).error


def variances(outcomes: Outcomes) -> dict[str, Any]:
    """The variance of each layer's gradient, mean over steps: DSN over CNN, seed by seed; the claim is on the first."""
    dsn, cnn = (next(name for name in outcomes if name.method.startswith(kind)) for kind in ("DSN", "CNN"))
    found = {name: [variance_by_layer(run) for run in runs_of(outcome)] for name, outcome in outcomes.items()}
    pairs = list(zip(found[dsn], found[cnn], strict=False))
    rows, bars = [], {}
    for layer in pairs[0][0] if pairs else ():
        ratios = [ours[layer] / theirs[layer] for ours, theirs in pairs]
        name = replace(dsn, reading="variance", layer=layer)
        paper = VARIANCE_RATIO if layer == FIRST else None
        label = f"variance of {layer}'s gradient, DSN over CNN"
        rows.append(reading(name, label, ratios, "times", paper=paper, base=cnn))
        bars[layer] = {"DSN over CNN": mean(ratios)}
    if not pairs or at_chance(mean(errors(outcomes[cnn])), guessing(outcomes[cnn].config)):
        return {"rows": rows}  # ratios to a net that did not learn are not drawn
    figure = {"kind": "bars", "y": "variance of the gradient, DSN over CNN", "bars": bars, "level": 1.0}
    return {"rows": rows, "figure": figure}


def variance_by_layer(run: RunFolder) -> dict[str, float]:
    """Return the mean over epochs of the variance of each layer's gradient."""
    records = [record["gradient_variances"] for record in run.metrics]
    return {layer: mean(record[layer] for record in records) for layer in records[0]}


def maps(outcomes: Outcomes) -> dict[str, Any]:
    """Fig. 3: the first seed of each net looked into; what a linear probe reads in the first convolution."""
    rows, folders = [], []
    for name, outcome in outcomes.items():
        runs = runs_of(outcome)
        if runs:
            found = runs[0].insight if "probes" in runs[0].insight else inspect(runs[0])
            probed = found["probes"][FIRST]["error"]
            label = f"{name.method}, linear probe on {FIRST}"
            rows.append(reading(replace(name, reading="probe", layer=FIRST), label, [probed], "% test error"))
            folders.append("/".join(runs[0].folder.parts[-2:]))  # a record is read on other machines too
    return {"rows": rows, "figure": {"kind": "maps", "runs": folders}}


def spread(outcomes: Outcomes) -> dict[str, Any]:
    """Robustness in two numbers per method: the mean error over the grid, and how many rates are within twice the best.

    A training that diverged has the error of guessing, 90 %.
    """
    by_method: dict[str, list[float]] = {}
    for name, outcome in outcomes.items():
        values = [result.get("error", 90.0) for result in outcome.results]
        by_method.setdefault(name.method, []).append(mean(values))
    best = min(value for values in by_method.values() for value in values)
    rows = []
    for method, values in by_method.items():
        rows.append(
            reading(RowId(method, reading="mean"), f"{method}, mean over the rates", [mean(values)], "% test error")
        )
        within = sum(value <= 2 * best for value in values)
        label = f"{method}, rates within twice the best error"
        rows.append(reading(RowId(method, reading="good rates"), label, [within], f"of {len(values)}"))
    return {"rows": rows}
