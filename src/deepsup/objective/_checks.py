"""Check the inputs of an objective: the net's output, the labels and the sample weights; and its settings.

Values are checked on the CPU only: elsewhere a check would synchronize the device at every step, and inside a compiled
step it would split the graph. Shapes and types are checked everywhere.
"""

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from deepsup.errors import ObjectiveError
from deepsup.objective._losses import LossFunction
from deepsup.supervision import DeepOutput


def check_output(output: DeepOutput) -> None:
    """Raise an error for anything but the output of a net, and for scores that are not finite."""
    if not isinstance(output, DeepOutput):
        raise ObjectiveError(
            f"output is a {type(output).__name__}; expected what the supervised net returns, net(images)"
        )
    check_scores("the output", output.scores)
    for name, scores in output.companions.items():
        check_scores(f"the companion at {name!r}", scores)


def check_scores(whose: str, scores: Tensor) -> None:
    """Raise an error for scores that are NaN or infinite."""
    if not values_known(scores) or scores.detach().sum().isfinite():  # the sum is far cheaper than a look at each
        return
    if not scores.isfinite().all():
        row = int((~scores.isfinite()).any(1).nonzero()[0, 0])
        raise ObjectiveError(
            f"the scores of {whose} are not finite (first at sample {row} of the batch); expected finite "
            f"numbers; training has diverged or the input has NaN: lower the learning rate or check the data"
        )


def check_labels(labels: Tensor, scores: Tensor, named: Sequence[str], ignore_index: int | None) -> None:
    """Raise an error for labels that the losses cannot use; ``named`` are the built-in losses.

    A custom callable gets any labels whose first dimension is the batch.
    """
    if not isinstance(labels, Tensor):
        raise ObjectiveError(
            f"labels are {type(labels).__name__}; expected a tensor; convert with torch.tensor(labels)"
        )
    if labels.ndim == 0 or len(labels) != len(scores):
        raise ObjectiveError(
            f"labels have shape {list(labels.shape)}, scores {list(scores.shape)}; expected one label per row: "
            f"[{len(scores)}]"
        )
    if len(labels) == 0:
        raise ObjectiveError("the batch is empty; expected at least one sample; skip empty batches")
    if ignore_index is not None and not are_class_numbers(labels):
        raise ObjectiveError(
            f"ignore_index={ignore_index} with labels of {labels.dtype} {list(labels.shape)}; expected whole class "
            f"numbers [{len(scores)}]; give other labels weights= of 0 instead"
        )
    if named and labels.is_floating_point() and labels.ndim == 2:
        check_soft_labels(labels, scores, named)
    elif named:
        check_class_numbers(labels, scores, ignore_index)


def are_class_numbers(labels: Tensor) -> bool:
    """Whether labels are integers, one per sample."""
    whole = not (labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool)
    return whole and labels.ndim == 1


def check_class_numbers(labels: Tensor, scores: Tensor, ignore_index: int | None) -> None:
    """Raise an error for labels that are not B integers in 0 to K-1; ignored labels may have any value."""
    if labels.ndim != 1:
        raise ObjectiveError(
            f"labels have shape {list(labels.shape)}, scores {list(scores.shape)}; expected one label per row: "
            f"[{len(scores)}]; for several labels per sample give a loss of your own, any callable"
        )
    if not are_class_numbers(labels):
        raise ObjectiveError(
            f"labels are {labels.dtype}; expected a tensor of whole class numbers; convert with .long(), or give a "
            f"loss of your own, any callable"
        )
    if not values_known(labels):
        return
    numbers = labels.long()
    if ignore_index is not None:
        numbers = numbers[numbers != ignore_index]
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < scores.shape[1]:
        raise ObjectiveError(
            f"labels run from {int(numbers.min())} to {int(numbers.max())}; expected 0 to {scores.shape[1] - 1} for "
            f"{scores.shape[1]} classes; number the classes from 0, pass their number as num_classes, or name the "
            f"label to leave out, ignore_index="
        )


