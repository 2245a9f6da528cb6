"""What companions do to gradients: slow heads, joined gradients and their shares, each by hand."""

import copy
import math
from typing import Any

import pytest
import torch
from nets import CLASSES, ConvNet, TokenNet, images, labels
from torch import Tensor, nn
from torch.nn import functional as F

from deepsup import Companion, DeepsupError, Objective, supervise
from deepsup.supervision._gradient import Shares, bounded_sum, slowed

OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9),
    "adam": lambda p, lr: torch.optim.Adam(p, lr=lr, eps=1e-30),
    "rmsprop": lambda p, lr: torch.optim.RMSprop(p, lr=lr, eps=1e-30),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("rate", [1 / 8, 0.01])
def test_every_optimizer_moves_a_slow_head_at_its_rate(name: str, rate: float) -> None:
    """The oracle is a head of rate 1 in a parameter group of its own, with rate times the learning rate."""
    slow = supervise(
        ConvNet().double().eval(), at=["conv1"], num_classes=CLASSES, companion=Companion(rate=rate, hidden=(5,)),
        example=images(1).double(),
    )  # fmt: skip
    grouped = supervise(
        copy.deepcopy(ConvNet().double().eval()), at=["conv1"], num_classes=CLASSES,
        companion=Companion(rate=1.0, hidden=(5,)), example=images(1).double(),
    )  # fmt: skip
    grouped.load_state_dict(slow.state_dict())
    one = OPTIMIZERS[name](slow.parameters(), 0.1)
    groups = [{"params": grouped.trunk.parameters()}, {"params": grouped.heads.parameters(), "lr": 0.1 * rate}]
    two = OPTIMIZERS[name](groups, 0.1)
    x, y = images().double(), labels()
    before = slow.head("conv1").classifier.weight.detach().clone()
    for step in range(4):
        for net, optimizer in ((slow, one), (grouped, two)):
            optimizer.zero_grad()
            Objective(net)(net(x), y, progress=step / 4).total.backward()
            optimizer.step()
    assert not torch.equal(before, slow.head("conv1").classifier.weight)
    for (key, mine), theirs in zip(slow.state_dict().items(), grouped.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-7, atol=1e-9, msg=key)


def test_w_and_its_gradient() -> None:
    v = torch.randn(3, 4, requires_grad=True)
    w = slowed(v, 0.25)
    torch.testing.assert_close(w, v / 4)
    given = torch.randn(3, 4)
    (gradient,) = torch.autograd.grad(w, [v], given)
    assert torch.equal(gradient, given)  # not given / 4
    assert slowed(v, 1.0) is v


def test_norms_and_state_have_w() -> None:
    net = supervise(ConvNet().eval(), at=["conv1"], num_classes=CLASSES, example=images(1))
    head = net.head("conv1")
    v, bias = head.classifier.parameters()
    w = net.state_dict()["heads.conv1.classifier.weight"]
    assert torch.equal(w, v / 8)
    assert torch.equal(head.classifier.weight, w)
    bound = 1 / math.sqrt(w.shape[1])  # torch's initialization is that of w
    assert 0.9 * bound < w.abs().max() <= bound
    out, y = net(images()), labels()
    loss = Objective(net, norms=True, alpha=1.0, schedule="constant")(out, y)
    expected = w.square().sum() + (bias / 8).square().sum() + F.cross_entropy(out.companions["conv1"], y)
    torch.testing.assert_close(loss.companions["conv1"], expected)


def test_weights_go_from_one_rate_to_another() -> None:
    nets = [
        supervise(
            ConvNet().eval(), at=["conv1"], num_classes=CLASSES, companion=Companion(rate=rate), example=images(1)
        )
        for rate in (1.0, 1 / 8, 1 / 2)
    ]
    late = supervise(ConvNet().eval(), at=["conv1"], num_classes=CLASSES, companion=Companion(rate=1 / 4))
    state = nets[0].state_dict()
    for net in (*nets[1:], late):
        net.load_state_dict(state)
        assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), state.values(), strict=True))
    x = images()
    assert len({tuple(net(x).companions["conv1"].flatten().tolist()) for net in (*nets, late)}) == 1
    assert late.head("conv1").classifier.rate == 1 / 4


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([3.0, 0.0], [0.0, 4.0], [2.4, 3.2]),  # 5 long, shortened to 4
        ([1.0, 0.0], [2.0, 0.0], [2.0, 0.0]),
        ([1.0, 0.0], [-2.0, 0.0], [-1.0, 0.0]),  # shorter than both: as it is
        ([0.0, 0.0], [0.5, 0.0], [0.5, 0.0]),
        ([0.0, 0.0], [0.0, 0.0], [0.0, 0.0]),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_bounded_sums(a: list[float], b: list[float], expected: list[float], dtype: torch.dtype) -> None:
    found = bounded_sum(torch.tensor(a, dtype=dtype), torch.tensor(b, dtype=dtype))
    assert found.dtype == dtype
    torch.testing.assert_close(found, torch.tensor(expected, dtype=dtype), rtol=0.01, atol=0)


