"""Distillation from the output into the companions: value and gradient by hand, and bad settings."""

import pytest
import torch
from nets import CLASSES, LEARNED, ConvNet, images, labels
from torch import Tensor

from deepsup import Config, DeepsupError, Objective, supervise
from deepsup.trainer.training._build import build_objective


def soft_cross_entropy(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """One sample after the other, one class after the other."""
    total = torch.zeros((), dtype=student.dtype)
    for mine, theirs in zip(student, teacher.detach(), strict=True):
        chances = [torch.exp(score / temperature) for score in theirs]
        spread = torch.log(sum((torch.exp(score / temperature) for score in mine), torch.zeros((), dtype=mine.dtype)))
        for chance, score in zip(chances, mine, strict=True):
            total = total - chance / sum(chances) * (score / temperature - spread)
    return temperature**2 * total / len(student)


@pytest.mark.parametrize(("share", "temperature"), [(0.5, 2.0), (1.0, 1.0), (0.25, 7.5)])
def test_value_and_gradient_by_hand(share: float, temperature: float) -> None:
    net = supervise(ConvNet(), ["conv1", "pool1"], num_classes=CLASSES, example=images(2), companion=LEARNED).double()
    net.eval()
    out, y = net(images(5).double()), labels(5)
    objective = Objective(
        net, alpha=0.4, schedule="constant", average=False, distill=share, distill_temperature=temperature
    )
    loss = objective(out, y)
    expected = torch.nn.functional.cross_entropy(out.scores, y)
    for scores in out.companions.values():
        hard = torch.nn.functional.cross_entropy(scores, y)
        expected = expected + 0.4 * ((1 - share) * hard + share * soft_cross_entropy(scores, out.scores, temperature))
    torch.testing.assert_close(loss.total, expected)
    parameters = list(net.parameters())
    ours = torch.autograd.grad(loss.total, parameters, retain_graph=True)
    for one, other in zip(ours, torch.autograd.grad(expected, parameters), strict=True):
        torch.testing.assert_close(one, other)


def test_the_teacher_learns_nothing_from_its_pupils() -> None:
    net = supervise(ConvNet(), ["conv1"], num_classes=CLASSES, example=images(2), companion=LEARNED).eval()
    loss = Objective(net, schedule="constant", distill=1.0)(net(images(5)), labels(5))
    taught = torch.autograd.grad(loss.companions["conv1"], list(net.trunk.parameters()), allow_unused=True)
    with_gradient = [
        name for (name, _), grad in zip(net.trunk.named_parameters(), taught, strict=True) if grad is not None
    ]
    assert with_gradient == ["conv1.weight", "conv1.bias"]


def test_weights_and_ignored_samples_count_as_in_the_hard_loss() -> None:
    net = supervise(ConvNet(), ["conv1"], num_classes=CLASSES, example=images(2), companion=LEARNED).eval()
    x, y = images(6), labels(6)
    objective = Objective(net, schedule="constant", distill=0.5, ignore_index=-1)
    y[4:] = -1
    torch.testing.assert_close(objective(net(x), y).total, objective(net(x[:4]), y[:4]).total)


def test_without_it_nothing_changes() -> None:
    net = supervise(ConvNet(), ["conv1"], num_classes=CLASSES, example=images(2), companion=LEARNED).eval()
    out, y = net(images(5)), labels(5)
    assert (
        Objective(net)(out, y, progress=0.2).total.item()
        == Objective(net, distill=0)(out, y, progress=0.2).total.item()
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"distill": 1.5}, "distill=1.5; expected the share"),
        ({"distill": -0.1}, "within 0 and 1"),
        ({"distill": True}, "distill=True"),
        ({"distill": 0.5, "distill_temperature": 0}, "temperature=0; expected a number above 0"),
        ({"distill": 0.5, "distill_temperature": float("nan")}, "temperature=nan"),
    ],
)
def test_bad_settings(settings: dict[str, float], said: str) -> None:
    net = supervise(ConvNet(), ["conv1"], num_classes=CLASSES, example=images(2))
    with pytest.raises(DeepsupError, match=said):
        Objective(net, **settings)  # type: ignore[arg-type]


def test_the_settings_of_a_config() -> None:
    net = supervise(ConvNet(), ["conv1"], num_classes=CLASSES, example=images(2))
    made = build_objective(Config(distill=0.5, distill_temperature=3), net)
    assert (made.distill, made.distill_temperature) == (0.5, 3.0)
    assert build_objective(Config(), net).distill == 0.0
    with pytest.raises(DeepsupError, match=r"distill=2\.0; expected a number of at least 0 and at most 1"):
        Config(distill=2)
