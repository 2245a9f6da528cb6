"""The objective against the paper's formulas: value, closed-form gradients, gate, alpha, schedules, modes."""

from typing import Any

import numpy as np
import pytest
import torch
from nets import CLASSES, ConvNet, images, labels, mlp, objective_of
from torch import Tensor, nn
from torch.nn import functional as F

from deepsup import Companion, DeeplySupervised, DeepOutput, DeepsupError, Loss, Objective, supervise
from deepsup.objective._checks import check_scores
from deepsup.objective._losses import LOSSES

TAPS = ("conv1", "conv2")


def small_net() -> DeeplySupervised:
    model, example = ConvNet().double().eval(), images(1, torch.float64)
    return supervise(model, at=TAPS, num_classes=CLASSES, companion=Companion.paper(), example=example)


def batch() -> tuple[Tensor, Tensor]:
    return images(6, torch.float64), labels(6)


def run(net: DeeplySupervised, progress: float = 0.0, **settings: Any) -> tuple[Loss, dict[str, Tensor]]:
    """One step from a fixed batch: the loss and the gradient of every parameter."""
    torch.manual_seed(1)
    x, y = batch()
    net.zero_grad(set_to_none=True)
    loss = objective_of(net, **settings)(net(x), y, progress=progress)
    loss.total.backward()
    gradients = {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}
    assert gradients.keys() == dict(net.named_parameters()).keys()  # also 0 is a gradient
    return loss, gradients


def squared_norm(layer: nn.Module) -> Tensor:
    return torch.stack([w.square().sum() for w in layer.parameters()]).sum()


def test_the_value_is_the_papers() -> None:
    net = small_net()
    x, y = batch()
    out = net(x)
    alpha, gamma, c = {"conv1": 0.3, "conv2": 0.7}, {"conv1": 1.0, "conv2": 0.2}, 2.5
    loss = objective_of(net, "squared_hinge", alpha=alpha, gamma=gamma, balance=c)(out, y)

    def bracket(scores: Tensor, layer: nn.Module) -> Tensor:  # |w|^2 + C times the mean loss, by loops
        slack = [
            max(0.0, 1 - (row[t] - row[k])) ** 2
            for row, t in zip(scores.tolist(), y.tolist(), strict=True)
            for k in range(CLASSES)
            if k != t
        ]
        return squared_norm(layer) + c * sum(slack) / len(y)

    p = bracket(out.scores, net.trunk.fc)
    q = {m: alpha[m] * max(0, bracket(out.companions[m], net.head(m).classifier) - gamma[m]) for m in TAPS}
    torch.testing.assert_close(loss.output, p)
    for m in TAPS:
        torch.testing.assert_close(loss.companions[m], q[m])
    torch.testing.assert_close(loss.total, p + sum(q.values()))
    assert loss.output_loss == pytest.approx(LOSSES["squared_hinge"](out.scores, y).mean().item())
    assert loss.companion_losses["conv1"] == pytest.approx(
        LOSSES["squared_hinge"](out.companions["conv1"], y).mean().item()
    )
    assert not loss.output_loss.requires_grad


def closed_form(w: Tensor, z: Tensor, y: Tensor) -> Tensor:
    """The paper's 2w - 2 sum_{k != y} [phi(Z,y) - phi(Z,y_k)] [1 - <w, phi(Z,y) - phi(Z,y_k)>]_+, mean over the batch.

    w [K,D+1] has the bias absorbed, z [B,D+1] ends in 1; phi(Z,k) is Z in row k and 0 elsewhere.
    """

    def phi(features: Tensor, k: int) -> Tensor:
        rows = torch.zeros_like(w)
        rows[k] = features
        return rows

    gradient = torch.zeros_like(w)
    for features, label in zip(z, y.tolist(), strict=True):
        for k in range(len(w)):
            if k != label:
                difference = phi(features, label) - phi(features, k)
                gradient -= 2 * difference * max(0.0, 1 - float((w * difference).sum()))
    return 2 * w + gradient / len(y)


