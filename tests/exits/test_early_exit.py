"""Early exits beside the same thing done the slow way: all companions on all samples, then a loop over the samples."""

import copy

import pytest
import torch
from dense_nets import dense_net
from nets import CLASSES, LEARNED, ConvNet, TokenNet, images, mlp
from torch import Tensor, nn

from deepsup import Companion, DeeplySupervised, DeepsupError, EarlyExit, create_network, supervise
from deepsup.exits._lean_head import LeanHead


def resnet(package: str) -> nn.Module:
    if package == "torchvision":
        import torchvision

        model: nn.Module = torchvision.models.resnet18(num_classes=CLASSES)
    else:
        import timm

        model = timm.create_model("resnet18", num_classes=CLASSES)
    return model


def nin() -> nn.Module:
    return create_network("nin-mnist", num_classes=CLASSES, in_channels=2, image_size=16, width=0.1)


MODELS = {
    "cnn": (ConvNet, ["conv1", "pool1"], [2, 8, 8]),
    "mlp": (mlp, ["1", "3"], [6]),
    "nin": (nin, ["conv1", "conv2", "conv3"], [2, 16, 16]),
    "fast": (lambda: create_network("fast", num_classes=CLASSES, image_size=16, widths=(8, 8, 8)), ["group1", "group2"],
             [3, 16, 16]),
    "torchvision": (lambda: resnet("torchvision"), ["layer1", "layer2.0", "layer3"], [3, 32, 32]),
    "inside a block": (lambda: resnet("torchvision"), ["layer1.0.bn1", "layer1.1.conv2"], [3, 32, 32]),
    "timm": (lambda: resnet("timm"), ["layer1", "layer2", "layer3"], [3, 32, 32]),
    "tokens": (TokenNet, ["layers.0", "layers.1"], [4, 8]),
}  # fmt: skip


def supervised(kind: str, batch: int = 12) -> tuple[DeeplySupervised, Tensor]:
    """A net with companions that differ, in evaluation mode, and a batch."""
    build, taps, shape = MODELS[kind]
    inputs = torch.randn(batch, *shape)
    net = supervise(build(), taps, num_classes=CLASSES, example=inputs[:2], companion=LEARNED)  # type: ignore[operator]
    for tap in taps:  # far apart, so that some samples are sure
        nn.init.normal_(net.head(tap).classifier.weight)
    return net.eval(), inputs


def middle(net: DeeplySupervised, inputs: Tensor) -> dict[str, float]:
    """Thresholds that about a third of the samples reach at each tap."""
    with torch.no_grad():
        out = net(inputs)
    return {tap: float(scores.softmax(1).amax(1).quantile(0.67)) - 1e-4 for tap, scores in out.companions.items()}


@pytest.mark.parametrize("kind", MODELS)
def test_a_loop_over_the_samples_gives_the_same(kind: str) -> None:
    net, inputs = supervised(kind)
    thresholds = middle(net, inputs)
    got = EarlyExit(net, thresholds)(inputs)
    with torch.no_grad():
        out = net(inputs)
    for row in range(len(inputs)):
        expected = len(net.taps)
        for number, tap in enumerate(net.taps):
            chances = out.companions[tap][row].softmax(0)
            if chances.max() > thresholds[tap]:
                expected = number
                break
        scores = [*out.companions.values(), out.scores][expected][row]
        torch.testing.assert_close(got.scores[row], scores, rtol=1e-4, atol=1e-4)
        assert got.exits[row] == expected
        assert got.labels[row] == got.scores[row].argmax()
        torch.testing.assert_close(got.confidences[row], got.scores[row].softmax(0).max())
    assert (got.exits < len(net.taps)).any()
    assert got.names == (*net.taps, "output")


@pytest.mark.parametrize("kind", MODELS)
def test_samples_that_reach_the_end_have_the_scores_of_the_plain_net_bit_for_bit(kind: str) -> None:
    net, inputs = supervised(kind)
    plain = copy.deepcopy(net).strip()
    early = EarlyExit(net, [1.0] * len(net.taps))
    for batch in (inputs, inputs[:1], inputs[:5]):
        with torch.inference_mode():
            expected = plain(batch)
        got = early(batch)
        assert (got.exits == len(net.taps)).all()
        assert torch.equal(got.scores, expected)


