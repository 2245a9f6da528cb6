"""Dense objectives beside an explicit loop over pixels and beside MONAI: values and gradients; presets; bad input."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from dense_nets import dense_net, masks, pictures
from monai.losses import DeepSupervisionLoss, DiceCELoss, DiceLoss
from nets import CLASSES, ConvNet, images, labels
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch.nn import functional as F

from deepsup import DeeplySupervised, DeepOutput, DeepsupError, Objective, supervise
from deepsup.objective._dense_targets import DenseTargets
from deepsup.objective._losses import DENSE_LOSSES, LOSSES

SETTINGS: dict[str, Any] = {"schedule": "constant", "average": False, "alpha": 1.0}


def gradients(net: nn.Module) -> list[Tensor]:
    return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in net.parameters()]


def assert_same(net: DeeplySupervised, mine: Tensor, other: Tensor, tolerance: float) -> None:
    """Compare two losses of one net: values and gradients of all parameters."""
    torch.testing.assert_close(mine, other.to(mine.dtype), rtol=tolerance, atol=tolerance)
    found = []
    for total in (mine, other):
        net.zero_grad()
        total.backward(retain_graph=True)
        found.append(gradients(net))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


# MONAI


@pytest.mark.parametrize("mode", ["exp", "same", "two"])
@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize(("name", "theirs"), [("dice", DiceLoss), ("dice_ce", DiceCELoss)])
def test_equal_to_monais_deep_supervision_loss(mode: str, dims: int, name: str, theirs: Any) -> None:
    net = dense_net(dims)
    y = masks(dims=dims)[:, None]
    out = net(pictures(dims=dims))
    loss = theirs(softmax=True, to_onehot_y=True)
    expected = DeepSupervisionLoss(loss, mode)([out.scores, out.companions["up2"], out.companions["up3"]], y.float())
    assert_same(net, Objective.monai(net, mode, loss=name)(out, y).total, expected, 1e-6)
    assert_same(net, Objective.monai(net, mode, loss=loss)(out, y).total, expected, 1e-6)  # MONAI's own, as a callable
    assert_same(net, Objective.monai(net, mode, loss=loss)(out, y.float()).total, expected, 1e-6)


def test_nnunets_weights() -> None:
    net = dense_net(side=32, at=["low", "up3", "up2"])
    x, y = pictures(side=32), masks(side=32)
    out = net(x)
    weights = torch.tensor([1.0, 0.5, 0.25, 0.0])
    sizes = [(None, out.scores), *((name, out.companions[name]) for name in ("up2", "up3", "low"))]
    each = [F.cross_entropy(s, F.interpolate(y[:, None].float(), s.shape[2:], mode="nearest-exact")[:, 0].long())
            for _, s in sizes]  # fmt: skip
    expected = (weights / weights.sum() * torch.stack(each)).sum()
    loss = Objective.nnunet(net, loss="softmax")(out, y)
    assert_same(net, loss.total, expected, 1e-6)
    assert not loss.active["low"]
    loss.total.backward()
    assert all(p.grad is not None for p in net.parameters())  # what DDP demands


def test_presets_without_sizes_and_unknown_modes() -> None:
    net = supervise(ConvNet(), at=["conv1"], num_classes=CLASSES, example=images())
    with pytest.raises(DeepsupError, match=r"weights by resolution for a net without maps.*alpha="):
        Objective.nnunet(net)
    with pytest.raises(DeepsupError, match=r"mode='exq'; did you mean 'exp'"):
        Objective.monai(dense_net(), "exq")


# the loop over pixels


def one_pixel(name: str, s: Tensor, y: int) -> Tensor:
    """The loss of one pixel [K] with the class y, the obvious way."""
    if name in ("softmax", "focal"):
        q = s.softmax(0)[y]
        return -q.log() * (1 if name == "softmax" else (1 - q) ** 2)
    power = 2 if name.startswith("squared") else 1
    total = s.new_zeros(())
    for k in range(len(s)):
        if name.endswith("ovr"):
            total = total + (1 - (1 if k == y else -1) * s[k]).clamp(min=0) ** power
        elif k != y:
            total = total + (1 - (s[y] - s[k])).clamp(min=0) ** power
    return total


def loop(name: str, scores: Tensor, y: Tensor, ignore: int, weights: Tensor) -> Tensor:
    """The mean over all labelled pixels, each with the score of the cell that it lies in."""
    total, count = scores.new_zeros(()), 0.0
    (batch, height, width), (h, w) = y.shape, scores.shape[2:]
    for b in range(batch):
        for i in range(height):
            for j in range(width):
                label = int(y[b, i, j])
                if label != ignore:
                    cell = scores[b, :, i * h // height, j * w // width]
                    total = total + weights[label] * one_pixel(name, cell, label)
                    count += float(weights[label])
    return total / count


@pytest.mark.parametrize("name", ["softmax", "focal", "hinge", "squared_hinge", "hinge_ovr", "squared_hinge_ovr"])
def test_probability_targets_are_the_mean_over_all_pixels(name: str) -> None:
    """To 1e-12 in double precision: each cell's loss counts every pixel in it, none vanishes, none counts twice."""
    torch.manual_seed(1)
    weights = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    scores = torch.randn(2, CLASSES, 3, 4, dtype=torch.float64, requires_grad=True)  # 7 is not divided by 3
    full = torch.randn(2, CLASSES, 7, 8, dtype=torch.float64)
    y = masks(2, side=8)[:, :7]
    y[0, :2, :3] = 9
    net = dense_net().double()
    net.full_size = False
    objective = Objective(net, name, ignore_index=9, class_weights=weights, **SETTINGS)
    loss = objective(DeepOutput(full, {"up3": scores, "up2": full}), y)
    expected = loop(name, scores, y, 9, weights)
    torch.testing.assert_close(loss.companions["up3"], expected, rtol=1e-12, atol=1e-12)
    (mine,) = torch.autograd.grad(loss.companions["up3"], scores)
    (other,) = torch.autograd.grad(expected, scores)
    torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(loss.output, loop(name, full, y, 9, weights), rtol=1e-12, atol=1e-12)


