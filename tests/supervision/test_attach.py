"""Attaching companions and taking them off: nothing about the model changes, on maps, tokens and vectors."""

import copy
import io
import pickle
from collections.abc import Callable

import pytest
import torch
from nets import CLASSES, LEARNED, ConvNet, TokenNet, images, labels, mlp, objective_of
from torch import Tensor, nn

from deepsup import Companion, DeeplySupervised, DeepOutput, supervise

Kind = tuple[nn.Module, list[str], Callable[[int], Tensor]]
KINDS: dict[str, tuple[Callable[[], nn.Module], list[str], Callable[[int], Tensor]]] = {
    "maps": (ConvNet, ["conv1", "pool1", "conv2"], images),
    "tokens": (TokenNet, ["layers.0", "layers.1"], lambda b: torch.randn(b, 7, 8)),
    "vectors": (mlp, ["0", "1", "3"], lambda b: torch.randn(b, 6)),
}


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    build, taps, inputs = KINDS[request.param]
    return build(), taps, inputs


def hooks(model: nn.Module) -> int:
    return sum(
        len(registry)
        for module in model.modules()
        for name, registry in vars(module).items()
        if name.endswith("_hooks") and isinstance(registry, dict)
    )


def step(net: DeeplySupervised, x: Tensor) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    objective_of(net, alpha=0.3)(net(x), labels(len(x))).total.backward()
    optimizer.step()


def features_by_hand(model: nn.Module, name: str, x: Tensor) -> Tensor:
    """What a layer puts out, caught independently of the library."""
    caught: list[Tensor] = []
    handle = model.get_submodule(name).register_forward_hook(lambda _m, _a, output: caught.append(output.clone()))
    model(x)
    handle.remove()
    return caught[0]


def test_the_net_has_a_short_repr() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    net = supervise(model, at=["1"], num_classes=3, example=torch.zeros(1, 4))
    assert repr(net) == "DeeplySupervised(Sequential, 1 companion at 1)"
    assert repr(supervise(net.strip(), at=[], num_classes=3)) == "DeeplySupervised(Sequential, no companions)"


def test_scores_of_output_and_companions(kind: Kind) -> None:
    model, taps, inputs = kind
    model.eval()
    x = inputs(4)
    expected = model(x)
    net = supervise(model, at=taps, num_classes=CLASSES, companion=Companion.paper(), example=inputs(1))
    out = net(x)
    assert isinstance(out, DeepOutput)
    assert torch.equal(out.scores, expected)
    assert list(out.companions) == taps == list(net.taps)
    for name in taps:
        w = net.head(name).classifier
        flat = features_by_hand(model, name, x).reshape(4, -1)
        torch.testing.assert_close(out.companions[name], flat @ w.weight.T + w.bias)


@pytest.mark.parametrize("sized", ["by an example", "on the first forward"])
def test_strip_gives_the_model_back(kind: Kind, sized: str) -> None:
    model, taps, inputs = kind
    keys, before = list(model.state_dict()), hooks(model)
    net = supervise(
        model, at=taps, num_classes=CLASSES, companion=Companion.paper(),
        example=inputs(1) if sized == "by an example" else None,
    )  # fmt: skip
    step(net, inputs(6))
    x = inputs(5)
    trained = net.eval()(x).scores
    plain = net.strip()
    assert plain is model
    assert list(plain.state_dict()) == keys
    assert hooks(plain) == before == 0
    assert torch.equal(plain(x), trained)
    assert net(x).companions == {}  # the net lives on without companions
    assert torch.equal(net(x).scores, trained)
    assert net.strip() is model  # and once more does no harm