@pytest.mark.parametrize("kind", ["cnn", "nin", "mlp"])
def test_one_sample_at_a_time_gives_what_the_batch_gives(kind: str) -> None:
    net, inputs = supervised(kind)
    early = EarlyExit(net, middle(net, inputs))
    whole = early(inputs)
    singles = [early(inputs[row : row + 1]) for row in range(len(inputs))]
    assert [int(each.exits) for each in singles] == whole.exits.tolist()
    torch.testing.assert_close(torch.cat([each.scores for each in singles]), whole.scores, rtol=1e-4, atol=1e-4)


def test_it_unpacks_and_all_may_leave_at_the_first() -> None:
    net, inputs = supervised("cnn")
    early = EarlyExit(net, [0.0, None], temperatures=2.0)
    labels, confidences, exits = early(inputs)
    with torch.no_grad():
        scores = net(inputs).companions["conv1"]
    assert exits.tolist() == [0] * len(inputs)
    assert labels.tolist() == scores.argmax(1).tolist()
    torch.testing.assert_close(confidences, (scores / 2).softmax(1).amax(1))
    assert early.names == ("conv1", "output")


def test_without_an_exit_the_plain_net_runs() -> None:
    net, inputs = supervised("cnn")
    early = EarlyExit(net, [None, None])
    assert early.active == ()
    assert len(early.stages) == 1
    with torch.no_grad():
        assert torch.equal(early(inputs).scores, net(inputs).scores)
    assert early(inputs).exits.tolist() == [0] * len(inputs)


def test_taps_in_any_order_and_one_inside_another() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(6, 7), nn.ReLU()), nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, CLASSES))
    net = supervise(model, ["2", "0", "0.0"], num_classes=CLASSES, example=torch.zeros(2, 6), companion=LEARNED).eval()
    early = EarlyExit(net, {"2": 1.0, "0.0": 1.0, "0": 1.0})
    assert early.names == ("0.0", "0", "2", "output")
    inputs = torch.randn(4, 6)
    with torch.no_grad():
        assert torch.equal(early(inputs).scores, model(inputs))


def test_the_net_stays_as_it_was_and_shares_its_weights() -> None:
    net, inputs = supervised("torchvision", 4)
    net.train()
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    early = EarlyExit(net, [1.0] * 3)
    early(inputs)
    assert net.training
    assert net.taps == ("layer1", "layer2.0", "layer3")
    assert all(torch.equal(tensor, state[name]) for name, tensor in net.state_dict().items())
    assert {p.data_ptr() for p in early.model.parameters()} == {p.data_ptr() for p in net.trunk.parameters()}
    assert net(inputs).scores.requires_grad


class Checking(nn.Module):
    """Layers in order behind a check that torch.fx cannot follow."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        if not isinstance(x, Tensor) or x.shape[1] != 6 or float(x.sum()) > 1e9:
            raise ValueError("six numbers")
        scores: Tensor = self.c(self.b(self.a(x)))
        return scores


def test_children_that_run_in_order_need_no_trace() -> None:
    net = supervise(Checking(), ["a", "b"], num_classes=CLASSES, example=torch.zeros(2, 6), companion=LEARNED).eval()
    inputs = torch.randn(5, 6)
    with torch.no_grad():
        assert torch.equal(EarlyExit(net, [1.0, 1.0])(inputs).scores, net(inputs).scores)


class Deciding(Checking):
    """Takes one way or the other, by its values."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x)
        scores: Tensor = self.c(self.b(y) if y.sum() > 0 else y * 2)
        return scores


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = Deciding()

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.body(x) + 1
        return scores


class RowsFirst(nn.Module):
    """Carries a value past the tap whose first dimension is not the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.c = nn.Linear(6, 6), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        turned = x.t() * 2
        scores: Tensor = self.c(self.a(x) + turned.t())
        return scores


class Mixing(RowsFirst):
    """Mixes the samples of a batch after the tap."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x)
        scores: Tensor = self.c(y - y.mean(0))
        return scores


@pytest.mark.parametrize(
    ("model", "tap", "said"),
    [
        (Around, "body.a", r"cannot be cut into stages: the forward of layer 'body' \(Deciding\)"),
        (Deciding, "a", "the forward of Deciding, which contains the taps"),
        (RowsFirst, "a", r"cannot be cut at 'a': Tensor \[6, 3\] for a batch of 3 is used after it"),
        (Mixing, "a", "Mixing cut into stages at a gives other scores than the model itself"),
    ],
)
def test_a_model_that_cannot_be_cut_is_named(model: type[nn.Module], tap: str, said: str) -> None:
    net = supervise(model(), [tap], num_classes=CLASSES, example=torch.ones(3, 6), companion=LEARNED).eval()
    with pytest.raises(DeepsupError, match=said):
        EarlyExit(net, [0.5])(torch.randn(4, 6))


