"""The page about the probes of a model that deepsup has not trained."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from deepsup.io import write_whole
from deepsup.trainer.report._html import PageTable, Section, write_page
from deepsup.trainer.report._layer_figures import draw_agreement
from deepsup.trainer.report._read import RunRecord
from deepsup.trainer.report._run_page import BY_LAYER, FIRST_RIGHT, mistakes, percent, plain
from deepsup.trainer.report._style import SUPERVISED, WIDTH, Drawing, tidy

LABEL = (
    "How well does each layer separate the classes? A linear probe measures that: a linear classifier fitted to the "
    "layer's output, while the model stays fixed."
)
OUTPUT = (
    "How much of the model's own answer is already there? A second probe of each layer predicts the output's "
    "probabilities. The KL divergence says how far it is from them: 0 is the same answer. The last column counts the "
    "images that it labels differently than the output does."
)


def write_probe_page(record: dict[str, Any], arrays: Mapping[str, np.ndarray], folder: Path) -> Path:
    """Write the page, its figures and the numbers of the probes; return the page's path."""
    run = RunRecord(
        name=record["model"], folder=folder, config={}, environment={}, metrics=[], result=None, insight=record,
        arrays=dict(arrays),
    )  # fmt: skip
    sections = [label_section(run), output_section(run), mistakes(run)]
    write_page(f"Linear probes of {record['model']}", [lead(record)], sections, folder / "report.html")
    write_whole(folder / "probe.json", (json.dumps(record, indent=2) + "\n").encode())
    return folder / "report.html"


def lead(record: dict[str, Any]) -> str:
    """Return what was measured, and the main result, in three sentences."""
    own = f"The model is wrong on {percent(record['layers']['output']['error'])} of {record['images']:,} test samples."
    fitted = f"Its layers were probed by linear classifiers fitted on {record['train_images']:,} other samples."
    probes = record.get("probes", {})
    if not probes:
        return f"{own} {fitted}"
    best = min(probes, key=lambda name: float(probes[name]["error"]))
    return f"{own} {fitted} The best single layer is {best}: its probe is wrong on {percent(probes[best]['error'])}."


def label_section(run: RunRecord) -> Section:
    """Return what the label probes found."""
    probes, output = run.insight.get("probes", {}), run.insight["layers"]["output"]
    if not probes:
        return Section("What each layer knows")
    train = {"output": run.insight["train_error"], **{name: each["train_error"] for name, each in probes.items()}}
    rows = [
        [name, percent(each["error"]), percent(train[name]), plain(each["confidence_right"]),
         plain(each["confidence_wrong"])]
        for name, each in {**probes, "output": output}.items()
    ]  # fmt: skip
    header = ["layer", "test error", "error on the samples of the fit", "confidence, right", "confidence, wrong"]
    section = Section("What each layer knows", LABEL, tables=[PageTable(header, rows)])
    errors = {name: each["error"] for name, each in {**probes, "output": output}.items()}
    section.show(draw_by_layer("layer-errors", "test error", "%", errors), BY_LAYER)
    section.show(draw_agreement([run]), FIRST_RIGHT)
    return section


def output_section(run: RunRecord) -> Section:
    """Return what the output probes found."""
    probes = run.insight.get("output_probes", {})
    if not probes:
        return Section("How far each layer is from the output")
    rows = [
        [name, plain(each["kl"]), plain(each["train_kl"]), percent(each["disagreement"])]
        for name, each in probes.items()
    ]
    header = ["layer", "KL divergence, test", "KL divergence, fit", "other label than the output"]
    section = Section("How far each layer is from the output", OUTPUT, tables=[PageTable(header, rows)])
    values = {**{name: each["kl"] for name, each in probes.items()}, "output": 0.0}
    section.show(
        draw_by_layer("divergence", "KL divergence", "nats", values),
        "KL divergence to the output's probabilities on test samples, in nats.",
    )
    return section


def draw_by_layer(name: str, what: str, unit: str, values: Mapping[str, float]) -> Drawing:
    """Draw one number per layer, from the input to the output."""
    numbers = ", ".join(f"{layer} {value:.3g}" for layer, value in values.items())
    drawing = Drawing(name, f"{what[0].upper()}{what[1:]} by layer, {unit}: {numbers}.", (WIDTH, 2.9))
    with drawing as axes:
        axes.plot(range(len(values)), list(values.values()), color=SUPERVISED, marker="o", linewidth=1.7)
        crowded = sum(len(layer) + 1 for layer in values) > 50
        drawing.name_ticks(axes.xaxis, range(len(values)), list(values), turned=crowded)
        axes.set_ylim(bottom=0)
        tidy(axes, "layer, from the input to the output", f"{what}, {unit}")
    return drawing
