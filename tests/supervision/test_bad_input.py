"""What cannot be supervised is refused in one sentence, and the model is left as it was."""

from typing import Any

import pytest
import torch
from nets import CLASSES, ConvNet, images, labels, objective_of
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from deepsup import Companion, DeepsupError, supervise


class Awkward(nn.Module):
    """Every layer that must not be tapped, and one that may."""

    def __init__(self) -> None:
        super().__init__()
        self.fine = nn.Linear(6, 8)
        self.never = nn.Linear(8, 8)
        self.twice = nn.ReLU()
        self.pair = nn.LSTM(8, 8, batch_first=True)
        self.flat = nn.Flatten(0)
        self.rows = nn.Unflatten(0, (-1, 8))
        self.index = ArgMax()
        self.fc = nn.Linear(8, CLASSES)
        self.after = nn.Softmax(1)

    def forward(self, x: Tensor) -> Tensor:
        z = self.twice(self.fine(x))
        z = self.rows(self.flat(self.twice(z)))
        z, _ = self.pair(z[:, None])
        self.index(z)
        scores: Tensor = self.fc(z[:, 0])
        self.after(scores)
        return scores


class ArgMax(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.argmax(-1)


BAD_TAPS = {
    "fin": r"no layer 'fin' in Awkward; did you mean 'fine'\?",
    "zzzz": r"no layer 'zzzz' in Awkward; expected one of: fine, never, twice, pair",
    "": r"no layer '' in Awkward",
    "never": r"layer 'never' is never called in the model's forward; expected a layer that runs once",
    "twice": r"layer 'twice' is called 2 times in one forward.*at=\['twice#1', \.\.\.\]",
    "twice#3": r"layer 'twice' ran 2 times, the tap is 'twice#3'; .*at=\['twice#\*'\] for all",
    "pair": r"layer 'pair' returns a tuple \(Tensor \[4, 1, 8\], a tuple \(Tensor .*\)\); expected one tensor",
    "flat": r"layer 'flat' returns Tensor \[32\] for a batch of 4; expected a floating-point tensor with the batch",
    "index": r"layer 'index' returns Tensor \[4, 1\] of torch\.int64",
    "fc": r"layer 'fc' returns the output itself or runs after it",
    "after": r"layer 'after' returns the output itself or runs after it",
}


def state(model: nn.Module) -> Any:
    return [(name, module.training, *map(len, (module._forward_hooks, module._forward_pre_hooks)))
            for name, module in model.named_modules()]  # fmt: skip


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("name", BAD_TAPS)
def test_a_layer_that_cannot_be_tapped(name: str, lazy: bool) -> None:
    model, x = Awkward(), torch.randn(4, 6)
    before = state(model)
    name = name if lazy or name != "twice" else "twice#3"  # with an example each call gets a companion
    with pytest.raises(DeepsupError, match=BAD_TAPS[name]) as caught:
        supervise(model, at=["fine", name], num_classes=CLASSES, example=None if lazy else x)(x)
    assert "\n" not in str(caught.value)
    assert state(model) == before
    assert model(x).shape == (4, CLASSES)


def test_what_is_fine_is_fine() -> None:
    net = supervise(Awkward(), at=["fine", "rows"], num_classes=CLASSES, example=torch.randn(4, 6))
    objective_of(net)(net(torch.randn(4, 6)), labels()).total.backward()


@pytest.mark.parametrize("name", ["pool2", "flatten", "last"])
def test_a_view_of_the_output_is_the_output(name: str) -> None:
    """NIN's way: the last convolution's map is averaged into the scores."""
    model = nn.Sequential()
    model.add_module("conv", nn.Conv2d(2, CLASSES, 3))
    model.add_module("pool2", nn.AdaptiveAvgPool2d(1))
    model.add_module("flatten", nn.Flatten())
    model.add_module("last", nn.Identity())
    with pytest.raises(DeepsupError, match=f"layer '{name}' returns the output itself"):
        supervise(model, at=[name], num_classes=CLASSES, example=images(2))
    assert supervise(model, at=["conv"], num_classes=CLASSES, example=images(2)).taps == ("conv",)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": 7}, r"returns scores of shape \[2, 3\], num_classes is 7; expected \[B,7\]; build the model"),
        ({"num_classes": 0}, "num_classes=0; expected a whole number of at least 1"),
        ({"num_classes": 3.0}, "num_classes=3.0"),
        ({"example": torch.zeros(2, 5, 8, 8)}, r"ConvNet fails on the example .*\[2, 5, 8, 8\].*; expected a batch"),
        ({"at": ["conv1", "conv1"]}, "at names 'conv1' more than once"),
        ({"at": {"conv1": "avg"}}, r"at\['conv1'\] is 'avg'; expected a Companion"),
        ({"at": "auto", "example": None}, "at='auto' without example="),
        ({"at": [3]}, "at has the number 3; expected -2 to 1: ConvNet has 2 main blocks, 'conv1' to 'conv2'"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    model = ConvNet()
    before = state(model)
    with pytest.raises(DeepsupError, match=message):
        supervise(model, **({"at": ["conv1"], "num_classes": CLASSES, "example": images(2)} | arguments))
    assert state(model) == before


def test_models_that_cannot_be_supervised() -> None:
    net = supervise(ConvNet(), at=["conv1"], num_classes=CLASSES, example=images(1))
    with pytest.raises(DeepsupError, match="supervised already; expected a plain model"):
        supervise(net, at=["trunk.conv1"], num_classes=CLASSES)
    with pytest.raises(DeepsupError, match=r"model is a OptimizedModule; .*supervise first, then compile"):
        supervise(torch.compile(ConvNet()), at=["conv1"], num_classes=CLASSES)
    with pytest.raises(DeepsupError, match="model is a function"):
        supervise(images, at=["conv1"], num_classes=CLASSES)  # type: ignore[arg-type]
    with pytest.raises(DeepsupError, match="no companion at 'conv7'; did you mean 'conv1'"):
        net.head("conv7")


class Pair(ConvNet):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x), x


def test_a_model_that_returns_a_tuple() -> None:
    with pytest.raises(DeepsupError, match=r"Pair returns a tuple .*; expected scores \[B,3\].*'logits'"):
        supervise(Pair(), at=["conv1"], num_classes=CLASSES, example=images(2))


class Named(ConvNet):
    def forward(self, x: Tensor) -> Any:
        scores = super().forward(x)
        return {"logits": scores, "out": 2 * scores}


def test_two_candidates_for_the_scores() -> None:
    model = Named()
    with pytest.raises(DeepsupError, match=r"Named returns 'logits' and 'out', .* so which are its scores is unknown"):
        supervise(model, at=["conv1"], num_classes=CLASSES, example=images(2))
    assert not any(layer._forward_hooks for layer in model.modules())


class Sometimes(nn.Module):
    """Calls a layer again when it feels like it: found out on the forward that does it."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.fc, self.again = nn.Linear(6, 6), nn.Linear(6, CLASSES), False

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        scores: Tensor = self.fc(self.body(x) if self.again else x)
        return scores


def test_a_layer_that_is_called_twice_later_on() -> None:
    model = Sometimes()
    net = supervise(model, at=["body"], num_classes=CLASSES, example=torch.zeros(1, 6))
    model.again = True
    with pytest.raises(DeepsupError, match="layer 'body' is called 2 times"):
        net(torch.zeros(2, 6))
    model.again = False
    assert net(torch.zeros(2, 6)).companions["body"].shape == (2, CLASSES)


def test_in_place_change_that_only_training_shows() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5, inplace=True), nn.Linear(6, CLASSES))
    net = supervise(model, at=["0"], num_classes=CLASSES, example=torch.zeros(1, 6))
    with pytest.raises(DeepsupError, match="output of layer '0' is changed in place after the tap"):
        net.train()(torch.randn(4, 6))


def test_a_model_that_fails_leaves_no_activations_behind() -> None:
    net = supervise(ConvNet(), at={"conv1": Companion()}, num_classes=CLASSES, example=images(1))
    with pytest.raises(RuntimeError):
        net(torch.randn(4, 2, 8))
    assert net._taps["conv1"]._captures.caught is None


def test_a_bad_first_batch_is_forgotten() -> None:
    """Without an example: a batch that the model cannot run on leaves the net as it was."""
    model = ConvNet()
    net = supervise(model, at=["conv1"], num_classes=CLASSES)
    with pytest.raises(DeepsupError, match="ConvNet fails on the example"):
        net(torch.randn(4, 7, 8, 8))
    assert net(images()).companions["conv1"].shape == (4, CLASSES)


def test_a_tap_that_cannot_be_is_refused_again_and_again() -> None:
    net = supervise(Awkward(), at=["twice"], num_classes=CLASSES)
    for _ in range(2):
        with pytest.raises(DeepsupError, match="layer 'twice' is called 2 times"):
            net(torch.randn(4, 6))


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.body, self.fc, self.reentrant = nn.Linear(6, 6), nn.Linear(6, CLASSES), reentrant

    def forward(self, x: Tensor) -> Tensor:
        z = checkpoint(lambda given: self.body(given).relu(), x, use_reentrant=self.reentrant)
        scores: Tensor = self.fc(z)
        return scores


class Whole(nn.Module):
    """A layer whose whole call, hooks included, is in a reentrant checkpoint, as Hugging Face's are."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def __call__(self, x: Tensor) -> Tensor:
        out: Tensor = checkpoint(super().__call__, x, use_reentrant=True)
        return out

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)
        return out


