"""The losses: scores [B,K] and labels [B] -> one loss per sample [B]; of dense scores [B,K,P], one per position [B,P].

There are two families of hinge losses, each plain and squared:

    multiclass (the paper's):               sum over k != y of [1 - (s_y - s_k)]_+        zero scores lose K - 1
    one-vs-rest (Tang's, the Caffe code's): sum over all k of [1 - t_k s_k]_+, t_k = +-1  zero scores lose K

B batch, K classes, P positions, s scores, y the label. At the margin itself the subgradient is 0.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from deepsup.errors import ObjectiveError, nearest
from deepsup.objective._regions import DenseLoss, balanced_bce, dice

LossFunction = Callable[[Tensor, Tensor], Tensor]


def hinge(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the multiclass hinge (L1-SVM), [B,K],[B] -> [B]."""
    return multiclass_slack(scores, labels).sum(1)


def squared_hinge(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the multiclass squared hinge (L2-SVM), the paper's L and l, [B,K],[B] -> [B]."""
    return multiclass_slack(scores, labels).square().sum(1)


def hinge_ovr(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the one-vs-rest hinge, [B,K],[B] -> [B]."""
    return one_vs_rest_slack(scores, labels).sum(1)


def squared_hinge_ovr(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the one-vs-rest squared hinge, [B,K],[B] -> [B]."""
    return one_vs_rest_slack(scores, labels).square().sum(1)


def softmax(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of the softmax, [B,K] and class numbers [B] or probabilities [B,K] -> [B]."""
    soft = labels.ndim == scores.ndim
    return F.cross_entropy(scores, labels.to(scores.dtype) if soft else labels, reduction="none")


def focal(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the focal loss, (1 - q)^2 times the cross-entropy -log q; labels as for ``softmax``, [B,K] -> [B]."""
    log_chance = scores.log_softmax(1)
    each = -(1 - log_chance.exp()).square() * log_chance
    if labels.ndim == scores.ndim:
        return (labels * each).sum(1)
    return each.gather(1, labels[:, None]).squeeze(1)


def expected(loss: LossFunction, scores: Tensor, chances: Tensor) -> Tensor:
    """Return the expectation of a loss of class numbers under class probabilities, [B,K,P],[B,K,P] -> [B,P]."""
    whole = torch.zeros_like(chances[:, 0], dtype=torch.long)
    each = [share * loss(scores, whole + number) for number, share in enumerate(chances.unbind(1))]
    return torch.stack(each).sum(0)


def multiclass_slack(scores: Tensor, labels: Tensor) -> Tensor:
    """Return by how much each wrong class violates the margin: [1 - (s_y - s_k)]_+, and 0 at k = y; [B,K]."""
    index = labels[:, None]
    slack = (1 - (scores.gather(1, index) - scores)).relu()
    return slack.scatter(1, index, 0)


def one_vs_rest_slack(scores: Tensor, labels: Tensor) -> Tensor:
    """Return by how much each class violates its own margin: [1 - t_k s_k]_+; [B,K]."""
    index = labels[:, None]
    signed = scores.scatter(1, index, -scores.gather(1, index))  # -t_k s_k
    return (1 + signed).relu()


LOSSES: dict[str, LossFunction] = {
    "squared_hinge": squared_hinge,
    "hinge": hinge,
    "squared_hinge_ovr": squared_hinge_ovr,
    "hinge_ovr": hinge_ovr,
    "softmax": softmax,
}
DENSE_LOSSES: dict[str, LossFunction] = {
    "focal": DenseLoss("focal", positions=(focal,)),
    "dice": DenseLoss("dice", (dice,)),
    "dice_ce": DenseLoss("dice_ce", (dice,), (softmax,)),
    "balanced_bce": DenseLoss("balanced_bce", (balanced_bce,)),
}
"""Only for models that score every position."""
HINGES: tuple[LossFunction, ...] = (squared_hinge, hinge, squared_hinge_ovr, hinge_ovr)


def find_loss(loss: str | LossFunction) -> LossFunction:
    """Return the loss of that name, or the callable itself."""
    if callable(loss):
        return loss
    known = LOSSES | DENSE_LOSSES
    if not isinstance(loss, str) or loss not in known:
        raise ObjectiveError(f"loss={loss!r} is not known; {nearest(str(loss), known, 9)}")
    return known[loss]
