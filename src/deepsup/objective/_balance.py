"""A loss and the number of classes -> C, the factor that puts it on softmax's scale.

At zero scores the gradient of softmax is sqrt((K-1) / K) long. That of the squared hinge is 2K times as long, that of
the one-vs-rest squared hinge 2K / sqrt(K-1) times; of the plain hinges half of these. K classes.
"""

from numbers import Real
from typing import Any

import torch

from deepsup.errors import ObjectiveError
from deepsup.objective._checks import at_least_0
from deepsup.objective._losses import LossFunction, softmax
from deepsup.objective._regions import DenseLoss


def balance_of(given: Any, loss: LossFunction, classes: int) -> float:
    """Return C: the number given, or by name the one with which the loss has softmax's gradient at zero scores.

    >>> from deepsup.objective import squared_hinge
    >>> balance_of(0.1, squared_hinge, 10), round(balance_of("softmax", squared_hinge, 10), 6)
    (0.1, 0.05)
    """
    if not isinstance(given, str):
        return at_least_0("balance", given) if isinstance(given, Real | torch.Tensor) else refused(given)
    if given != "softmax":
        return refused(given)
    if classes < 2 or isinstance(loss, DenseLoss):
        raise ObjectiveError(
            f"balance='softmax' with the loss {name_of(loss)} and num_classes={classes}; expected a loss that compares "
            f"classes, such as squared_hinge, and at least two classes; give a number"
        )
    length = gradient_at_zero(loss, classes)
    if not 0 < length < float("inf"):
        raise ObjectiveError(
            f"balance='softmax', but the gradient of the loss {name_of(loss)} at zero scores is {length:g}; expected "
            f"one above 0; give a number"
        )
    return gradient_at_zero(softmax, classes) / length


def refused(given: Any) -> float:
    """Raise an error for a balance that is neither a number nor the name of one."""
    raise ObjectiveError(f"balance is {given!r}; expected a number of at least 0, or 'softmax'")


def gradient_at_zero(loss: LossFunction, classes: int) -> float:
    """Return the length of a loss's gradient with respect to the scores of one sample, where all of them are 0."""
    weight = getattr(loss, "weight", None)  # of nn.CrossEntropyLoss, say: scores have its precision
    exact = weight.dtype if isinstance(weight, torch.Tensor) else torch.float64
    try:
        with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad():
            scores = torch.zeros(1, classes, dtype=exact, device="cpu", requires_grad=True)
            labels = torch.zeros(1, dtype=torch.long, device="cpu")
            (gradient,) = torch.autograd.grad(loss(scores, labels).sum(), scores)
    except Exception as error:  # of the user's own loss: it may take other labels
        raise ObjectiveError(
            f"balance='softmax', but the loss {name_of(loss)} cannot be computed for the label 0 and zero scores "
            f"({' '.join(str(error).split())[:100]}); give a number"
        ) from error
    return float(gradient.norm())


def name_of(loss: LossFunction) -> str:
    """Return what messages call a loss: its name, or that of its class."""
    return str(getattr(loss, "__name__", None) or getattr(loss, "name", None) or type(loss).__name__)