def test_probabilities_are_the_shares_of_the_classes() -> None:
    y = masks(2, side=8, classes=4)
    scores = torch.zeros(2, 4, 2, 4, dtype=torch.float64)
    aligned = DenseTargets(y, None, None, "probability").align(scores)
    for b in range(2):
        for i in range(2):
            for j in range(4):
                cell = y[b, 4 * i : 4 * i + 4, 2 * j : 2 * j + 2].flatten()
                shares = torch.tensor([(cell == k).sum() / len(cell) for k in range(4)], dtype=torch.float64)
                torch.testing.assert_close(aligned.labels[b, :, i, j], shares, rtol=1e-12, atol=1e-12)
    assert aligned.weights is None
    soft = F.one_hot(y, 4).movedim(-1, 1).double()
    torch.testing.assert_close(DenseTargets(soft, None, None, "probability").align(scores).labels, aligned.labels)


def test_one_pixel_of_a_class_vanishes_from_nearest_targets_only() -> None:
    y = torch.zeros(1, 16, 16, dtype=torch.long)
    y[0, 5, 6] = 2
    scores = torch.zeros(1, CLASSES, 4, 4)
    assert not DenseTargets(y, None, None, "nearest").align(scores).labels.any()
    assert DenseTargets(y, None, None, "probability").align(scores).labels[0, 2, 1, 1] == 1 / 16


@pytest.mark.parametrize("shape", [(16,), (15, 9), (8, 6, 10)])
@pytest.mark.parametrize("size", [3, 4, 5])
def test_nearest_targets_are_torchs_nearest_exact(shape: tuple[int, ...], size: int) -> None:
    y = torch.randint(5, (2, *shape))
    cells = [size] * len(shape)
    found = DenseTargets(y, None, None, "nearest").align(torch.zeros(2, 5, *cells)).labels
    assert torch.equal(found, F.interpolate(y[:, None].double(), cells, mode="nearest-exact")[:, 0].long())


@pytest.mark.parametrize("targets", ["nearest", "upsample"])
def test_cross_entropy_with_ignored_pixels_and_class_weights_is_torchs(targets: Any) -> None:
    net = dense_net().double()
    y, weights = masks(), torch.tensor([1.0, 3.0, 0.2], dtype=torch.float64)
    y[:, :5] = 255
    out = net(pictures().double())

    def torchs(scores: Tensor) -> Tensor:
        if targets == "upsample":
            scores, labels = F.interpolate(scores, (16, 16), mode="bilinear"), y
        else:
            labels = F.interpolate(y[:, None].double(), scores.shape[2:], mode="nearest-exact")[:, 0].long()
        return F.cross_entropy(scores, labels, weights, ignore_index=255)

    objective = Objective(net, targets=targets, ignore_index=255, class_weights=weights, **SETTINGS)
    expected = torch.stack([torchs(s) for s in (out.scores, *out.companions.values())]).sum()
    assert_same(net, objective(out, y).total, expected, 1e-10)


