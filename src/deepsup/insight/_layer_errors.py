"""Errors, confusion matrices and confidence of every layer, and the first layer that classifies an image correctly.

N images, K classes, L layers.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from deepsup.insight._measure import Measurement, error_percent

MISTAKES = 24


def confusion(scores: Tensor, labels: Tensor) -> Tensor:
    """Return [K,K]: counts of images by class (rows) and predicted label (columns). Scores [N,K], labels [N]."""
    classes = scores.shape[1]
    return torch.bincount(labels * classes + scores.argmax(1), minlength=classes**2).reshape(classes, classes)


def confidence(scores: Tensor) -> Tensor:
    """Return [N]: the softmax of the highest score of each image."""
    return scores.double().softmax(1).amax(1)


def layer_facts(scores: Tensor, labels: Tensor) -> dict[str, Any]:
    """Return the error (percent), the confusion matrix and the mean confidences of one layer."""
    sure, right = confidence(scores), scores.argmax(1) == labels
    return {
        "error": error_percent(scores, labels),
        "confusion": confusion(scores, labels).tolist(),
        "confidence": mean_or_none(sure),
        "confidence_right": mean_or_none(sure[right]),
        "confidence_wrong": mean_or_none(sure[~right]),
    }


def layers_facts(measured: Measurement) -> dict[str, dict[str, Any]]:
    """Return the facts of every companion and of the output."""
    layers = {**measured.companions, "output": measured.scores}
    return {name: layer_facts(scores, measured.labels) for name, scores in layers.items()}


def mean_or_none(values: Tensor) -> float | None:
    """Return the mean, or None without values."""
    return float(values.mean()) if len(values) else None


def settled_layer(layers: Sequence[Tensor], labels: Tensor) -> Tensor:
    """Return [N]: the first layer from which all layers are right; L if the last one is wrong.

    layers: L predictions [N], from the first layer to the output.
    """
    right = torch.stack([predicted == labels for predicted in layers])  # [L,N]
    from_here_on = right.flip(0).long().cumprod(0).sum(0)  # [N], number of consecutive right layers at the end
    return len(layers) - from_here_on


def agreement(scores: Mapping[str, Tensor], labels: Tensor) -> dict[str, int]:
    """Return layer -> number of images that are right from it on; ``never`` counts those with a wrong output."""
    first = settled_layer([each.argmax(1) for each in scores.values()], labels)
    counts = torch.bincount(first, minlength=len(scores) + 1).tolist()
    return dict(zip([*scores, "never"], counts, strict=True))


def surest_mistakes(measured: Measurement, classes: Sequence[str], most: int = MISTAKES) -> list[dict[str, Any]]:
    """Return the misclassified images with the highest confidence, with the prediction of every layer."""
    sure, labels_given = confidence(measured.scores), measured.scores.argmax(1)
    wrong = torch.nonzero(labels_given != measured.labels).flatten()
    wrong = wrong[sure[wrong].argsort(descending=True, stable=True)][:most]
    return [
        {
            "index": index,
            "label": classes[int(measured.labels[index])],
            "said": classes[int(labels_given[index])],
            "confidence": float(sure[index]),
            "layers": {tap: classes[int(scores[index].argmax())] for tap, scores in measured.companions.items()},
        }
        for index in wrong.tolist()
    ]


def layer_insight(measured: Measurement, classes: Sequence[str]) -> dict[str, Any]:
    """Return what every companion and the output know about N images, as plain types."""
    layers = {**measured.companions, "output": measured.scores}
    counts = torch.bincount(measured.labels, minlength=len(classes)).tolist()
    return {
        "classes": list(classes),
        "images": len(measured.labels),
        "absent": [name for name, count in zip(classes, counts, strict=True) if not count],
        "layers": layers_facts(measured),
        "agreement": agreement(layers, measured.labels),
        "mistakes": surest_mistakes(measured, classes),
    }