def test_half_precision_does_not_overflow() -> None:
    big = torch.full((8,), 3e4, dtype=torch.float16)
    torch.testing.assert_close(bounded_sum(big, torch.zeros_like(big)), big)


class Chain(nn.Module):
    """Three linear layers, with which all gradients can be written down."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = nn.Linear(4, 5), nn.Linear(5, 6), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.three(self.two(self.one(x).tanh()).tanh())


def gradients_by_hand(net: Any, x: Tensor, y: Tensor, alpha: float, bounded: bool) -> tuple[Tensor, dict[str, float]]:
    """Return the gradient at the first layer's output, and the shares, by separate backward passes."""
    trunk, total = net.trunk, {}
    z1 = trunk.one(x).detach().requires_grad_()
    z2 = trunk.two(z1.tanh()).detach().requires_grad_()
    own, share, above_share = {}, {}, 0.0
    for name, z in (("one", z1), ("two", z2)):
        (own[name],) = torch.autograd.grad(alpha * F.cross_entropy(net.head(name)(z), y), [z])
    (above,) = torch.autograd.grad(F.cross_entropy(trunk.three(z2.tanh()), y), [z2])
    for name in ("two", "one"):
        if name == "one":
            (above,) = torch.autograd.grad(trunk.two(z1.tanh()), [z1], total["two"])
        total[name] = above + own[name]
        if bounded and total[name].norm() > max(above.norm(), own[name].norm()):
            total[name] = total[name] * max(above.norm(), own[name].norm()) / total[name].norm()
        whole = above.norm() + own[name].norm()
        above_share = ((own[name].norm() + above_share * above.norm()) / whole).item()
        share[name] = above_share
    return total["one"], share


@pytest.mark.parametrize("join", ["bounded", "sum"])
def test_gradients_join_at_every_tap(join: Any) -> None:
    companion = Companion(join=join, rate=1.0)
    net = supervise(Chain().double(), at=["one", "two"], num_classes=CLASSES, companion=companion)
    x, y = torch.randn(6, 4, dtype=torch.float64), torch.randint(CLASSES, (6,))
    net(x)
    objective = Objective(net, alpha=1.5, schedule="constant")
    shares = net.note_shares(True)
    objective(net(x), y).total.backward()
    expected, by_hand = gradients_by_hand(net, x, y, 1.5, join == "bounded")
    torch.testing.assert_close(net.trunk.one.weight.grad, expected.T @ x)
    assert {name: share.item() for name, share in shares.by_tap.items()} == pytest.approx(by_hand)
    measured = net.trunk.one.weight.grad.clone()
    net.zero_grad()
    assert not net.note_shares(False).by_tap
    objective(net(x), y).total.backward()
    assert torch.equal(net.trunk.one.weight.grad, measured)  # to measure changes nothing


def test_the_sum_is_the_gradient_of_the_objective() -> None:
    """And the top layers have it in either case: only what is below a tap is bounded."""
    nets = []
    for join in ("bounded", "sum"):
        torch.manual_seed(0)
        companion = Companion(join=join)  # type: ignore[arg-type]
        net = supervise(Chain().double(), at=["one"], num_classes=CLASSES, companion=companion)
        x, y = torch.randn(6, 4, dtype=torch.float64), torch.randint(CLASSES, (6,))
        net(x)
        Objective(net, alpha=1.0, schedule="constant")(net(x), y).total.backward()
        nets.append(net)
    torch.testing.assert_close(nets[0].trunk.two.weight.grad, nets[1].trunk.two.weight.grad)
    assert not torch.allclose(nets[0].trunk.one.weight.grad, nets[1].trunk.one.weight.grad)
    weight = nets[1].trunk.one.weight
    with torch.no_grad():
        step = torch.zeros_like(weight)
        step[0, 0] = 1e-6

    def total() -> float:
        return Objective(nets[1], alpha=1.0, schedule="constant")(nets[1](x), y).total.item()

    with torch.no_grad():
        weight += step
        up = total()
        weight -= 2 * step
        down = total()
    assert weight.grad is not None
    assert (up - down) / 2e-6 == pytest.approx(weight.grad[0, 0].item(), rel=1e-4)


def test_a_companion_without_a_gradient_leaves_the_models_as_it_is() -> None:
    x, y, grads = images(), labels(), []
    for at in (["conv1"], []):
        torch.manual_seed(0)
        net = supervise(ConvNet().eval(), at=at, num_classes=CLASSES, example=images(1))
        Objective(net)(net(x), y, progress=1.0).total.backward()
        grads.append(net.trunk.conv1.weight.grad)
    torch.testing.assert_close(grads[0], grads[1])


def test_shares_without_any_gradient_are_0() -> None:
    shares = Shares()
    shares.note("a", torch.zeros(3), torch.zeros(3))
    assert shares.by_tap["a"] == 0