def test_hooks_that_were_there_before_stay() -> None:
    model = ConvNet()
    calls: list[str] = []
    model.conv1.register_forward_hook(lambda *_: calls.append("mine"))
    supervise(model, at=["conv1"], num_classes=CLASSES, example=images(1)).strip()
    calls.clear()
    model(images())
    assert calls == ["mine"]
    assert hooks(model) == 1


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "torch.save"])
@pytest.mark.parametrize("ran", [True, False])
def test_a_copy_is_a_net_of_its_own(kind: Kind, how: str, ran: bool) -> None:
    model, taps, inputs = kind
    net = supervise(model, at=taps, num_classes=CLASSES, companion=Companion.paper(), example=inputs(1)).eval()
    if ran:
        net(inputs(3))
    if how == "deepcopy":
        twin = copy.deepcopy(net)
    elif how == "pickle":
        twin = pickle.loads(pickle.dumps(net))
    else:
        buffer = io.BytesIO()
        torch.save(net, buffer)
        buffer.seek(0)
        twin = torch.load(buffer, weights_only=False)
    x = inputs(4)
    expected = net(x)
    actual = twin(x)
    assert torch.equal(actual.scores, expected.scores)
    for name in taps:
        assert torch.equal(actual.companions[name], expected.companions[name])
    with torch.no_grad():
        for p in twin.parameters():
            p.zero_()
    assert torch.equal(net(x).scores, expected.scores)  # the first is not touched by its copy
    assert hooks(twin.strip()) == 0
    assert torch.equal(net(x).companions[taps[0]], expected.companions[taps[0]])
    assert hooks(model) == len(taps)


def test_state_dict_round_trip(kind: Kind) -> None:
    model, taps, inputs = kind
    net = supervise(model, at=taps, num_classes=CLASSES, companion=Companion.paper(), example=inputs(1)).eval()
    x = inputs(4)
    for example in (inputs(1), None):  # into companions that have their widths, and into ones that have not
        other = copy.deepcopy(model)
        for module in other.modules():
            module._forward_hooks.clear()
        with torch.no_grad():
            for p in other.parameters():
                p.normal_()
        twin = supervise(
            other, at=taps, num_classes=CLASSES, companion=Companion(pool="none", init="caffe"), example=example
        ).eval()
        twin.load_state_dict(net.state_dict())
        assert torch.equal(twin(x).scores, net(x).scores)
        for name in taps:
            assert torch.equal(twin(x).companions[name], net(x).companions[name])
        assert list(twin.state_dict()) == list(net.state_dict())


def test_an_optimizer_made_before_the_first_forward_trains_the_companions() -> None:
    net = supervise(ConvNet(), at=["conv1"], num_classes=CLASSES)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    objective = objective_of(net)
    objective(net(images()), labels()).total.backward()
    before = net.head("conv1").classifier.weight.detach().clone()
    optimizer.step()
    assert not torch.equal(net.head("conv1").classifier.weight, before)