def test_gradients_of_w_out_and_w_m_are_the_papers_closed_form() -> None:
    x, y = torch.randn(5, 6, dtype=torch.float64), labels(5)
    net = supervise(mlp().double(), at=["1", "3"], num_classes=CLASSES, companion=Companion.paper(), example=x)
    alpha = {"1": 0.4, "3": 0.8}
    objective_of(net, "squared_hinge", alpha=alpha)(net(x), y).total.backward()
    layers: dict[str, tuple[Any, Tensor, float]] = {
        "1": (net.head("1").classifier, net.trunk[:2](x), 0.4),
        "3": (net.head("3").classifier, net.trunk[:4](x), 0.8),
        "out": (net.trunk[4], net.trunk[:4](x), 1.0),
    }
    for layer, features, factor in layers.values():
        w = torch.cat([layer.weight, layer.bias[:, None]], 1).detach()
        z = torch.cat([features, torch.ones(5, 1)], 1).detach()
        actual = torch.cat([layer.weight.grad, layer.bias.grad[:, None]], 1)
        torch.testing.assert_close(actual, factor * closed_form(w, z, y), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("below", [0.0, 1e-9, 5.0])
@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_at_and_below_gamma_a_companion_adds_exactly_nothing(loss: str, below: float) -> None:
    net = small_net()
    open_loss, open_gradients = run(net, loss=loss)
    without, without_gradients = run(net, loss=loss, alpha={"conv1": 0, "conv2": 1})
    gamma = {"conv1": open_loss.companions["conv1"].item() + below, "conv2": 0.0}
    gated, gradients = run(net, loss=loss, gamma=gamma)
    assert gated.companions["conv1"] == 0
    assert not gated.active["conv1"]
    assert gated.active["conv2"]
    assert gated.companions["conv2"] == open_loss.companions["conv2"]  # the other one is untouched
    assert gated.total == gated.output + gated.companions["conv2"]
    for name, gradient in gradients.items():
        assert torch.equal(gradient, without_gradients[name]), name
        if name.startswith("heads.conv1"):
            assert gradient.abs().max() == 0
            assert open_gradients[name].abs().max() > 0
    assert without.total == gated.total


@pytest.mark.parametrize("above", [1e-9, 0.1])
def test_above_gamma_a_companion_adds_the_full_bracket(above: float) -> None:
    net = small_net()
    free, free_gradients = run(net)
    gamma = {"conv1": free.companions["conv1"].item() - above, "conv2": 0.0}
    gated, gradients = run(net, gamma=gamma)
    assert gated.companions["conv1"].item() == pytest.approx(above, rel=1e-5)
    assert gated.active["conv1"]
    for name, gradient in gradients.items():
        assert torch.equal(gradient, free_gradients[name]), name


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        ("constant", (1, 1, 1)),
        ("paper", (0.1, 0.05, 0)),
        ("linear", (1, 0.5, 0)),
        ("cut:0.3", (1, 0, 0)),
        (lambda t: t / 2, (0, 0.25, 0.5)),
    ],
)
def test_schedules_move_alpha(schedule: Any, factors: tuple[float, ...]) -> None:
    net = small_net()
    _, plain = run(net, alpha=0)
    full, full_gradients = run(net, alpha=0.6)
    for progress, factor in zip((0.0, 0.5, 1.0), factors, strict=True):
        loss, gradients = run(net, progress, alpha=0.6, schedule=schedule)
        for m in TAPS:
            assert loss.companions[m].item() == pytest.approx(factor * full.companions[m].item(), rel=1e-12)
            assert bool(loss.active[m]) is (factor > 0)
        for name, gradient in gradients.items():
            expected = plain[name] + factor * (full_gradients[name] - plain[name])
            torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-12)
            if factor == 0:
                assert torch.equal(gradient, plain[name]), name


def test_alpha_0_is_a_plain_net() -> None:
    net = small_net()
    loss, gradients = run(net, alpha=0)
    assert loss.total == loss.output
    for name, gradient in gradients.items():
        if name.startswith("heads"):
            assert gradient.abs().max() == 0
    twin = ConvNet().double().eval()
    twin.load_state_dict(net.trunk.state_dict())
    torch.manual_seed(1)
    x, y = batch()
    (squared_norm(twin.fc) + LOSSES["squared_hinge"](twin(x), y).mean()).backward()
    for name, p in twin.named_parameters():
        torch.testing.assert_close(gradients[f"trunk.{name}"], p.grad, rtol=1e-12, atol=1e-14)


