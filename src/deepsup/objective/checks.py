"""A net's output, labels and sample weights -> nothing, or an error that says which of them does not fit.

Values are looked at on a CPU only: elsewhere a look would stop the device at every step, and inside a compiled step it
would split the graph. Shapes and types are checked everywhere.
"""

import torch
from torch import Tensor

from deepsup.errors import ObjectiveError
from deepsup.supervision import DeepOutput


def check_batch(output: DeepOutput, labels: Tensor, weights: Tensor | None) -> None:
    """Refuse scores, labels or weights that do not fit each other."""
    if not isinstance(output, DeepOutput):
        raise ObjectiveError(
            f"output is a {type(output).__name__}; expected what the supervised net returns, net(images)"
        )
    check_labels(labels, output.scores)
    check_scores("the output", output.scores)
    for name, scores in output.companions.items():
        check_scores(f"the companion at {name!r}", scores)
    if weights is not None:
        check_weights(weights, labels)


def check_labels(labels: Tensor, scores: Tensor) -> None:
    """Refuse labels that are not B class numbers."""
    if (
        not isinstance(labels, Tensor)
        or labels.is_floating_point()
        or labels.is_complex()
        or labels.dtype == torch.bool
    ):
        kind = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
        raise ObjectiveError(f"labels are {kind}; expected a tensor of whole class numbers; convert with .long()")
    if labels.ndim != 1 or len(labels) != len(scores):
        raise ObjectiveError(
            f"labels have shape {list(labels.shape)}, scores {list(scores.shape)}; expected one label a row: "
            f"[{len(scores)}]"
        )
    if len(labels) == 0:
        raise ObjectiveError("the batch is empty; expected at least one sample; skip empty batches")
    classes, numbers = scores.shape[1], labels.long()
    if values_known(labels) and not 0 <= numbers.min() <= numbers.max() < classes:
        raise ObjectiveError(
            f"labels run from {int(numbers.min())} to {int(numbers.max())}; expected 0 to {classes - 1} for {classes} "
            f"classes; number the classes from 0, or pass their number as num_classes"
        )


def check_scores(whose: str, scores: Tensor) -> None:
    """Refuse scores that are NaN or infinite."""
    if values_known(scores) and not scores.isfinite().all():
        row = int((~scores.isfinite()).any(1).nonzero()[0, 0])
        raise ObjectiveError(
            f"the scores of {whose} are not finite (first at sample {row} of the batch); expected numbers; the "
            f"training has diverged or the input has NaN: lower the learning rate, check the data"
        )


def check_weights(weights: Tensor, labels: Tensor) -> None:
    """Refuse sample weights that are not B numbers of at least 0, some of them above."""
    if not isinstance(weights, Tensor) or weights.shape != labels.shape:
        shape = list(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
        raise ObjectiveError(f"weights are {shape}; expected one number a sample: [{len(labels)}]")
    if values_known(weights) and not (weights.isfinite().all() and weights.min() >= 0 and weights.sum() > 0):
        raise ObjectiveError(
            f"weights run from {float(weights.min())} to {float(weights.max())}; expected numbers of at least 0, not "
            f"all 0"
        )


def values_known(tensor: Tensor) -> bool:
    """Whether looking at the values costs nothing: on a CPU, outside a compiled step."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()