# one score per position; whole regions


def test_one_score_is_a_binary_cross_entropy_and_heds() -> None:
    net = dense_net(classes=1).double()
    out, y = net(pictures().double()), masks(classes=2)
    s = out.scores[:, 0]
    objective = Objective(net, targets="nearest", **SETTINGS)
    torch.testing.assert_close(objective(out, y).output, F.binary_cross_entropy_with_logits(s, y.double()))
    y[0], y[1] = 0, (torch.rand(16, 16) < 0.1).long()
    expected = []
    for b in range(len(y)):
        beta = (y[b] == 0).double().mean()
        edge = y[b] == 1
        logs = F.logsigmoid(s[b]), F.logsigmoid(-s[b])
        expected.append(-(beta * logs[0][edge].sum() + (1 - beta) * logs[1][~edge].sum()) / y[b].numel())
    found = Objective(net, "balanced_bce", **SETTINGS)(out, y).output
    torch.testing.assert_close(found, torch.stack(expected).mean(), rtol=1e-12, atol=1e-12)


def test_a_callable_gets_probabilities_or_labels_as_given() -> None:
    net = dense_net(classes=1)
    out, y = net(pictures()), masks(classes=2)
    bce = F.binary_cross_entropy_with_logits
    share = F.avg_pool2d(y[:, None].float(), 4)
    objective = Objective(net, bce, **SETTINGS)
    torch.testing.assert_close(objective(out, y).companions["up3"], bce(out.companions["up3"], share))
    torch.testing.assert_close(objective(out, y[:, None].float()).companions["up3"], bce(out.companions["up3"], share))
    seen: list[torch.Size] = []

    def own(scores: Tensor, labels: Tensor) -> Tensor:
        seen.append(labels.shape)
        return scores.square().mean(1)

    Objective(net, own, targets="nearest", **SETTINGS)(out, y)
    assert seen == [(3, 16, 16), (3, 4, 4), (3, 8, 8)]
    with pytest.raises(DeepsupError, match=r"returns shape \[2\] for scores \[3, 1, 16, 16\]; expected one loss per"):
        Objective(net, lambda s, _: s.sum((1, 2, 3))[:2], **SETTINGS)(out, y)
    with pytest.raises(DeepsupError, match="it is a sum"):
        Objective(net, lambda s, _: s.square().sum(), **SETTINGS)(out, y)


@pytest.mark.parametrize("name", [*LOSSES, *DENSE_LOSSES])
@pytest.mark.parametrize("targets", ["probability", "nearest", "upsample"])
def test_ignored_pixels_change_nothing(name: str, targets: Any) -> None:
    """The scores of ignored pixels may be anything: their gradient is 0, and all ignored is a loss of 0."""
    net = dense_net()
    out, y = net(pictures()), masks()
    y[1] = -1
    scores = out.scores.detach().requires_grad_()
    objective = Objective(net, name, targets=targets, ignore_index=-1, **SETTINGS)
    loss = objective(DeepOutput(scores, out.companions), y)
    loss.total.backward()
    assert scores.grad is not None
    assert not scores.grad[1].any()
    assert scores.grad[0].any()
    rest = Objective(net, name, targets=targets, **SETTINGS)(
        DeepOutput(scores[::2], {tap: each[::2] for tap, each in out.companions.items()}), y[::2]
    )
    torch.testing.assert_close(loss.total, rest.total)
    empty = objective(net(pictures()), torch.full_like(y, -1))
    net.zero_grad()
    empty.total.backward()
    assert empty.total == 0
    assert not any(gradient.any() for gradient in gradients(net))


