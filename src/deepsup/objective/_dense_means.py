"""The mean of a loss over the positions of a batch.

B batch, K classes, p positions of the scores.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from deepsup.errors import ObjectiveError
from deepsup.objective._dense_targets import Aligned, DenseTargets
from deepsup.objective._losses import HINGES, LOSSES, LossFunction, expected
from deepsup.objective._regions import DenseLoss


def dense_mean(
    loss: LossFunction,
    scores: Tensor,
    targets: DenseTargets,
    class_weights: Tensor | None,
    check_scalar: Callable[[LossFunction, Tensor, Tensor, Tensor], None],
) -> Tensor:
    """Return the weighted mean of a loss of scores [B,K,p] over all positions; 0 if all are ignored.

    check_scalar: what is called for a loss of the user's own that returns one number.
    """
    aligned = targets.align(scores)
    if isinstance(loss, DenseLoss):
        weights = (
            torch.ones_like(aligned.scores[:, 0])
            if aligned.weights is None
            else aligned.weights.to(aligned.scores.dtype)
        )
        parts = [weighted_mean(region(aligned.scores, aligned.chances, weights, class_weights), targets.samples)
                 for region in loss.regions]  # fmt: skip
        parts += [position_mean(each, aligned, class_weights) for each in loss.positions]
        return torch.stack(parts).sum()
    if any(loss is each for each in LOSSES.values()):
        return position_mean(loss, aligned, class_weights)
    return own_mean(loss, aligned, targets, class_weights, check_scalar)


def position_mean(loss: LossFunction, aligned: Aligned, class_weights: Tensor | None) -> Tensor:
    """Return the mean of a named loss."""
    aligned = aligned if aligned.scores.shape[1] > 1 else two_classes(aligned)
    aligned = aligned if class_weights is None else aligned.weighed(class_weights.to(aligned.scores))
    if any(loss is hinge for hinge in HINGES) and not aligned.are_numbers:
        return weighted_mean(expected(loss, aligned.scores, aligned.chances), aligned.weights)
    return weighted_mean(loss(aligned.scores, aligned.labels), aligned.weights)


def two_classes(aligned: Aligned) -> Aligned:
    """Return the same with a score of 0 for class 0: the softmax of both is the sigmoid of the one score."""
    scores = torch.cat([torch.zeros_like(aligned.scores), aligned.scores], 1)
    labels = aligned.labels if aligned.are_numbers else torch.cat([1 - aligned.chances, aligned.chances], 1)
    return Aligned(scores, labels, aligned.weights)


def own_mean(
    loss: Any, aligned: Aligned, targets: DenseTargets, class_weights: Tensor | None, check_scalar: Any
) -> Tensor:
    """Return the mean of the user's own loss. It gets class probabilities, or labels in the form that was given."""
    aligned = aligned if class_weights is None else aligned.weighed(class_weights.to(aligned.scores))
    labels = aligned.labels
    if aligned.are_numbers and targets.how == "probability":
        labels = aligned.chances
    elif aligned.are_numbers and targets.channel:
        labels = aligned.labels[:, None]
    each = loss(aligned.scores, labels)
    if not isinstance(each, Tensor):
        raise ObjectiveError(f"the loss returns a {type(each).__name__}; expected a tensor")
    if each.ndim == 0 and aligned.weights is None:
        check_scalar(loss, aligned.scores, labels, each)
        return each
    positions = (len(aligned.scores), *aligned.scores.shape[2:])
    if each.shape == aligned.scores.shape:  # of binary losses: the mean over the classes
        each = each.mean(1)
    if each.shape == positions:
        return weighted_mean(each, aligned.weights)
    if each.shape == positions[:1] and aligned.weights is None:
        return weighted_mean(each, targets.samples)
    raise ObjectiveError(
        f"the loss returns shape {list(each.shape)} for scores {list(aligned.scores.shape)}; expected one loss per "
        f"position, {list(positions)} (without weights and ignored positions, also one per sample or the mean); use "
        f"reduction='none'"
    )


def weighted_mean(each: Tensor, weights: Tensor | None) -> Tensor:
    """Return the weighted mean; 0 if no weight is above 0."""
    if weights is None:
        return each.mean()
    weights = weights.to(each.dtype)
    total = weights.sum()
    return torch.where(weights > 0, weights * each, 0.0).sum() / torch.where(total > 0, total, 1.0)
