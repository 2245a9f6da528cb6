"""The predictions and errors of a dense net's output and of its companions on images with masks.

N images, K classes, H W image.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepsup.supervision import DeepOutput

THRESHOLDS = 19  # of the probability of an edge: 0.05 to 0.95
IGNORED = 255


@dataclass(frozen=True, eq=False)
class DenseMeasurement:
    """What a net predicts for N images; errors are 100 - mean IoU, in percent."""

    predictions: dict[str, Tensor]
    """``output`` and each tap -> class of every pixel [N,H,W] uint8, upsampled to the image's size."""
    chances: dict[str, Tensor]
    """With two classes: the same names -> probability of class 1 in 255 steps [N,H,W] uint8; otherwise empty."""
    labels: Tensor
    """Masks [N,H,W] uint8; 255 is ignored."""
    classes: int
    not_finite: tuple[str, ...] = ()
    """Those of the names whose scores are not all finite: what is predicted there means nothing."""

    @property
    def error(self) -> float:
        """The error of the output."""
        return error_of(self.scored["output"])

    @property
    def companion_errors(self) -> dict[str, float]:
        return {name: error_of(each) for name, each in self.scored.items() if name != "output"}

    @cached_property
    def scored(self) -> dict[str, dict[str, Any]]:
        """The metrics of the output and of each companion."""
        metrics = {
            name: overlap(prediction, self.labels, self.classes) for name, prediction in self.predictions.items()
        }
        for name, chances in self.chances.items():
            metrics[name]["boundary_f"] = boundary_f(chances, self.labels)
        return metrics


def error_of(metrics: dict[str, Any]) -> float:
    """Return 100 - mean IoU."""
    return 100 - float(metrics["miou"])


def measure_dense(
    net: nn.Module,
    images: Tensor,
    labels: Tensor,
    normalize: Callable[[Tensor], Tensor] | None = None,
    batch_size: int = 50,
    forward: Callable[[Tensor], DeepOutput] | None = None,
) -> DenseMeasurement:
    """Return what a supervised dense net predicts for images [N,C,H,W], in evaluation mode; restore its mode.

    ``forward`` computes the net's output; ``None``: the net itself.
    """
    device, training = next(net.parameters()).device, net.training
    answer = net if forward is None else forward
    net.eval()
    predictions: dict[str, list[Tensor]] = {}
    chances: dict[str, list[Tensor]] = {}
    classes, not_finite = 0, dict[str, None]()
    try:
        with torch.no_grad():
            for start in range(0, len(images), batch_size):
                batch = images[start : start + batch_size]
                out = answer((batch if normalize is None else normalize(batch)).to(device))
                classes = out.scores.shape[1]
                for name, scores in {**out.companions, "output": out.scores}.items():
                    not_finite |= {} if scores.isfinite().all() else {name: None}
                    whole = F.interpolate(scores.float(), size=images.shape[2:], mode="bilinear").cpu()
                    predictions.setdefault(name, []).append(whole.argmax(1).to(torch.uint8))
                    if classes == 2:
                        chances.setdefault(name, []).append((whole.softmax(1)[:, 1] * 255).round().to(torch.uint8))
    finally:
        net.train(training)
    joined = [{name: torch.cat(each) for name, each in parts.items()} for parts in (predictions, chances)]
    return DenseMeasurement(joined[0], joined[1], labels.cpu(), classes, tuple(not_finite))


def confusion(predictions: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return how many pixels of each class (rows) were predicted as each class (columns), [K,K]."""
    counted = labels != IGNORED
    index = labels[counted].long() * classes + predictions[counted].long()
    return torch.bincount(index, minlength=classes**2).reshape(classes, classes)


def overlap(predictions: Tensor, labels: Tensor, classes: int) -> dict[str, Any]:
    """Return mean IoU, mean Dice, both per class, and the share of wrong pixels, in percent.

    A class that neither the masks nor the predictions have is left out of the means (None).
    """
    table = confusion(predictions, labels, classes).double()
    right, either = table.diag(), table.sum(0) + table.sum(1)
    iou, dice = right / (either - right), 2 * right / either
    present = either > 0
    return {
        "miou": 100 * float(iou[present].mean()),
        "dice": 100 * float(dice[present].mean()),
        "pixel_error": 100 * (1 - float(right.sum() / table.sum())),
        "iou_per_class": [100 * float(each) if here else None for each, here in zip(iou, present, strict=True)],
        "dice_per_class": [100 * float(each) if here else None for each, here in zip(dice, present, strict=True)],
    }


def boundary_f(chances: Tensor, labels: Tensor) -> dict[str, float]:
    """Return the F score of edges at the threshold that is best for all images together (ODS), in percent.

    A predicted edge pixel is right if a true one lies within the tolerance, and the other way round (BSDS's 0.0075 of
    the diagonal, at least one pixel; each pixel may match several). Edges are not thinned.
    """
    tolerance = max(1, round(0.0075 * (chances.shape[1] ** 2 + chances.shape[2] ** 2) ** 0.5))
    truth = labels == 1
    near_truth = grown(truth, tolerance)
    best = {"f": 0.0, "threshold": 0.5, "precision": 0.0, "recall": 0.0}
    for step in range(1, THRESHOLDS + 1):
        threshold = step / (THRESHOLDS + 1)
        edge = chances.float() / 255 >= threshold
        precision = float((edge & near_truth).sum() / edge.sum().clamp(min=1))
        recall = float((truth & grown(edge, tolerance)).sum() / truth.sum().clamp(min=1))
        f = 2 * precision * recall / max(precision + recall, 1e-12)
        if 100 * f > best["f"]:
            best = {"f": 100 * f, "threshold": threshold, "precision": 100 * precision, "recall": 100 * recall}
    return best


def grown(edges: Tensor, by: int) -> Tensor:
    """Return the pixels within a distance of an edge, in a square neighbourhood."""
    return F.max_pool2d(edges[:, None].float(), 2 * by + 1, stride=1, padding=by)[:, 0] > 0