def test_weights_of_samples_and_of_positions() -> None:
    net = dense_net()
    out, y = net(pictures()), masks()
    by_sample, by_pixel = torch.tensor([1.0, 0.0, 2.0]), torch.rand(3, 16, 16)
    each = F.cross_entropy(out.scores, y, reduction="none")
    objective = Objective(net, **SETTINGS)
    found = objective(out, y, weights=by_sample).output
    torch.testing.assert_close(found, (each * by_sample[:, None, None]).sum() / (256 * 3))
    torch.testing.assert_close(objective(out, y, weights=by_pixel).output, (each * by_pixel).sum() / by_pixel.sum())
    dice = Objective(net, "dice", **SETTINGS)
    alone = torch.stack([dice(net_part(out, b), y[b : b + 1]).output for b in range(3)])
    torch.testing.assert_close(dice(out, y, weights=by_sample).output, (alone * by_sample).sum() / 3)


def net_part(out: DeepOutput, b: int) -> DeepOutput:
    return DeepOutput(out.scores[b : b + 1], {tap: each[b : b + 1] for tap, each in out.companions.items()})


def test_class_weights_of_a_classifier_are_torchs() -> None:
    net = supervise(ConvNet().eval(), at=["conv1"], num_classes=CLASSES, example=images())
    out, y = net(images()), labels()
    weights = torch.tensor([1.0, 3.0, 0.2])
    found = Objective(net, class_weights=weights, schedule="constant", average=False)(out, y).output
    torch.testing.assert_close(found, F.cross_entropy(out.scores, y, weights))


# torch


@pytest.mark.parametrize(
    ("targets", "loss"),
    [
        ("probability", "dice_ce"),
        ("upsample", "softmax"),
        pytest.param("probability", "softmax", marks=pytest.mark.slow),
        pytest.param("upsample", "dice_ce", marks=pytest.mark.slow),
        pytest.param("nearest", "softmax", marks=pytest.mark.slow),
        pytest.param("nearest", "dice_ce", marks=pytest.mark.slow),
    ],
)
def test_a_compiled_step_is_compiled_once(targets: Any, loss: str) -> None:
    torch._dynamo.reset()
    net, counter = dense_net(fuse=True), CompileCounter()
    batches = [(pictures(), masks()) for _ in range(4)]
    plain = Objective(net, loss, targets=targets, **SETTINGS)
    gamma = float(torch.stack([plain(net(x), y).companion_losses["up3"] for x, y in batches]).mean())
    settings = SETTINGS | {"gamma": {"up3": gamma, "up2": 0.0, "fuse": 0.0}}
    objective = Objective(net, loss, targets=targets, ignore_index=-1, **settings)
    compiled = torch.compile(lambda x, y: objective(net(x), y), backend=counter, fullgraph=True)
    gates = set()
    for x, y in batches:
        found, expected = compiled(x, y), objective(net(x), y)
        torch.testing.assert_close(found.total, expected.total, rtol=1e-5, atol=1e-6)
        gates.add(bool(found.active["up3"]))
    assert gates == {True, False}
    assert counter.frame_count == 1


@pytest.mark.parametrize("targets", ["probability", "nearest", "upsample"])
def test_autocast_and_channels_last(targets: Any) -> None:
    net = dense_net()
    x, y = pictures(), masks()
    expected = Objective(net, targets=targets, **SETTINGS)(net(x), y)
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = net(x.to(memory_format=torch.channels_last))
    loss = Objective(net, targets=targets, **SETTINGS)(out, y)
    torch.testing.assert_close(loss.total, expected.total, rtol=0.02, atol=0.02)
    loss.total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


def test_a_copy_of_the_net_has_its_own_objective() -> None:
    net = dense_net(fuse=True)
    twin = copy.deepcopy(net)
    x, y = pictures(), masks()
    a, b = (Objective(each, schedule="constant")(each(x), y).total for each in (net, twin))
    assert torch.equal(a, b)


# bad input