def check_soft_labels(labels: Tensor, scores: Tensor, named: Sequence[str]) -> None:
    """Raise an error for class probabilities [B,K] that a loss cannot use, or that are not probabilities."""
    hinges = [name for name in named if name != "softmax"]
    if hinges:
        raise ObjectiveError(
            f"labels are class probabilities {list(labels.shape)}, which {hinges[0]} cannot use; expected class "
            f"numbers [{len(scores)}]; use loss='softmax' with soft labels"
        )
    if labels.shape != scores.shape:
        raise ObjectiveError(
            f"labels have shape {list(labels.shape)}, scores {list(scores.shape)}; expected one probability per score"
        )
    if values_known(labels) and not (labels.min() >= 0 and ((labels.float().sum(1) - 1).abs() < 0.01).all()):
        sums = labels.float().sum(1)
        raise ObjectiveError(
            f"labels have rows that sum to {float(sums.min()):g} up to {float(sums.max()):g}, with values down to "
            f"{float(labels.min()):g}; expected class probabilities, rows of sum 1; for several labels per sample give "
            f"a loss of your own, e.g. torch.nn.functional.binary_cross_entropy_with_logits"
        )


def check_weights(weights: Tensor, scores: Tensor) -> None:
    """Raise an error for sample weights that are not B numbers of at least 0 with a positive sum."""
    if not isinstance(weights, Tensor) or weights.shape != scores.shape[:1]:
        shape = list(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
        raise ObjectiveError(f"weights are {shape}; expected one number per sample: [{len(scores)}]")
    if values_known(weights) and not (weights.isfinite().all() and weights.min() >= 0 and weights.sum() > 0):
        raise ObjectiveError(
            f"weights run from {float(weights.min())} to {float(weights.max())}; expected numbers of at least 0, not "
            f"all 0"
        )


@torch.no_grad()
def check_mean(loss: LossFunction, scores: Tensor, labels: Tensor, once: Tensor) -> bool:
    """Raise an error for a loss that sums over the batch; return whether the check was conclusive.

    The batch repeated twice doubles a sum, but not a mean.
    """
    cuda = [scores.device] if scores.device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        twice = loss(torch.cat([scores, scores]), torch.cat([labels, labels]))
    if (twice - 2 * once).abs() < (twice - once).abs():
        raise ObjectiveError(
            f"the loss gives {float(once):g} for a batch and {float(twice):g} for the same batch twice: it is a sum; "
            f"expected the mean over the batch or one loss per sample; use reduction='mean' or reduction='none'"
        )
    return bool(once != 0)


def values_known(tensor: Tensor) -> bool:
    """Whether values can be read at no cost: on the CPU, outside a compiled step."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def at_least_0(what: str, number: Any) -> float:
    """Return a setting as a float; raise an error if it is negative or not a number."""
    if isinstance(number, Tensor) and number.ndim == 0:
        number = number.item()
    if isinstance(number, bool) or not isinstance(number, Real) or not math.isfinite(number) or number < 0:
        raise ObjectiveError(f"{what} is {number!r}; expected a number of at least 0")
    return float(number)


def require_count(what: str, number: Any) -> int | None:
    """Return a count of at least 1, or None; raise an error for anything else."""
    if number is not None and (isinstance(number, bool) or not isinstance(number, Integral) or number < 1):
        raise ObjectiveError(f"{what}={number!r}; expected a whole number of at least 1")
    return None if number is None else int(number)


def require_shift(given: Any) -> int:
    """Return a number of tokens; raise an error for anything else."""
    if isinstance(given, bool) or not isinstance(given, Integral) or given < 0:
        raise ObjectiveError(f"shift={given!r}; expected a number of tokens, 0 or 1")
    return int(given)


def require_bool(what: str, given: Any) -> bool:
    """Return a boolean setting; raise an error for anything else."""
    if not isinstance(given, bool):
        raise ObjectiveError(f"{what} is {given!r}; expected True or False")
    return given


def require_label(what: str, given: Any) -> int | None:
    """Return a label or None; raise an error for anything else."""
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, Integral):
        raise ObjectiveError(f"{what} is {given!r}; expected a whole number such as -100, or None")
    return int(given)