def test_an_output_that_is_changed_in_place_later() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True), nn.Linear(5, CLASSES))
    net = supervise(model, at=["0"], num_classes=CLASSES, example=torch.zeros(1, 4))
    x = torch.randn(6, 4)
    out = net(x)
    torch.testing.assert_close(out.companions["0"], net.head("0")(F.linear(x, model[0].weight, model[0].bias)))
    torch.testing.assert_close(out.scores, model(x))
    Objective(net)(out, torch.randint(CLASSES, (6,)), progress=0.0).total.backward()
    assert model[0].weight.grad is not None


class Returning(nn.Module):
    """A layer that returns its features inside something else."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.layer, self.how = nn.Linear(4, 5), how

    def forward(self, x: Tensor) -> Any:
        z = self.layer(x)
        return {"tuple": (z, x), "list": [z, x], "dict": {"z": z, "x": x}}[self.how]


class Unpacking(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.inner, self.out = Returning(how), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.inner(x)
        return self.out(parts["z"] if isinstance(parts, dict) else parts[0])


@pytest.mark.parametrize(("how", "select"), [("tuple", 0), ("list", 0), ("dict", "z")])
def test_a_selected_part_is_joined_too(how: str, select: int | str) -> None:
    torch.manual_seed(0)
    companion = Companion(select=select, rate=1.0)
    net = supervise(Unpacking(how), at=["inner"], num_classes=CLASSES, companion=companion, example=torch.zeros(1, 4))
    x, y = torch.randn(6, 4), torch.randint(CLASSES, (6,))
    Objective(net, alpha=1.0, schedule="constant")(net(x), y).total.backward()
    z = net.trunk.inner.layer(x).detach().requires_grad_()
    (above,) = torch.autograd.grad(F.cross_entropy(net.trunk.out(z), y), [z])
    (own,) = torch.autograd.grad(F.cross_entropy(net.head("inner")(z), y), [z])
    torch.testing.assert_close(net.trunk.inner.layer.weight.grad, bounded_sum(above, own).T @ x)


def widths(norm: bool) -> nn.Module:
    layers = [nn.Conv2d(1, 6, 3, padding=1), *([nn.BatchNorm2d(6)] if norm else []), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Conv2d(6, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))


@pytest.mark.parametrize(("norm", "grid", "why"), [(True, (4, 4), "norm layers"), (False, (28, 28), "no norm layers")])
def test_norm_layers_decide_about_the_grid(norm: bool, grid: tuple[int, int], why: str) -> None:
    model = widths(norm)
    net = supervise(model, at=["2" if norm else "1"], num_classes=3, example=torch.zeros(1, 1, 28, 28))
    assert net.head(net.taps[0]).grid == grid
    assert why in net.summary()


def test_heads_stay_small_beside_the_model() -> None:
    """At most a quarter of the model's parameters, or 500,000: the grid shrinks, as far as it must and no further."""
    model = nn.Sequential(nn.Conv2d(1, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(64, 1000))  # fmt: skip
    net = supervise(model, at=["1"], num_classes=1000, example=torch.zeros(1, 1, 32, 32))
    assert net.head("1").grid == (2, 2)  # 64 * 3 * 3 * 1000 are too many
    assert sum(p.numel() for p in net.heads.parameters()) == 64 * 4 * 1000 + 1000
    assert "averaged to 2x2 (to stay small)" in net.summary()


def test_a_resnet_on_large_images() -> None:
    torchvision = pytest.importorskip("torchvision")
    with torch.device("cpu"):
        model = torchvision.models.resnet18()
    net = supervise(model, num_classes=1000, example=torch.zeros(1, 3, 224, 224))
    heads, trunk = (sum(p.numel() for p in each.parameters()) for each in (net.heads, net.trunk))
    assert heads <= trunk / 4
    assert f"{heads:,} parameters ({heads / trunk:.0%} of the model's)" in net.summary()


def test_sequences_get_less_weight() -> None:
    net = supervise(TokenNet(), at=["layers.0"], num_classes=CLASSES)
    objective = Objective(net)
    net(torch.randn(2, 7, 8))
    assert objective.alpha == {"layers.0": 0.1}  # although the objective was made before the net had run
    maps = supervise(ConvNet(), at=["conv1"], num_classes=CLASSES, example=images(1))
    assert Objective(maps).alpha == {"conv1": 0.5}
    assert Objective(maps, alpha=2.0).alpha == {"conv1": 2.0}


def test_a_summary_needs_sizes() -> None:
    net = supervise(ConvNet(), at=["conv1"], num_classes=CLASSES)
    with pytest.raises(DeepsupError, match=r"summary\(\) before the net has run.*example="):
        net.summary()
    net(images())
    assert net.summary().splitlines()[1].startswith("  conv1  4x8x8, as it is (the model has no norm layers): ")


@pytest.mark.parametrize("bad", [{"rate": 0}, {"rate": True}, {"rate": "slow"}, {"join": "both"}])
def test_bad_settings(bad: dict[str, Any]) -> None:
    with pytest.raises(DeepsupError, match=f"{next(iter(bad))}=.*expected"):
        Companion(**bad)
