"""What the probes of a model's layers found: numbers, a table to print, a page to read.

N samples, K classes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from deepsup.errors import extras_named
from deepsup.insight._layer_errors import agreement, layer_facts, layer_insight
from deepsup.insight._measure import Measurement, error_percent
from deepsup.insight._probes import Probe


@dataclass(frozen=True, eq=False)
class ProbeResult:
    """What each probed layer knows. ``print(result)`` shows a table, ``result.report("folder")`` writes a page.

    Errors are in percent of the test samples, on which no probe was fitted.
    """

    model: str
    """The class of the model."""
    layers: tuple[str, ...]
    """The probed layers, from the input to the output."""
    label: dict[str, dict[str, Any]]
    """Layer -> ``error``, ``train_error``, ``confusion``, ``confidence`` of the probe that predicts the label."""
    output: dict[str, dict[str, Any]]
    """Layer -> ``kl``, ``train_kl`` (nats), ``disagreement``, ``error`` (percent) of the probe that predicts the
    output."""
    probes: dict[str, dict[str, Probe]]
    """Target (``label``, ``output``) -> layer -> the fitted probe."""
    classes: tuple[str, ...]
    measured: Measurement
    """The scores [N,K] of the model itself on the test samples, and their labels."""
    scores: dict[str, dict[str, Tensor]]
    """Target -> layer -> the scores [N,K] of the probe on the test samples."""
    fitted_on: int
    """The number of samples that the probes were fitted on."""
    fit_error: float
    """The error of the model on these samples."""
    images: Tensor | None = None
    """The test images [N,C,H,W], where the samples are images."""

    @property
    def errors(self) -> dict[str, float]:
        """Layer -> test error of its label probe, in percent; and that of the model, as ``output``."""
        return {**{name: each["error"] for name, each in self.label.items()}, "output": self.measured.error}

    @property
    def divergences(self) -> dict[str, float]:
        """Layer -> KL divergence from the model's own probabilities to those of its output probe, in nats."""
        return {name: each["kl"] for name, each in self.output.items()}

    def __str__(self) -> str:
        head = ["layer"]
        head += ["error, test", "error, fit"] if self.label else []
        head += ["KL to the output, test", "KL, fit", "other label than the output"] if self.output else []
        rows = [head, *([name, *self._cells(name)] for name in self.layers)]
        own = [f"{self.measured.error:.1f} %", f"{self.fit_error:.1f} %"] if self.label else []
        rows.append(["output", *own, *(["0.000", "0.000", "0.0 %"] if self.output else [])])
        widths = [max(len(row[place]) for row in rows) for place in range(len(head))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        tested = len(self.measured.labels)
        return "\n".join([*lines, f"fitted on {self.fitted_on:,} samples, tested on {tested:,} others"])

    def _cells(self, name: str) -> list[str]:
        label, output = self.label.get(name), self.output.get(name)
        cells = [f"{label['error']:.1f} %", f"{label['train_error']:.1f} %"] if label else []
        if output:
            cells += [f"{output['kl']:.3f}", f"{output['train_kl']:.3f}", f"{output['disagreement']:.1f} %"]
        return cells

    def record(self) -> dict[str, Any]:
        """Return everything but tensors, in plain types."""
        record = layer_insight(self.measured, self.classes)
        if self.label:
            record["probes"] = self.label
            record["probe_agreement"] = agreement(
                {**self.scores["label"], "output": self.measured.scores}, self.measured.labels
            )
        record |= {"model": self.model, "output_probes": self.output}
        return record | {"train_images": self.fitted_on, "train_error": self.fit_error}

    def report(self, folder: str | os.PathLike[str]) -> Path:
        """Write ``report.html``, ``plots/`` and the numbers, ``probe.json``, into a folder; return the page's path."""
        with extras_named("the report"):
            from deepsup.trainer.report import write_probe_page
        record = self.record()
        arrays = {}
        if self.images is not None:
            wrong = self.images[[each["index"] for each in record["mistakes"]]]
            arrays["mistakes"] = np.stack([as_pixels(image) for image in wrong]) if len(wrong) else np.empty(0)
        return write_probe_page(record, arrays, Path(folder))


def as_pixels(image: Tensor) -> np.ndarray:
    """Return an image [C,H,W] of any range as uint8, from its lowest value to its highest."""
    low, high = float(image.min()), float(image.max())
    pixels: np.ndarray = (255 * (image.float() - low) / ((high - low) or 1.0)).byte().cpu().numpy()
    return pixels


def label_facts(
    trained: Mapping[str, Tensor], train_labels: Tensor, tested: Mapping[str, Tensor], labels: Tensor
) -> dict[str, dict[str, Any]]:
    """Return layer -> the facts of its label probe. Scores [N,K], labels [N]."""
    return {
        name: layer_facts(scores, labels) | {"train_error": error_percent(trained[name], train_labels)}
        for name, scores in tested.items()
    }


def output_facts(
    trained: Mapping[str, Tensor], train_outputs: Tensor, tested: Mapping[str, Tensor], outputs: Tensor, labels: Tensor
) -> dict[str, dict[str, Any]]:
    """Return layer -> the facts of its output probe. Scores and outputs [N,K], labels [N]."""
    return {
        name: {
            "kl": kl_divergence(outputs, scores),
            "train_kl": kl_divergence(train_outputs, trained[name]),
            "disagreement": error_percent(scores, outputs.argmax(1)),
            "error": error_percent(scores, labels),
        }
        for name, scores in tested.items()
    }


def kl_divergence(outputs: Tensor, scores: Tensor) -> float:
    """Return the mean over samples of KL(softmax(outputs) || softmax(scores)), in nats. Both [N,K]."""
    p, q = outputs.double().log_softmax(1), scores.double().log_softmax(1)
    return float((p.exp() * (p - q)).sum(1).mean())