class Noise(nn.Module):
    """A layer that draws random numbers in evaluation too."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x)


@pytest.mark.parametrize("training", [True, False])
def test_supervising_changes_nothing_in_the_model(training: bool) -> None:
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), Noise(), nn.Flatten(), nn.Linear(144, CLASSES))
    model.train(training)
    model[2].eval()
    x = images()
    before = copy.deepcopy(model.state_dict())
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    supervise(model, at=[], num_classes=CLASSES, example=x)
    assert torch.rand(1) == expected  # the random state too
    supervise(model, at=["0"], num_classes=CLASSES, example=x)
    assert [module.training for module in model] == [training, training, False, training, training]
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("sized", ["by an example", "on the first forward"])
@pytest.mark.parametrize("training", [True, False])
def test_a_net_has_the_mode_of_its_model(training: bool, sized: str) -> None:
    model = ConvNet().train(training)
    model.drop.train(not training)
    modes = [module.training for module in model.modules()]
    net = supervise(
        model, at=["conv1"], num_classes=CLASSES, companion=Companion(hidden=(4,)),
        example=images(1) if sized == "by an example" else None,
    )  # fmt: skip
    for _ in range(2):
        assert net.training is training
        assert all(module.training is training for module in net.heads.modules())
        assert [module.training for module in model.modules()] == modes
        net(images())
    assert [module.training for module in net.strip().modules()] == modes
    assert net.heads.training is training


def test_same_type_in_training_evaluation_and_without_gradients() -> None:
    net = supervise(ConvNet(), at=["conv1"], num_classes=CLASSES, example=images(1))
    outputs = [net.train()(images()), net.eval()(images())]
    with torch.no_grad():
        outputs.append(net(images()))
    with torch.inference_mode():
        outputs.append(net(images()))
    for out in outputs:
        assert type(out) is DeepOutput
        assert out.companions["conv1"].shape == out.scores.shape == (4, CLASSES)


def test_features_keep_their_gradient_and_channels_last() -> None:
    model = ConvNet().to(memory_format=torch.channels_last)
    net = supervise(model, at=["conv1"], num_classes=CLASSES, companion=LEARNED, example=images(1))
    seen: list[Tensor] = []
    net.head("conv1").register_forward_pre_hook(lambda _m, args: seen.append(args[0]))
    out = net(images().to(memory_format=torch.channels_last))
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    assert not seen[0].is_contiguous()
    out.companions["conv1"].sum().backward()
    assert model.conv1.weight.grad is not None
    assert model.conv1.weight.grad.abs().sum() > 0
    assert model.conv2.weight.grad is None


def test_autocast_in_bfloat16() -> None:
    net = supervise(ConvNet(), at=["conv1", "pool1"], num_classes=CLASSES, example=images(1))
    objective = objective_of(net, alpha=0.3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = net(images())
        loss = objective(out, labels())
    assert out.companions["conv1"].dtype == torch.bfloat16
    assert loss.total.dtype == torch.float32
    loss.total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


class InPlace(nn.Module):
    """A raw convolution whose output an in-place ReLU overwrites: the tap of the authors' code in torchvision style."""

    def __init__(self, train_only: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.change = nn.Dropout(0.5, inplace=True) if train_only else nn.ReLU(inplace=True)
        self.fc = nn.Linear(4 * 64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.fc(self.change(self.conv(x)).flatten(1))
        return scores


def test_a_tap_sees_what_the_layer_gave_also_when_it_is_overwritten() -> None:
    model = InPlace()
    net = supervise(model, at=["conv"], num_classes=CLASSES, companion=Companion.paper(), example=images(1))
    x = images()
    w = net.head("conv").classifier
    torch.testing.assert_close(net(x).companions["conv"], model.conv(x).flatten(1) @ w.weight.T + w.bias)
    assert model.conv(x).min() < 0  # the ReLU would have made a difference
    net(x).companions["conv"].sum().backward()
    assert model.conv.weight.grad is not None


def test_heads_follow_the_models_precision() -> None:
    net = supervise(ConvNet().double(), at=["conv1"], num_classes=CLASSES)
    assert net(images(dtype=torch.float64)).companions["conv1"].dtype == torch.float64


def test_layers_with_awkward_names() -> None:
    model = nn.Sequential()
    model.add_module("keys", nn.Linear(6, 7))
    model.add_module("values", nn.Sequential(nn.Linear(7, 5), nn.ReLU()))
    model.add_module("out", nn.Linear(5, CLASSES))
    net = supervise(model, at=["keys", "values.0", "values"], num_classes=CLASSES, example=torch.zeros(1, 6))
    assert list(net(torch.randn(2, 6)).companions) == ["keys", "values.0", "values"]


def test_the_model_alone_still_runs_and_leaves_nothing_behind() -> None:
    model = ConvNet()
    net = supervise(model, at=["conv1"], num_classes=CLASSES, example=images(1))
    model(images())
    assert net._taps["conv1"]._captures.caught is None
    net(images())
    assert net._taps["conv1"]._captures.caught is None


def test_examples_of_several_arguments() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right, self.fc = nn.Linear(6, 4), nn.Linear(3, 4), nn.Linear(4, CLASSES)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            scores: Tensor = self.fc(self.left(x) + self.right(y))
            return scores

    x, y = torch.randn(2, 6), torch.randn(2, 3)
    for example in ((x, y), {"x": x, "y": y}):
        net = supervise(Two(), at=["left"], num_classes=CLASSES, example=example)
        assert net(x, y=y).companions["left"].shape == (2, CLASSES)
