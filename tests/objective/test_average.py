"""The weighted mean of the losses: each part by hand, and the sum where it is asked for."""

import pytest
import torch
from nets import CLASSES, ConvNet, images, labels
from torch.nn import functional as F

from deepsup import DeepsupError, Objective, supervise


@pytest.mark.parametrize(
    ("alpha", "progress"), [((0.3, 0.3), 0.0), ((0.5, 2.0), 0.25), ((0.0, 1.0), 0.5), ((1.0, 1.0), 1.0)]
)
def test_the_total_is_the_mean_of_the_output_and_of_the_mean_companion(
    alpha: tuple[float, float], progress: float
) -> None:
    net = supervise(ConvNet(), at=["conv1", "pool1"], num_classes=CLASSES, example=images(2)).double()
    x, y = images(6).double(), labels(6)
    out = net(x)
    loss = Objective(net, alpha=alpha, average=True)(out, y, progress=progress)
    now = [each * (1 - progress) / 2 for each in alpha]
    losses = [F.cross_entropy(scores, y) for scores in out.companions.values()]
    expected = (F.cross_entropy(out.scores, y) + now[0] * losses[0] + now[1] * losses[1]) / (1 + sum(now))
    torch.testing.assert_close(loss.total, expected)
    torch.testing.assert_close(loss.total, loss.output + sum(loss.companions.values()))
    torch.testing.assert_close(loss.output_loss, F.cross_entropy(out.scores, y))  # the bare losses stay bare
    grads = torch.autograd.grad(loss.total, list(net.trunk.parameters()), retain_graph=True)
    by_hand = torch.autograd.grad(expected, list(net.trunk.parameters()))
    for one, other in zip(grads, by_hand, strict=True):
        torch.testing.assert_close(one, other)


def test_the_output_counts_the_same_however_many_companions_there_are() -> None:
    x, y, shares = images(6), labels(6), []
    for taps in (["conv1"], ["conv1", "pool1", "conv2"]):
        net = supervise(ConvNet(), at=taps, num_classes=CLASSES, example=images(2))
        loss = Objective(net, alpha=0.3, average=True)(net(x), y, progress=0.0)
        shares.append((loss.output / loss.output_loss).item())
    assert shares == pytest.approx([1 / 1.3, 1 / 1.3])


def test_the_default_and_the_paper_sum() -> None:
    net = supervise(ConvNet(), at=["conv1"], num_classes=CLASSES, example=images(2))
    out, y = net(images(6)), labels(6)
    summed = Objective(net, alpha=0.5)(out, y, progress=0.0)
    torch.testing.assert_close(
        summed.total, F.cross_entropy(out.scores, y) + 0.5 * F.cross_entropy(out.companions["conv1"], y)
    )
    assert not Objective(net).average
    assert not Objective.paper(net).average
    assert not Objective.caffe(net).average
    with pytest.raises(DeepsupError, match="average"):
        Objective(net, average="yes")  # type: ignore[arg-type]


def test_backward_on_the_loss_itself_is_answered_with_the_remedy() -> None:
    net = supervise(ConvNet(), at=["conv1"], num_classes=CLASSES, example=images(2))
    loss = Objective(net)(net(images(6)), labels(6), progress=0.0)
    with pytest.raises(AttributeError, match=r"a Loss has no 'backward'; its scalar is loss.total"):
        loss.backward()