def test_the_trunk_gets_the_companions_gradient() -> None:
    net = small_net()
    _, with_companions = run(net, alpha={"conv1": 0, "conv2": 1})
    _, plain = run(net, alpha=0)
    assert not torch.equal(with_companions["trunk.conv1.weight"], plain["trunk.conv1.weight"])
    assert torch.equal(with_companions["trunk.fc.weight"], plain["trunk.fc.weight"])


@pytest.mark.parametrize(("output", "companion"), [("squared_hinge", "softmax"), ("softmax", "squared_hinge")])
def test_output_and_companions_may_have_different_losses(output: str, companion: str) -> None:
    net = small_net()
    x, y = batch()
    out = net(x)
    loss = objective_of(net, output, companion_loss={"conv1": companion, "conv2": "hinge"}, norms=False)(out, y)
    assert loss.output == LOSSES[output](out.scores, y).mean()
    assert loss.companions["conv1"] == LOSSES[companion](out.companions["conv1"], y).mean()
    assert loss.companions["conv2"] == LOSSES["hinge"](out.companions["conv2"], y).mean()


def test_a_callable_loss_may_give_one_value_a_sample_or_their_mean() -> None:
    net = small_net()
    x, y = batch()
    out = net(x)
    expected = objective_of(net, "softmax")(out, y).total
    torch.testing.assert_close(objective_of(net, F.cross_entropy)(out, y).total, expected)
    each = objective_of(net, lambda s, t: F.cross_entropy(s, t, reduction="none"))(out, y).total
    torch.testing.assert_close(each, expected)


@pytest.mark.parametrize("settings", [{"alpha": 0}, {"alpha": 1, "schedule": "linear"}])
def test_nothing_is_nothing_also_when_it_overflows(settings: dict[str, Any]) -> None:
    net = small_net()
    x, y = batch()
    out = net(x.float().double())
    huge = {name: 1e30 * scores.float() for name, scores in out.companions.items()}
    loss = objective_of(net, norms=False, **settings)(DeepOutput(out.scores, huge), y, progress=1.0)
    assert not loss.companion_losses["conv1"].isfinite()
    assert loss.total == loss.output
    loss.total.backward()
    assert all(p.grad.isfinite().all() for p in net.parameters() if p.grad is not None)


def test_a_parametrized_output_layer_counts_with_its_weight() -> None:
    model = ConvNet()
    nn.utils.parametrizations.weight_norm(model.fc)
    net = supervise(model, at=[], num_classes=CLASSES, example=images(1))
    x, y = images(), labels()
    loss = objective_of(net)(net.eval()(x), y)
    expected = model.fc.weight.square().sum() + model.fc.bias.square().sum() + loss.output_loss
    torch.testing.assert_close(loss.output, expected)


def rising(progress: Any) -> Any:
    return progress


def test_progress_does_not_change_the_precision() -> None:
    net = bare_net()
    net = supervise(net.strip(), at=["conv1"], num_classes=CLASSES, example=images(1))
    for progress in (0.5, np.float32(0.5), torch.tensor(0.5, dtype=torch.float64)):
        total = objective_of(net, schedule="linear")(net(images()), labels(), progress=progress).total
        assert total.dtype == torch.float32
        assert total.shape == ()
    for bad in ("0.5", torch.tensor([0.5])):
        with pytest.raises(DeepsupError, match="expected a fraction of training"):
            objective_of(net)(net(images()), labels(), progress=bad)


@pytest.mark.parametrize(
    ("schedule", "name"),
    [
        ("paper", "'paper'"),
        ("linear", "'linear'"),
        ("cut", "'cut:0.25'"),
        ("cut:0.5", "'cut:0.5'"),
        (rising, "'rising'"),
    ],
)
def test_a_schedule_that_moves_needs_the_progress(schedule: Any, name: str) -> None:
    net = small_net()
    x, y = batch()
    objective = objective_of(net, "softmax", schedule=schedule)
    with pytest.raises(DeepsupError, match=f"schedule {name} needs the progress .*progress=step / steps.*'constant'"):
        objective(net(x), y)
    objective(net(x), y, progress=0.5)


