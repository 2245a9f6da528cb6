"""Labels of every kind: soft ones, several per sample, numbers to regress on, and ones to be ignored."""

from typing import Any

import pytest
import torch
from nets import CLASSES, LEARNED, ConvNet, images, labels
from torch import Tensor, nn
from torch.nn import functional as F

from deepsup import DeeplySupervised, DeepOutput, DeepsupError, Objective, supervise
from deepsup.objective._losses import LOSSES

TAPS = ("conv1", "conv2")
SETTINGS: dict[str, Any] = {"alpha": 0.3, "schedule": "constant", "norms": False, "average": False}


def small_net(model: nn.Module | None = None, num_classes: int = CLASSES) -> DeeplySupervised:
    model = (model or ConvNet()).double().eval()
    example = images(1, torch.float64)
    return supervise(model, at=TAPS, num_classes=num_classes, companion=LEARNED, example=example)


def batch() -> tuple[Tensor, Tensor]:
    return images(6, torch.float64), labels(6)


def gradients(net: DeeplySupervised, total: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(total, list(net.parameters())))


def mixture() -> Tensor:
    """Mixup: every label is a blend of two."""
    share = torch.rand(6, 1, dtype=torch.float64)
    one_hot = F.one_hot(labels(6), CLASSES).double()
    return share * one_hot + (1 - share) * one_hot.flip(0)


def test_soft_labels_against_a_loop() -> None:
    net = small_net()
    x, _ = batch()
    soft = mixture()
    loss = Objective(net, "softmax", **SETTINGS)(net(x), soft)
    out = net(x)

    def by_hand(scores: Tensor) -> Tensor:
        rows = [
            -sum(p * s for p, s in zip(ps, ss.log_softmax(0), strict=True)) for ps, ss in zip(soft, scores, strict=True)
        ]
        return torch.stack(rows).mean()

    expected = by_hand(out.scores) + 0.3 * sum(by_hand(out.companions[m]) for m in TAPS)
    torch.testing.assert_close(loss.total, expected, rtol=1e-12, atol=1e-12)
    for mine, slow in zip(gradients(net, loss.total), gradients(net, expected), strict=True):
        torch.testing.assert_close(mine, slow, rtol=1e-9, atol=1e-12)


def test_soft_labels_that_are_sure_are_class_numbers() -> None:
    net = small_net()
    x, y = batch()
    objective = Objective(net, "softmax", **SETTINGS)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        soft = F.one_hot(y, CLASSES).to(dtype)
        torch.testing.assert_close(objective(net(x), soft).total, objective(net(x), y).total)


@pytest.mark.parametrize("name", sorted(set(LOSSES) - {"softmax"}))
@pytest.mark.parametrize("where", ["output", "companion"])
def test_hinges_refuse_soft_labels(name: str, where: str) -> None:
    net = small_net()
    losses = {"loss": name} if where == "output" else {"loss": "softmax", "companion_loss": name}
    with pytest.raises(DeepsupError, match=rf"class probabilities \[6, 3\], which {name} cannot use.*loss='softmax'"):
        Objective(net, **losses)(net(batch()[0]), mixture(), progress=0)


@pytest.mark.parametrize(
    ("soft", "message"),
    [
        (torch.ones(6, CLASSES), r"rows that sum to 3 up to 3.*rows of sum 1; for several labels per sample"),
        (torch.tensor([[1.5, -0.5, 0.0]] * 6), r"values down to -0\.5"),
        (torch.full((6, CLASSES), float("nan")), "expected class probabilities"),
        (torch.ones(6, 1), r"labels have shape \[6, 1\], scores \[6, 3\]; expected one probability per score"),
        (torch.ones(5, CLASSES), r"labels have shape \[5, 3\], scores \[6, 3\]; expected one label per row"),
        (torch.tensor(1.0), r"labels have shape \[\]"),
    ],
)
def test_bad_soft_labels(soft: Tensor, message: str) -> None:
    net = small_net()
    with pytest.raises(DeepsupError, match=message):
        Objective(net, "softmax", **SETTINGS)(net(batch()[0]), soft)


def test_several_labels_per_sample_with_a_loss_of_ones_own() -> None:
    net = small_net()
    x, _ = batch()
    many = (torch.rand(6, CLASSES) > 0.5).double()
    given: list[Tensor] = []

    def loss(scores: Tensor, wanted: Tensor) -> Tensor:
        given.append(wanted)
        return F.binary_cross_entropy_with_logits(scores, wanted, reduction="none").mean(1)

    out = net(x)
    total = Objective(net, loss, **SETTINGS)(out, many).total
    expected = F.binary_cross_entropy_with_logits(out.scores, many)
    expected = expected + 0.3 * sum(F.binary_cross_entropy_with_logits(out.companions[m], many) for m in TAPS)
    torch.testing.assert_close(total, expected)
    assert all(each is many for each in given)
    for odd in (many.bool(), many.to(torch.int8), torch.randn(6, 4, 2)):
        Objective(net, lambda s, t: s.mean(1) + t.flatten(1).sum(1), **SETTINGS)(out, odd)
    with pytest.raises(DeepsupError, match=r"labels have shape \[2, 3\], scores \[6, 3\]"):
        Objective(net, loss, **SETTINGS)(out, many[:2])
    with pytest.raises(DeepsupError, match=r"the loss returns shape \[6, 3\] for 6 samples; expected \[B\].*reduction"):
        Objective(net, nn.BCEWithLogitsLoss(reduction="none"), **SETTINGS)(out, many)
    with pytest.raises(DeepsupError, match="the loss returns a float for 6 samples"):
        Objective(net, lambda *_: 1.0, **SETTINGS)(out, many)


