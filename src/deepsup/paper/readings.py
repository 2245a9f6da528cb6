"""The runs of a target -> what is read off them beyond their test errors: rows, and what a figure draws."""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

import torch

from deepsup.insight import measure
from deepsup.paper.printed import GAIN_AT_500, VARIANCE_RATIO
from deepsup.preprocess import to_tensor
from deepsup.runs.folder import RunFolder
from deepsup.runs.inspect import inspect
from deepsup.runs.model import load_model
from deepsup.runs.run_data import data_of
from deepsup.studies.study import Outcome

Outcomes = Mapping[str, Outcome]
FIRST = "conv1"


def read_row(name: str, values: Sequence[float], unit: str, paper: float | None = None, **more: Any) -> dict[str, Any]:
    """Return a row of what was read off runs, one value a seed."""
    return {
        "row": name,
        "unit": unit,
        "paper": paper,
        "values": list(values),
        "mean": mean(values) if values else None,
        "deviation": stdev(values) if len(values) > 1 else None,
        **more,
    }


def errors(outcome: Outcome) -> list[float]:
    """Return the test error of every seed; those that diverged are left out."""
    return [result["error"] for result in outcome.results if "error" in result]


def runs_of(outcome: Outcome) -> list[RunFolder]:
    """Return the run folders of the seeds that came to their end."""
    pairs = zip(outcome.jobs, outcome.results, strict=True)
    return [RunFolder(job.folder) for job, result in pairs if "error" in result]


def gain_at_500(outcomes: Outcomes) -> dict[str, Any]:
    """Fig. 2b's number: by how many percent DSN-SVM's mean error is below CNN-Softmax's, size by size and for NIN."""
    rows = []
    for name, ours in outcomes.items():
        if not name.startswith("DSN-SVM"):
            continue
        where = name.removeprefix("DSN-SVM, ")
        base, own = errors(outcomes[f"CNN-Softmax, {where}"]), errors(ours)
        if base and own:
            paper = GAIN_AT_500 if where == "500 digits" else None
            rows.append(read_row(f"gain, {where}", [100 * (1 - mean(own) / max(mean(base), 1e-9))], "%", paper))
    return {"rows": rows}


def course(outcomes: Outcomes) -> dict[str, Any]:
    """Fig. 2a: the test error after every epoch, and how soon a net with companions is as good as its twin ends."""
    lines, rows = {}, []
    for name, outcome in outcomes.items():
        curves = [
            [record["test_error"] for record in run.metrics if "test_error" in record] for run in runs_of(outcome)
        ]
        by_epoch = list(zip(*curves, strict=False))
        lines[name] = {
            "x": list(range(1, len(by_epoch) + 1)),
            "y": [mean(each) for each in by_epoch],
            "deviation": [stdev(each) if len(each) > 1 else None for each in by_epoch],
        }
    for loss in ("Softmax", "SVM"):
        dsn, cnn = lines[f"DSN-{loss}"]["y"], lines[f"CNN-{loss}"]["y"]
        if dsn and cnn:
            first = [
                next((i for i, y in enumerate(curve, 1) if y <= 1.1 * cnn[-1]), len(curve)) for curve in (dsn, cnn)
            ]
            rows += [
                read_row(f"{name}-{loss}, epochs to within 10 % of the CNN's last error", [epochs], "epochs")
                for name, epochs in zip(("DSN", "CNN"), first, strict=True)
            ]
    return {"rows": rows, "figure": {"kind": "lines", "x": "epoch", "y": "test error, %", "lines": lines}}


def generalisation(outcomes: Outcomes) -> dict[str, Any]:
    """Fig. 2c: the error on the training images at the end, dropout off, beside the test error."""
    rows, bars = [], {}
    for name, outcome in outcomes.items():
        trained = [training_error(run) for run in runs_of(outcome)]
        tested = errors(outcome)
        if trained:
            rows.append(read_row(f"{name}, training error", trained, "% error on the training images"))
            bars[name] = {"training": mean(trained), "test": mean(tested)}
    return {"rows": rows, "figure": {"kind": "bars", "y": "error, %", "bars": bars}}


def training_error(run: RunFolder) -> float:
    """Return the error of a finished run on the images it was trained on, in percent."""
    model = load_model(run)
    part = data_of(run, model.config).train
    return measure(model.net, to_tensor(part.images), torch.from_numpy(part.labels), model.normalize).error


def variances(outcomes: Outcomes) -> dict[str, Any]:
    """The variance of each layer's gradient, mean over steps: DSN over CNN, seed by seed; the claim is on the first."""
    found = {name: [variance_by_layer(run) for run in runs_of(outcome)] for name, outcome in outcomes.items()}
    pairs = list(zip(found["DSN-SVM"], found["CNN-SVM"], strict=False))
    rows, bars = [], {}
    for layer in pairs[0][0] if pairs else ():
        ratios = [dsn[layer] / cnn[layer] for dsn, cnn in pairs]
        paper = VARIANCE_RATIO if layer == FIRST else None
        rows.append(read_row(f"variance of {layer}'s gradient, DSN over CNN", ratios, "times", paper))
        bars[layer] = {"DSN over CNN": mean(ratios)}
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
            insight = runs[0].insight if "probes" in runs[0].insight else inspect(runs[0])
            probed = insight["probes"][FIRST]["error"]
            rows.append(read_row(f"{name}, linear probe on {FIRST}", [probed], "% test error"))
            folders.append("/".join(runs[0].folder.parts[-2:]))  # a record is read on other machines too
    return {"rows": rows, "figure": {"kind": "maps", "runs": folders}}


def spread(outcomes: Outcomes) -> dict[str, Any]:
    """Robustness in two numbers a method: the mean error over the grid, and how many rates stay within twice the best.

    A training that diverged has the error of guessing, 90 %.
    """
    by_method: dict[str, list[float]] = {}
    for name, outcome in outcomes.items():
        values = [result.get("error", 90.0) for result in outcome.results]
        by_method.setdefault(name.split(",")[0], []).append(mean(values))
    best = min(value for values in by_method.values() for value in values)
    rows = []
    for method, values in by_method.items():
        rows.append(read_row(f"{method}, mean over the rates", [mean(values)], "% test error"))
        within = sum(value <= 2 * best for value in values)
        rows.append(read_row(f"{method}, rates within twice the best error", [within], f"of {len(values)}"))
    return {"rows": rows}
