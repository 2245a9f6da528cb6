"""C by name: the gradient at zero scores is as long as softmax's, beside autograd and the closed forms."""

from functools import partial
from math import sqrt

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from deepsup import DeeplySupervised, DeepOutput, Objective, supervise
from deepsup.errors import ObjectiveError

CLOSED = {
    "squared_hinge": lambda k: 1 / (2 * k),
    "hinge": lambda k: 1 / k,
    "squared_hinge_ovr": lambda k: sqrt(k - 1) / (2 * k),
    "hinge_ovr": lambda k: sqrt(k - 1) / k,
    "softmax": lambda _: 1.0,
}


def net_of(classes: int, at: tuple[str, ...] = ("0",)) -> DeeplySupervised:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, classes))
    return supervise(model, at=list(at), num_classes=classes, example=torch.zeros(2, 4))


def at_zero(objective: Objective, classes: int) -> tuple[float, float]:
    """The lengths of F's gradient at zero scores: of the output's, and of the companion's without its alpha."""
    scores, own = (torch.zeros(1, classes, requires_grad=True) for _ in range(2))
    loss = objective(DeepOutput(scores, {"0": own}), torch.tensor([classes - 1]), progress=0.0)
    output, companion = torch.autograd.grad(loss.total, [scores, own])
    return float(output.norm()), float(companion.norm()) / objective.alpha["0"]


@pytest.mark.parametrize("classes", [2, 3, 10, 100])
@pytest.mark.parametrize("loss", CLOSED)
def test_the_gradient_at_zero_scores_is_as_long_as_that_of_softmax(loss: str, classes: int) -> None:
    net = net_of(classes)
    objective = Objective(net, loss, balance="softmax")
    assert objective.balance == pytest.approx(CLOSED[loss](classes))
    lengths = at_zero(objective, classes), at_zero(Objective(net), classes)
    assert lengths[0] == pytest.approx(lengths[1])
    assert lengths[0] == pytest.approx((sqrt((classes - 1) / classes),) * 2)
    # without it, by how much the issue says that they differ
    assert at_zero(Objective(net, loss), classes)[0] / lengths[0][0] == pytest.approx(1 / CLOSED[loss](classes))


def test_each_loss_has_its_own() -> None:
    net = net_of(10, at=("0", "1"))
    losses = {"0": "softmax", "1": "hinge_ovr"}
    objective = Objective(net, "squared_hinge", companion_loss=losses, balance="softmax")
    assert objective.balance == pytest.approx(0.05)
    assert objective.companion_balance == pytest.approx({"0": 1.0, "1": 0.3})
    assert "balance 0.05 or 0.3 or 1)" in repr(objective)
    assert "balance" not in repr(Objective(net))
    assert "balance 7)" in repr(Objective(net, balance=7))


def test_a_loss_of_the_users_own_is_measured() -> None:
    net = net_of(10)
    assert Objective(net, lambda s, y: 3 * F.cross_entropy(s, y), balance="softmax").balance == pytest.approx(1 / 3)
    smoothed = partial(F.cross_entropy, reduction="none", label_smoothing=0.2)
    assert Objective(net, smoothed, balance="softmax").balance == pytest.approx(1 / 0.8)
    weighted = nn.CrossEntropyLoss(weight=torch.arange(1.0, 11), label_smoothing=0.2)
    scores = torch.zeros(1, 10, requires_grad=True)
    (steep,) = torch.autograd.grad(weighted(scores, torch.tensor([0])), scores)
    assert Objective(net, weighted, balance="softmax").balance == pytest.approx(sqrt(0.9) / float(steep.norm()))
    before = torch.get_rng_state()
    Objective(net, lambda s, y: F.cross_entropy(s, y[torch.randperm(len(y))]), balance="softmax")
    assert torch.equal(torch.get_rng_state(), before)
    with torch.inference_mode():
        assert Objective(net, "hinge", balance="softmax").balance == pytest.approx(0.1)


def test_the_papers_objective_stays_as_printed() -> None:
    assert Objective.paper(net_of(10)).balance == 1.0
    assert Objective.paper(net_of(10), balance="softmax").balance == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("classes", "loss", "balance", "message"),
    [
        (10, "softmax", "sofmax", "balance is 'sofmax'; expected a number of at least 0, or 'softmax'"),
        (10, "softmax", None, "balance is None; expected a number of at least 0, or 'softmax'"),
        (10, "softmax", True, "balance is True; expected a number of at least 0"),
        (1, lambda s, _: s.sum(1), "softmax", "num_classes=1; expected a loss that compares classes"),
        (10, "dice", "softmax", "the loss dice and num_classes=10; expected a loss that compares classes"),
        (10, lambda s, _: s.square().sum(1), "softmax", "at zero scores is 0; expected one above 0; give a number"),
        (10, lambda s, _: s.sqrt().sum(1), "softmax", "at zero scores is inf; expected one above 0; give a number"),
        (10, nn.BCEWithLogitsLoss(), "softmax", "the loss BCEWithLogitsLoss cannot be computed for the label 0"),
        (10, lambda s, _: s.detach().sum(1), "softmax", "cannot be computed for the label 0 and zero scores"),
    ],
)
def test_what_has_no_such_balance(classes: int, loss: object, balance: object, message: str) -> None:
    with pytest.raises(ObjectiveError, match=message):
        Objective(net_of(classes), loss, balance=balance)  # type: ignore[arg-type]