def test_a_named_loss_beside_a_callable_still_checks_its_labels() -> None:
    net = small_net()
    out = net(batch()[0])
    objective = Objective(net, lambda s, _: s.mean(1), companion_loss="softmax", **SETTINGS)
    with pytest.raises(DeepsupError, match="labels run from 0 to 7"):
        objective(out, torch.tensor([0, 1, 2, 7, 0, 1]))
    Objective(net, lambda s, _: s.mean(1), **SETTINGS)(out, torch.tensor([0, 1, 2, 7, 0, 1]))


class Regressor(ConvNet):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(5, 1)


def test_one_score_per_sample() -> None:
    net = small_net(Regressor(), num_classes=1)
    x, wanted = images(6, torch.float64), torch.randn(6, 1, dtype=torch.float64)
    out = net(x)
    assert out.scores.shape == out.companions["conv1"].shape == (6, 1)
    total = Objective(net, F.mse_loss, alpha=0.3, schedule="constant", norms=True, average=False)(out, wanted).total
    expected = (out.scores - wanted).square().mean() + net.trunk.fc.weight.square().sum()
    expected = expected + net.trunk.fc.bias.square().sum()
    for m in TAPS:
        head = net.head(m).classifier
        bracket = (out.companions[m] - wanted).square().mean() + head.weight.square().sum() + head.bias.square().sum()
        expected = expected + 0.3 * bracket
    torch.testing.assert_close(total, expected)
    Objective(net, F.binary_cross_entropy_with_logits, **SETTINGS)(out, (wanted > 0).double()).total.backward()


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_named_losses_refuse_one_class(name: str) -> None:
    net = small_net(Regressor(), num_classes=1)
    message = rf"the loss {name} with num_classes=1; expected at least two classes; .*binary_cross_entropy_with_logits"
    with pytest.raises(DeepsupError, match=message) as caught:
        Objective(net, name)
    assert "\n" not in str(caught.value)
    with pytest.raises(DeepsupError, match="with num_classes=1"):
        Objective(net, F.mse_loss, companion_loss=name)


def test_a_model_that_drops_the_dimension_of_its_one_score() -> None:
    class Flat(Regressor):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x)[:, 0]

    with pytest.raises(
        DeepsupError, match=r"scores of shape \[1\], num_classes is 1; expected \[B,1\]; .*scores\[:, None\]"
    ):
        small_net(Flat(), num_classes=1)


@pytest.mark.parametrize("ignored", [-100, 255, 1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", [*sorted(LOSSES), lambda s, y: F.cross_entropy(s, y, reduction="none")])
def test_ignored_samples_count_nowhere(loss: Any, ignored: int, weighted: bool) -> None:
    """The oracle: the same batch without them."""
    net = small_net()
    x, y = batch()
    out = net(x)
    y = torch.tensor([0, ignored, 2, 0, ignored, 2])
    kept = torch.tensor([0, 2, 3, 5])
    w = torch.rand(6, dtype=torch.float64) if weighted else None
    objective = Objective(
        net, loss, alpha=0.3, gamma=0.1, schedule="constant", norms=True, average=False, ignore_index=ignored
    )
    mine = objective(out, y, weights=w)
    rows = DeepOutput(out.scores[kept], {m: scores[kept] for m, scores in out.companions.items()})
    slow = objective(rows, y[kept], weights=None if w is None else w[kept])
    torch.testing.assert_close(mine.total, slow.total, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(mine.companion_losses, slow.companion_losses, rtol=1e-12, atol=1e-12)
    for a, b in zip(gradients(net, objective(net(x), y, weights=w).total), gradients(net, slow.total), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_a_batch_of_ignored_samples_is_0() -> None:
    net = small_net()
    x, _ = batch()
    loss = Objective(net, "squared_hinge", ignore_index=-100, **SETTINGS)(net(x), torch.full((6,), -100))
    assert loss.total == 0
    assert loss.output_loss == 0
    assert not any(loss.active.values())
    loss.total.backward()
    assert all(p.grad is not None and p.grad.abs().max() == 0 for p in net.parameters())


def test_what_ignore_index_does_not_excuse() -> None:
    net = small_net()
    out = net(batch()[0])
    objective = Objective(net, "softmax", ignore_index=-100, **SETTINGS)
    with pytest.raises(DeepsupError, match=r"labels run from -1 to 2; .*ignore_index="):
        objective(out, torch.tensor([0, -1, -100, 2, 0, 0]))
    with pytest.raises(DeepsupError, match=r"labels run from -100 to 2; .*ignore_index="):
        Objective(net, "softmax", **SETTINGS)(out, torch.tensor([0, 1, -100, 2, 0, 0]))
    with pytest.raises(
        DeepsupError, match=r"ignore_index=-100 with labels of torch\.float64 \[6, 3\]; .*weights= of 0"
    ):
        objective(out, mixture())
    scalar = Objective(net, F.cross_entropy, ignore_index=-100, **SETTINGS)
    with pytest.raises(DeepsupError, match=r"without sample weights and ignore_index\); use reduction='none'"):
        scalar(out, labels(6))


def test_ignored_samples_in_a_compiled_step() -> None:
    torch._dynamo.reset()
    net = small_net()
    objective = Objective(net, "softmax", ignore_index=-100, **SETTINGS)
    compiled = torch.compile(lambda x, y: objective(net(x), y).total, backend="aot_eager", fullgraph=True)
    x, _ = batch()
    for y in (torch.tensor([0, -100, 2, 1, -100, 0]), torch.full((6,), -100)):
        torch.testing.assert_close(compiled(x, y), objective(net(x), y).total)