BAD: dict[str, tuple[Callable[[], tuple[dict[str, Any], Tensor]], str]] = {
    "another size": (lambda: ({}, masks(side=32)), r"size 32x32, the model's scores 16x16.*one label per pixel"),
    "a smaller size": (lambda: ({}, masks(side=8)), r"size 8x8, the model's scores 16x16"),
    "out of range": (lambda: ({}, masks() + 1), r"labels run from 1 to 3; expected 0 to 2.*ignore_index="),
    "negative": (lambda: ({"ignore_index": 5}, masks() - 1), r"labels run from -1 to 1; expected 0 to 2"),
    "one per image": (lambda: ({}, torch.zeros(3).long()), r"labels have shape \[3\].*\[3, 16, 16\].*mask per image"),
    "3-D": (lambda: ({}, masks(dims=3)[..., None]), r"4-D labels do not fit 2-D scores"),
    "floats": (lambda: ({}, masks().float()), r"\[3, 16, 16\].*\.long\(\), or .* \[3, 3, 16, 16\]$"),
    "K": (lambda: ({}, torch.rand(3, 2, 16, 16)), r"\[3, 2, 16, 16\].*expected 3 class probabilities per position"),
    "no probabilities": (lambda: ({}, torch.rand(3, 3, 16, 16)), r"sum to .*expected class probabilities"),
    "soft and ignored": (lambda: ({"ignore_index": 0}, torch.rand(3, 3, 16, 16)), r"ignore_index=0 with labels of"),
    "no tensor": (lambda: ({}, [1]), r"labels are list; expected a tensor"),  # type: ignore[dict-item,return-value]
    "another batch": (
        lambda: ({}, masks(2)),
        r"labels have shape \[2, 16, 16\], scores \[3, 3, 16, 16\].*; the batch has 3 samples, the labels 2$",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_labels_that_do_not_fit(case: str) -> None:
    settings, y = BAD[case][0]()
    net = dense_net()
    with pytest.raises(DeepsupError, match=BAD[case][1]):
        Objective(net, **SETTINGS, **settings)(net(pictures()), y)


def test_an_empty_batch() -> None:
    net = dense_net().eval()
    out = net(pictures()[:0])
    assert {tuple(each.shape) for each in out.companions.values()} == {(0, CLASSES, 4, 4), (0, CLASSES, 8, 8)}
    with pytest.raises(DeepsupError, match="the batch is empty"):
        Objective(net, **SETTINGS)(out, masks()[:0])


def test_two_dimensional_labels_for_volumes() -> None:
    net = dense_net(3)
    with pytest.raises(DeepsupError, match=r"expected one label per position: \[3, 16, 16, 16\]; 2-D labels .* 3-D"):
        Objective(net, **SETTINGS)(net(pictures(dims=3)), masks())


def test_a_tap_finer_than_the_labels() -> None:
    class Coarse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fine, self.low = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, CLASSES, 2, stride=2)

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.low(self.fine(x))
            return scores

    net = supervise(Coarse(), at=["fine"], num_classes=CLASSES, example=pictures())
    with pytest.raises(DeepsupError, match=r"scores of 'fine' are 16x16, finer than the labels, 8x8; .*coarser layer"):
        Objective(net, **SETTINGS)(net(pictures()), masks(side=8))
    assert Objective(net, **SETTINGS)(net(pictures()), masks()).total > 0  # scores coarser than the image are fine


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"targets": "linear"}, r"targets='linear'; did you mean 'nearest'"),
        ({"class_weights": [1, 2]}, r"class_weights=\[1, 2\] for 3 classes"),
        ({"class_weights": [1, -2, 1]}, r"class_weights=.*at least 0"),
        ({"loss": "dise"}, r"loss='dise' is not known; did you mean 'dice'"),
    ],
)
def test_bad_settings(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(DeepsupError, match=words):
        Objective(dense_net(), **settings)


def test_bad_weights_and_dense_losses_for_a_classifier() -> None:
    net = dense_net()
    with pytest.raises(DeepsupError, match=r"weights are \[3, 8, 8\]; expected one number per sample, \[3\], or per"):
        Objective(net, **SETTINGS)(net(pictures()), masks(), weights=torch.ones(3, 8, 8))
    with pytest.raises(DeepsupError, match="not all 0"):
        Objective(net, **SETTINGS)(net(pictures()), masks(), weights=torch.zeros(3, 16, 16))
    plain = supervise(ConvNet(), at=["conv1"], num_classes=CLASSES, example=images())
    with pytest.raises(DeepsupError, match=r"loss='dice' with scores \[.*use loss='softmax'"):
        Objective(plain, "dice", **SETTINGS)(plain(images()), labels())
    out = net(pictures())
    broken = out.scores.detach().clone()
    broken[1, 0, 0, 0] = torch.nan
    with pytest.raises(DeepsupError, match=r"scores of the output are not finite \(first at sample 1"):
        Objective(net, **SETTINGS)(DeepOutput(broken, out.companions), masks())
