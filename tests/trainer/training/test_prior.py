"""Training with the tree-based prior: one step moves the output weights by its gradient, written as a loop."""

from typing import Any

import pytest
import torch

from deepsup.errors import NetworkError
from deepsup.trainer.config import Config
from deepsup.trainer.networks import CIFAR100_TREE, create_network
from deepsup.trainer.recipes import find_recipe
from deepsup.trainer.training._batches import Batches
from deepsup.trainer.training._build import build_net
from deepsup.trainer.training._callbacks import Callback
from deepsup.trainer.training._loop import Training

LAMBDA1, LAMBDA2, LR = 0.3, 0.7, 0.1


class Records(Callback):
    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    def epoch_ended(self, training: Training, record: dict[str, Any]) -> None:  # noqa: ARG002 - the callback's own
        self.found.append(record)


def stepped(options: dict[str, object]) -> tuple[dict[str, torch.Tensor], torch.Tensor, float]:
    """Return the weights after one step of plain SGD, the output weights before it, and the loss."""
    config = Config(
        network="tree-cifar100", network_options=options, taps=("none",), batch_size=4, epochs=1, lr=LR, momentum=0.0,
        weight_decay=0.0, anneal="step", gradient_every=0,
    )  # fmt: skip
    torch.manual_seed(0)
    images, labels = torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8), torch.tensor([0, 1, 50, 99])
    net = build_net(config, 100, (3, 8, 8))
    before = net.trunk.get_parameter("scores.weight").detach().clone()
    training = Training(config, net, Batches(images.float() / 255, labels, 4, seed=0))
    records = Records()
    training.train([records])
    (record,) = records.found
    return {name: value.detach() for name, value in net.trunk.named_parameters()}, before, record["loss"]


def test_a_step_adds_the_gradient_of_the_prior() -> None:
    plain, before, loss = stepped({})
    pulled, same, higher = stepped({"prior": [LAMBDA1, LAMBDA2]})
    assert torch.equal(before, same)
    expected, penalty = plain["scores.weight"].clone(), 0.0
    for classes in CIFAR100_TREE.values():
        centre = sum(before[each] for each in classes) / (len(classes) + LAMBDA1 / LAMBDA2)
        penalty += LAMBDA1 / 2 * float(centre.square().sum())
        for each in classes:
            penalty += LAMBDA2 / 2 * float((before[each] - centre).square().sum())
            expected[each] -= LR * LAMBDA2 * (before[each] - centre)
    assert not torch.allclose(plain["scores.weight"], pulled["scores.weight"])
    torch.testing.assert_close(pulled["scores.weight"], expected, rtol=1e-5, atol=1e-7)
    assert higher - loss == pytest.approx(penalty, rel=1e-4)
    for name in plain.keys() - {"scores.weight"}:
        assert torch.equal(plain[name], pulled[name])


def test_only_a_net_with_a_prior_has_a_penalty() -> None:
    assert create_network("tree-cifar100", image_size=8).training_penalty() is None
    recipe = find_recipe("tree-cifar100")
    net = create_network("tree-cifar100", image_size=8, **recipe.network.options)
    penalty = net.training_penalty()
    assert penalty is not None
    assert penalty.item() > 0


@pytest.mark.parametrize(
    ("prior", "classes", "said"),
    [
        (0.1, 100, "prior is 0.1; expected lambda1 and lambda2"),
        ([0.1], 100, "expected lambda1 and lambda2"),
        ("ab", 100, "expected lambda1 and lambda2"),
        ([0.1, 0.0], 100, "lambda2 of TreePrior is 0"),
        ([0.1, 0.1], 10, "prior with 10 classes; expected the 100 of CIFAR-100"),
    ],
)
def test_a_prior_that_cannot_be(prior: object, classes: int, said: str) -> None:
    with pytest.raises(NetworkError, match=said):
        create_network("tree-cifar100", num_classes=classes, image_size=8, prior=prior)
