"""Losses of whole regions: scores [B,K,P] and class probabilities [B,K,P] -> one loss per sample [B].

B batch, K classes, P positions. One score per position (K = 1) is that of class 1 against 0: its sigmoid.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from deepsup.errors import ObjectiveError

SMOOTH = 1e-5  # MONAI's
RegionLoss = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


@dataclass(frozen=True)
class DenseLoss:
    """A loss that needs positions: the sum of the means of its parts. An objective computes it."""

    name: str
    regions: tuple[RegionLoss, ...] = ()
    positions: tuple[Callable[[Tensor, Tensor], Tensor], ...] = ()

    def __call__(self, scores: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002 - the signature of a loss
        """Refuse scores [B,K]."""
        raise ObjectiveError(
            f"loss={self.name!r} with scores {list(scores.shape)}; expected one score per position, [B,K,H,W]; use "
            f"loss='softmax' to classify images"
        )


def dice(scores: Tensor, chances: Tensor, weights: Tensor, class_weights: Tensor | None = None) -> Tensor:
    """Return 1 - 2 |p q| / (|p| + |q|), the mean over the classes of each sample; MONAI's ``DiceLoss``.

    weights: [B,P], of the positions. class_weights: [K].
    """
    predicted = scores.sigmoid() if scores.shape[1] == 1 else scores.softmax(1)
    both = (predicted * chances * weights[:, None]).flatten(2).sum(2)
    sizes = ((predicted + chances) * weights[:, None]).flatten(2).sum(2)
    return mean_over_classes(1 - (2 * both + SMOOTH) / (sizes + SMOOTH), class_weights)


def balanced_bce(scores: Tensor, chances: Tensor, weights: Tensor, class_weights: Tensor | None = None) -> Tensor:
    """Return HED's binary cross-entropy: pixels of a class weigh as much as the other class has pixels; mean over P.

    With K > 1 it is the mean over the classes, each against the rest. weights: [B,P]. class_weights: [K].
    """
    weights = weights[:, None]
    total = torch.where((total := weights.flatten(2).sum(2)) > 0, total, 1.0)
    present = (weights * chances).flatten(2).sum(2) / total
    share = present.reshape(*present.shape, *[1] * (scores.ndim - 2))
    each = (1 - share) * chances * F.softplus(-scores) + share * (1 - chances) * F.softplus(scores)
    return mean_over_classes((weights * each).flatten(2).sum(2) / total, class_weights)


def mean_over_classes(each: Tensor, class_weights: Tensor | None) -> Tensor:
    """[B,K] -> [B]."""
    return each.mean(1) if class_weights is None else each @ (class_weights / class_weights.sum()).to(each)