def test_a_constant_schedule_needs_no_progress() -> None:
    net = small_net()
    x, y = batch()
    objective = objective_of(net, "softmax", schedule="constant")
    assert torch.equal(objective(net(x), y).total, objective(net(x), y, progress=0.7).total)


def summed(scores: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(scores, y, reduction="sum")


@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("where", ["output", "companion"])
def test_a_loss_that_sums_over_the_batch_is_refused(rows: int, where: str) -> None:
    net = small_net()
    x, y = batch()
    out = net(x[:rows])
    losses = (
        {"loss": summed}
        if where == "output"
        else {"loss": "softmax", "companion_loss": {"conv1": "softmax", "conv2": summed}}
    )
    message = r"it is a sum; expected the mean over the batch .*reduction='mean' or reduction='none'"
    with pytest.raises(DeepsupError, match=message):
        objective_of(net, schedule="constant", **losses)(out, y[:rows])


def test_a_scalar_loss_is_looked_at_once_and_without_a_trace() -> None:
    net = small_net()
    x, y = batch()
    sizes: list[int] = []

    def noisy(scores: Tensor, y: Tensor) -> Tensor:
        sizes.append(len(scores))
        return F.cross_entropy(scores + 1e-3 * torch.randn_like(scores), y)

    objective = objective_of(net, noisy, schedule="constant", norms=False)
    out = net(x)
    torch.manual_seed(5)
    first = objective(out, y)
    torch.manual_seed(5)
    second = objective(out, y)
    assert torch.equal(first.total, second.total)  # the look leaves the random state alone
    assert sizes == [6, 12, 6, 6, 6, 6, 6]  # once for the output and its two companions: it is one loss


def test_a_loss_of_0_says_nothing_about_sums() -> None:
    net = small_net()
    x, y = batch()
    objective = objective_of(net, lambda s, t: s.sum() * 0 if len(s) < 6 else summed(s, t), schedule="constant")
    objective(net(x[:2]), y[:2])
    with pytest.raises(DeepsupError, match="it is a sum"):
        objective(net(x), y)


def test_numbers_of_any_kind_will_do() -> None:
    net = small_net()
    kinds = (0.5, np.float32(0.5), np.float64(0.5), torch.tensor(0.5))
    totals = {run(net, alpha=n, gamma=n, balance=n)[0].total.item() for n in kinds}
    assert len(totals) == 1


def test_a_weight_of_2_is_a_sample_given_twice() -> None:
    net = small_net()
    x, y = batch()
    objective = objective_of(net, gamma=0.5, alpha=0.3)
    weighted = objective(net(x), y, weights=torch.tensor([2.0, 1, 1, 0, 1, 1], dtype=torch.float64))
    rows = torch.tensor([0, 0, 1, 2, 4, 5])
    torch.testing.assert_close(weighted.total, objective(net(x[rows]), y[rows]).total)


@pytest.mark.parametrize(("progress", "share"), [(0.0, 0.5), (0.25, 0.375), (1.0, 0.0)])
def test_the_defaults_are_softmax_and_an_alpha_that_falls_to_0(progress: float, share: float) -> None:
    """Value and gradient by loops; no |w|^2, no gamma, no C."""
    companion = Companion(join="sum", rate=1.0)  # the exact gradient of the objective
    net = supervise(ConvNet().double().eval(), at=TAPS, num_classes=CLASSES, companion=companion, example=batch()[0])
    x, y = batch()

    def by_hand(scores: Tensor) -> Tensor:
        return torch.stack([row.exp().sum().log() - row[k] for row, k in zip(scores, y, strict=True)]).mean()

    out = net(x)
    loss = Objective(net)(out, y, progress=progress)
    expected = by_hand(out.scores) + share * sum(by_hand(out.companions[m]) for m in TAPS)
    torch.testing.assert_close(loss.total, expected)
    assert {bool(active) for active in loss.active.values()} == {share > 0}
    parameters = list(net.parameters())
    found, slow = (torch.autograd.grad(total, parameters, retain_graph=True) for total in (loss.total, expected))
    for mine, other in zip(found, slow, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-12)


def test_the_default_schedule_needs_the_progress() -> None:
    net = supervise(ConvNet(), at=TAPS, num_classes=CLASSES, example=images(1))
    with pytest.raises(DeepsupError, match=r"schedule 'linear' needs the progress .*progress=step / steps"):
        Objective(net)(net(images()), labels())


def test_a_companion_that_starts_at_0_says_that_all_classes_are_alike() -> None:
    net = supervise(ConvNet(), at=TAPS, num_classes=CLASSES, companion=Companion(init="zero"), example=images(1))
    losses = Objective(net)(net(images()), labels(), progress=0.0).companion_losses
    assert [loss.item() for loss in losses.values()] == pytest.approx([np.log(CLASSES)] * len(TAPS), rel=1e-6)


def test_paper_mode_and_caffe_mode() -> None:
    net = small_net()
    x, y = batch()
    out = net(x)
    paper, caffe = Objective.paper(net), Objective.caffe(net)
    bracket = squared_norm(net.head("conv1").classifier) + LOSSES["squared_hinge"](out.companions["conv1"], y).mean()
    torch.testing.assert_close(paper(out, y, progress=0.0).companions["conv1"], 0.1 * bracket)
    expected = LOSSES["squared_hinge_ovr"](out.companions["conv1"], y).mean()
    assert caffe(out, y, progress=0).companions["conv1"] == expected  # weight 1 into the trunk, no |w|^2
    assert caffe(out, y, progress=0.24).active["conv1"]
    assert not caffe(out, y, progress=0.25).active["conv1"]
    assert Objective.caffe(net, loss="softmax")(out, y, progress=0).output == LOSSES["softmax"](out.scores, y).mean()


def test_a_net_without_companions_has_the_output_alone() -> None:
    net = supervise(ConvNet(), at=[], num_classes=CLASSES, example=images(1))
    loss = objective_of(net, "softmax")(net(images()), labels())
    assert loss.total == loss.output
    assert loss.companions == {}


def test_half_precision_scores_are_summed_in_single() -> None:
    net = small_net()
    scores = torch.randn(64, CLASSES)
    out = DeepOutput(scores.bfloat16(), {m: scores.bfloat16() for m in TAPS})
    loss = objective_of(net, norms=False)(out, labels(64))
    assert loss.total.dtype == torch.float32
    assert loss.output == LOSSES["squared_hinge"](scores.bfloat16().float(), labels(64)).mean()


SCORES = torch.zeros(4, CLASSES)


def bare_net() -> DeeplySupervised:
    return supervise(ConvNet(), at=[], num_classes=CLASSES, example=images(1))


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (labels().float(), r"labels are torch\.float32; expected a tensor of whole class numbers"),
        (labels().bool(), r"labels are torch\.bool"),
        ([0, 1, 2, 0], r"labels are list"),
        (torch.tensor([0, 1, 2, 3]), r"labels run from 0 to 3; expected 0 to 2 for 3 classes"),
        (torch.tensor([0, -1, 2, 0]), r"labels run from -1 to 2"),
        (labels(5), r"labels have shape \[5\], scores \[4, 3\]; expected one label per row: \[4\]"),
        (labels().reshape(2, 2), r"labels have shape \[2, 2\]"),
    ],
)
def test_bad_labels(y: Any, message: str) -> None:
    net = bare_net()
    with pytest.raises(DeepsupError, match=message):
        objective_of(net)(DeepOutput(SCORES, {}), y)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.int32, torch.int64])