def test_activation_checkpoints() -> None:
    x = torch.randn(4, 6, requires_grad=True)
    net = supervise(Checkpointed(reentrant=False), at=["body"], num_classes=CLASSES, example=x)
    net(x).companions["body"].sum().backward()
    assert net.trunk.body.weight.grad is not None
    net = supervise(Checkpointed(reentrant=True), at=["body"], num_classes=CLASSES, example=x)
    with pytest.raises(DeepsupError, match=r"layer 'body' has no gradient .*use_reentrant=False"):
        net(x)
    # a tap on all of a reentrant checkpoint gets its gradient too late to bound it
    for kind, fits in (("sum", True), ("bounded", False)):
        whole = nn.Sequential(Whole(nn.Linear(6, 8)), nn.Linear(8, CLASSES))
        net = supervise(whole, "0", num_classes=CLASSES, example=x, companion=Companion(join=kind))
        if fits:
            net(x).companions["0"].sum().backward()
        else:
            with pytest.raises(DeepsupError, match=r"layer '0' has no gradient .*use_reentrant=False"):
                net(x)
        assert net.features(x)["0"].requires_grad
    frozen = supervise(ConvNet().requires_grad_(False), at=["conv1"], num_classes=CLASSES, example=images(1))
    frozen(images())  # it is meant to have none


def test_sized_in_inference_mode_and_trained_afterwards() -> None:
    net = supervise(ConvNet(), at=["conv1"], num_classes=CLASSES)
    with torch.inference_mode():
        net(images())
    objective_of(net)(net(images()), labels()).total.backward()


@pytest.mark.parametrize("at", [None, 3.5])
def test_taps_that_are_no_names(at: Any) -> None:
    with pytest.raises(DeepsupError, match=f"at={at}; expected layer names"):
        supervise(ConvNet(), at=at, num_classes=CLASSES)
