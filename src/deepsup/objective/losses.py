"""The losses: scores [B,K] and labels [B] -> one loss per sample [B].

There are two families of hinge losses, each plain and squared:

    multiclass (the paper's):               sum over k != y of [1 - (s_y - s_k)]_+        zero scores lose K - 1
    one-vs-rest (Tang's, the Caffe code's): sum over all k of [1 - t_k s_k]_+, t_k = +-1  zero scores lose K

B batch, K classes, s scores, y the label. At the margin itself the subgradient is 0.
"""

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F

from deepsup.errors import ObjectiveError, nearest

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
    return F.cross_entropy(scores, labels.to(scores.dtype) if labels.ndim == 2 else labels, reduction="none")


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


def find_loss(loss: str | LossFunction) -> LossFunction:
    """Return the loss of that name, or the callable itself."""
    if callable(loss):
        return loss
    if not isinstance(loss, str) or loss not in LOSSES:
        raise ObjectiveError(f"loss={loss!r} is not known; {nearest(str(loss), LOSSES)}, or give a callable")
    return LOSSES[loss]