def test_any_whole_type_of_labels_will_do(dtype: torch.dtype) -> None:
    net = bare_net()
    assert objective_of(net, norms=False)(DeepOutput(SCORES, {}), labels().to(dtype)).total == CLASSES - 1


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_scores_that_are_no_numbers(bad: float) -> None:
    net, scores = small_net(), SCORES.clone()
    scores[2, 1] = bad
    with pytest.raises(DeepsupError, match=r"scores of the output are not finite \(first at sample 2"):
        objective_of(net)(DeepOutput(scores, {}), labels())
    with pytest.raises(DeepsupError, match=r"scores of the companion at 'conv1' are not finite \(first at sample 2"):
        objective_of(net)(DeepOutput(SCORES, {"conv1": scores}), labels())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": -0.1}, r"alpha of 'conv1' is -0\.1; expected a number of at least 0"),
        ({"gamma": -1}, r"gamma of 'conv1' is -1"),
        ({"gamma": {"conv1": 1, "conv2": -2}}, r"gamma of 'conv2' is -2"),
        ({"alpha": float("nan")}, r"alpha of 'conv1' is nan"),
        ({"alpha": "0.3"}, r"alpha='0\.3' is no number and no rule; expected one of: equal, linear"),
        ({"alpha": {"conv1": 1}}, r"alpha has no value for conv2"),
        ({"alpha": {"conv1": 1, "conv3": 1}}, r"alpha names 'conv3', which is not tapped; did you mean"),
        ({"gamma": [1.0]}, r"gamma has 1 values for 2 taps \(conv1, conv2\)"),
        ({"balance": -1}, r"balance is -1"),
        ({"loss": "softmx"}, r"did you mean 'softmax'"),
        ({"schedule": "papr"}, r"did you mean 'paper'"),
        ({"norms": "no"}, r"norms is 'no'; expected True or False"),
        ({"norms": 0}, r"norms is 0; expected True or False"),
        ({"ignore_index": 1.5}, r"ignore_index is 1\.5; expected a whole number such as -100, or None"),
        ({"ignore_index": True}, r"ignore_index is True"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DeepsupError, match=message):
        objective_of(small_net(), **settings)


