"""Labels and weights as given -> what the losses compare scores with, checked; what is ignored weighs 0.

B batch, K classes, P positions.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from deepsup.errors import ObjectiveError
from deepsup.objective._checks import are_class_numbers, check_labels, check_weights
from deepsup.objective._dense_checks import check_dense_labels, check_dense_weights, check_sizes
from deepsup.objective._dense_targets import DenseTargets, TargetMode
from deepsup.supervision import DeepOutput


class Answers(NamedTuple):
    """Labels [B, ...] and the weights [B] of the samples; None: all weigh the same."""

    labels: Tensor
    weights: Tensor | None


class Answering(NamedTuple):
    """What an objective does with labels."""

    named: tuple[str, ...]
    """The built-in losses in use; a loss of the user's own takes any labels."""
    ignore_index: int | None
    class_weights: Tensor | None
    targets: TargetMode

    def answers(self, labels: Tensor, scores: Tensor, weights: Tensor | None) -> Answers:
        """Return one label and one weight per sample."""
        check_labels(labels, scores, self.named, self.ignore_index)
        if weights is not None:
            check_weights(weights, scores)
        labels = labels.long() if are_class_numbers(labels) else labels
        if self.ignore_index is not None:
            kept = labels != self.ignore_index
            labels, weights = torch.where(kept, labels, 0), kept * (1.0 if weights is None else weights)
        if self.class_weights is not None:
            weights = self.by_class(labels, scores) * (1.0 if weights is None else weights)
        return Answers(labels, weights)

    def by_class(self, labels: Tensor, scores: Tensor) -> Tensor:
        """Return the weight of each sample by its class [B]."""
        if self.class_weights is None or not are_class_numbers(labels):
            raise ObjectiveError(
                f"class_weights with labels {list(labels.shape)}; expected class numbers, one per sample"
            )
        return self.class_weights.to(scores)[labels]

    def dense(self, labels: Tensor, output: DeepOutput, weights: Tensor | None, full_size: bool) -> DenseTargets:
        """Return the labels of every position, to meet scores of any resolution."""
        check_dense_labels(labels, output.scores, self.named, self.ignore_index)
        check_sizes(labels, {"output": output.scores, **output.companions}, full_size)
        if weights is not None:
            check_dense_weights(weights, labels, output.scores)
        return DenseTargets.of(labels, output.scores, weights, self.ignore_index, self.targets)
