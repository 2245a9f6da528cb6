"""Check labels and weights of every position. Values are checked on the CPU only, shapes and types everywhere.

B batch, K classes, P positions: [L], [H,W] or [D,H,W].
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from deepsup.errors import ObjectiveError
from deepsup.objective._checks import values_known


def check_dense_labels(labels: Tensor, scores: Tensor, named: Sequence[str], ignore_index: int | None) -> None:
    """Raise an error for labels that the losses cannot use; ``named`` are the built-in losses."""
    if not isinstance(labels, Tensor):
        raise ObjectiveError(
            f"labels are {type(labels).__name__}; expected a tensor; convert with torch.tensor(labels)"
        )
    if labels.ndim not in (scores.ndim - 1, scores.ndim) or len(labels) != len(scores):
        raise ObjectiveError(
            f"labels have shape {list(labels.shape)}, scores {list(scores.shape)}; expected one label per position: "
            f"{wanted(scores)}; {remedy_for_positions(labels, scores)}"
        )
    if labels.numel() == 0:
        raise ObjectiveError("the batch is empty; expected at least one sample; skip empty batches")
    maps = labels.ndim == scores.ndim and (labels.shape[1] != 1 or labels.is_floating_point())
    if ignore_index is not None and (maps or labels.is_floating_point()):
        raise ObjectiveError(
            f"ignore_index={ignore_index} with labels of {labels.dtype} {list(labels.shape)}; expected whole class "
            f"numbers {wanted(scores)}; give other labels weights= of 0 instead"
        )
    if named and maps:
        check_maps(labels, scores)
    elif named:
        check_numbers(labels, scores, ignore_index)


def check_numbers(labels: Tensor, scores: Tensor, ignore_index: int | None) -> None:
    """Raise an error for labels that are not whole numbers in 0 to K-1; ignored labels may have any value."""
    if labels.is_floating_point() or labels.is_complex():
        raise ObjectiveError(
            f"labels are {labels.dtype} {list(labels.shape)}; expected whole class numbers {wanted(scores)}; convert "
            f"with .long(), or give class probabilities {[*scores.shape[:2], *labels.shape[1:]]}"
        )
    if not values_known(labels) or labels.dtype == torch.bool:
        return
    low, high = (int(each) for each in torch.aminmax(labels))
    top = max(1, scores.shape[1] - 1)
    if ignore_index is not None and not 0 <= low <= high <= top:
        kept = labels[labels != ignore_index]
        low, high = (int(each) for each in torch.aminmax(kept)) if kept.numel() else (0, 0)
    if not 0 <= low <= high <= top:
        raise ObjectiveError(
            f"labels run from {low} to {high}; expected 0 to {top} for {scores.shape[1]} classes; number the classes "
            f"from 0, pass their number as num_classes, or name the label to leave out, ignore_index="
        )


def check_maps(labels: Tensor, scores: Tensor) -> None:
    """Raise an error for maps [B,C,P] that are not class probabilities."""
    if labels.shape[1] != scores.shape[1]:
        raise ObjectiveError(
            f"labels have shape {list(labels.shape)}, scores {list(scores.shape)}; expected {scores.shape[1]} class "
            f"probabilities per position, or class numbers {wanted(scores)}"
        )
    if not values_known(labels):
        return
    exact = labels.float()
    sums = exact.sum(1) if labels.shape[1] > 1 else torch.ones(1)
    if not (exact.min() >= 0 and exact.max() <= 1 and ((sums - 1).abs() < 0.01).all()):
        raise ObjectiveError(
            f"labels run from {float(exact.min()):g} to {float(exact.max()):g} and sum to {float(sums.min()):g} up to "
            f"{float(sums.max()):g} over the classes; expected class probabilities; for several classes per position "
            f"give a loss of your own, e.g. torch.nn.functional.binary_cross_entropy_with_logits"
        )


def check_sizes(labels: Tensor, outputs: dict[str, Tensor], full_size: bool) -> None:
    """Raise an error for labels of another size than the image, and for scores that are finer than the labels.

    outputs: name -> scores [B,K,P], the model's own first. full_size: whether the model's scores have the image's size.
    """
    for name, scores in outputs.items():
        size, whole = list(scores.shape[2:]), list(labels.shape[labels.ndim - scores.ndim + 2 :])
        if name == "output" and full_size and size != whole:
            raise ObjectiveError(
                f"labels have size {shown(whole)}, the model's scores {shown(size)}, as its images; expected one label "
                f"per pixel; resize the labels (nearest) or the images"
            )
        if any(cells > pixels for cells, pixels in zip(size, whole, strict=True)):
            raise ObjectiveError(
                f"the scores of {name!r} are {shown(size)}, finer than the labels, {shown(whole)}; expected labels at "
                f"least as fine; tap a coarser layer, or give the labels in full size"
            )


def check_dense_weights(weights: Any, labels: Tensor, scores: Tensor) -> None:
    """Raise an error for weights that are not numbers of at least 0, [B] or [B,P], with a positive sum."""
    positions = labels.shape[labels.ndim - scores.ndim + 2 :]
    shapes = (scores.shape[:1], (len(scores), *positions))
    if not isinstance(weights, Tensor) or tuple(weights.shape) not in [tuple(shape) for shape in shapes]:
        shape = list(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
        raise ObjectiveError(
            f"weights are {shape}; expected one number per sample, [{len(scores)}], or per position, {list(shapes[1])}"
        )
    if values_known(weights) and not (weights.isfinite().all() and weights.min() >= 0 and weights.sum() > 0):
        raise ObjectiveError(
            f"weights run from {float(weights.min())} to {float(weights.max())}; expected numbers of at least 0, not "
            f"all 0"
        )


def as_class_weights(given: Any, num_classes: int) -> Tensor | None:
    """Return the weights of the classes [K]; raise an error for anything else."""
    if given is None:
        return None
    try:
        weights = torch.as_tensor(given).detach().cpu().double()
    except (TypeError, ValueError, RuntimeError):
        weights = torch.empty(0)
    fits = num_classes > 1 and weights.shape == (num_classes,)
    if not fits or not (weights.isfinite().all() and weights.min() >= 0 and weights.sum() > 0):
        raise ObjectiveError(
            f"class_weights={given!r} for {num_classes} classes; expected one number of at least 0 per class, not all "
            f"0, and at least two classes"
        )
    return weights


def wanted(scores: Tensor) -> list[int]:
    """Return the shape of class numbers for scores."""
    return [len(scores), *scores.shape[2:]]


def shown(size: Sequence[int]) -> str:
    """Return a size in words.

    >>> shown([32, 48])
    '32x48'
    """
    return "x".join(map(str, size))


def remedy_for_positions(labels: Tensor, scores: Tensor) -> str:
    """Return what to do about labels with too few or too many dimensions."""
    if labels.ndim in (scores.ndim - 1, scores.ndim):
        return f"the batch has {len(scores)} samples, the labels {len(labels)}"
    if labels.ndim == 1:
        return "the model scores every position: give it a mask per image, or pool its output"
    return f"{labels.ndim - 1}-D labels do not fit {scores.ndim - 2}-D scores" if labels.ndim else "give a tensor"