def test_other_bad_input() -> None:
    net = small_net()
    x, y = batch()
    out = net(x)
    with pytest.raises(DeepsupError, match="net is a ConvNet without companions"):
        Objective(ConvNet())
    with pytest.raises(DeepsupError, match="output is a Tensor; expected what the supervised net returns"):
        objective_of(net)(out.scores, y)  # type: ignore[arg-type]
    with pytest.raises(DeepsupError, match=r"has companions at \['conv9'\], the objective is for \['conv1', 'conv2'\]"):
        objective_of(net)(DeepOutput(out.scores, {"conv9": out.scores}), y)
    with pytest.raises(DeepsupError, match=r"has companions at \[\], the objective is for"):
        objective_of(net)(DeepOutput(out.scores, {}), y)  # a stripped net does not train on in silence
    with pytest.raises(DeepsupError, match="the batch is empty"):
        objective_of(net)(DeepOutput(torch.zeros(0, CLASSES), {}), torch.zeros(0, dtype=torch.long))
    with pytest.raises(DeepsupError, match=r"weights are \[2\]; expected one number per sample: \[6\]"):
        objective_of(net)(out, y, weights=torch.ones(2))
    with pytest.raises(DeepsupError, match="expected numbers of at least 0, not all 0"):
        objective_of(net)(out, y, weights=torch.zeros(6))
    with pytest.raises(DeepsupError, match=r"the loss returns shape \[\] for 6 samples"):
        objective_of(net, F.cross_entropy)(out, y, weights=torch.ones(6))
    with pytest.raises(DeepsupError, match=r"progress=1\.5"):
        objective_of(net)(out, y, progress=1.5)


def test_norms_need_an_output_layer() -> None:
    trunk = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Unflatten(1, (3, 2)), nn.AdaptiveAvgPool1d(1), nn.Flatten())
    net = supervise(trunk, at=["1"], num_classes=CLASSES, example=torch.zeros(1, 6))
    out = net(torch.randn(4, 6))
    with pytest.raises(DeepsupError, match=r"no linear or convolution layer with 3 outputs.*norms=False"):
        objective_of(net)(out, labels())
    objective_of(net, norms=False)(out, labels())


def test_scores_that_are_not_finite_are_found_and_large_ones_are_not() -> None:
    big = torch.full((4, 3), 3e38)  # finite, unlike their sum
    check_scores("the output", big)
    for bad in (torch.inf, -torch.inf, torch.nan):
        with pytest.raises(DeepsupError, match=r"not finite .first at sample 2 of the batch"):
            check_scores("the output", torch.where(torch.arange(4)[:, None] == 2, bad, 1.0))
    with pytest.raises(DeepsupError, match="not finite"):
        check_scores("the output", torch.tensor([[torch.inf, -torch.inf]]))