@pytest.mark.parametrize(
    ("thresholds", "said"),
    [
        ([0.5], "1 thresholds for 2 taps"),
        ([0.5, 0.5, 0.5], "3 thresholds for 2 taps"),
        ([0.5, 1.5], r"threshold of 'pool1' is 1\.5; expected a confidence within 0 and 1"),
        ([-0.1, 0.5], r"threshold of 'conv1' is -0\.1"),
        ([float("nan"), 0.5], "is nan"),
        ([True, 0.5], "is True"),
        (["0.5", 0.5], "is '0.5'"),
        ({"conv9": 0.5}, "'conv9', which is not tapped; did you mean 'conv1'"),
        (0.5, "thresholds=0.5; expected one per tap"),
        ("0.5", "thresholds='0.5'; expected one per tap"),
    ],
)
def test_bad_thresholds(thresholds: object, said: str) -> None:
    net, _ = supervised("cnn")
    with pytest.raises(DeepsupError, match=said):
        EarlyExit(net, thresholds)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("temperatures", "said"),
    [
        (0, "temperature of 'conv1' is 0"),
        ({"pool1": -1.0}, "of 'pool1' is -1.0"),
        ({"x": 1.0}, "'x', which is no exit"),
    ],
)
def test_bad_temperatures(temperatures: object, said: str) -> None:
    net, _ = supervised("cnn")
    with pytest.raises(DeepsupError, match=said):
        EarlyExit(net, [0.5, 0.5], temperatures)  # type: ignore[arg-type]


def test_bad_nets_and_batches() -> None:
    net, inputs = supervised("cnn")
    early = EarlyExit(net, [0.5, 0.5])
    with pytest.raises(DeepsupError, match=r"the batch is empty \(Tensor \[0, 2, 8, 8\]\)"):
        early(inputs[:0])
    with pytest.raises(DeepsupError, match="the input is nothing"):
        early()
    with pytest.raises(DeepsupError, match="ConvNet without companions"):
        EarlyExit(ConvNet(), [0.5])  # type: ignore[arg-type]
    with pytest.raises(DeepsupError, match="has not run yet"):
        EarlyExit(supervise(ConvNet(), ["conv1"], num_classes=CLASSES), [0.5])
    with pytest.raises(DeepsupError, match=r"net scores every position .UNet., so no sample is done.*strip.keep="):
        EarlyExit(dense_net(), [0.5, 0.5])
    one = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    with pytest.raises(DeepsupError, match=r"one score per sample .num_classes=1., whose softmax is always sure"):
        EarlyExit(supervise(one, ["1"], num_classes=1, example=torch.zeros(1, 4)), [0.5])
    net.strip()
    with pytest.raises(DeepsupError, match="has no companions: it was stripped"):
        EarlyExit(net, [])


def test_a_sample_of_nan_goes_to_the_end_and_harms_no_other() -> None:
    net, inputs = supervised("cnn")
    broken = inputs.clone()
    broken[1] = torch.nan
    out, fine = (EarlyExit(net, [0.0, 0.0])(each) for each in (broken, inputs))
    others = [row for row in range(len(inputs)) if row != 1]
    assert out.exits.tolist() == [2 if row == 1 else 0 for row in range(len(inputs))]
    assert out.scores[1].isnan().all()
    torch.testing.assert_close(out.scores[others], fine.scores[others])


@pytest.mark.parametrize("pool", ["none", "avg", "max", 2])
@pytest.mark.parametrize("length", [None, 8.0])
def test_the_lean_companion_has_the_scores_of_the_companion(pool: object, length: float | None) -> None:
    companion = Companion(pool=pool, hidden=(6,), length=length, init="torch")  # type: ignore[arg-type]
    net = supervise(ConvNet(), ["conv1"], num_classes=CLASSES, example=images(2), companion=companion).eval()
    for features in (torch.randn(3, 4, 8, 8), torch.zeros(3, 4, 8, 8)):
        for each in (features, features.to(memory_format=torch.channels_last)):
            with torch.no_grad():
                torch.testing.assert_close(LeanHead(net.head("conv1"))(each), net.head("conv1")(each))
