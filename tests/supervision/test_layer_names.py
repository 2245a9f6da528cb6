"""``at`` in every form that people use, ``tappable``, ``features``, ``paused`` and the companions' own files."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from nets import CLASSES, ConvNet, images, labels, objective_of
from safetensors.torch import save_file
from token_nets import WORDS, LanguageModel, Loop, words
from torch import nn

from deepsup import Companion, DeepsupError, supervise, tappable

MODEL = LanguageModel()


@pytest.mark.parametrize(
    ("at", "taps"),
    [
        ("h.1", "h.1"),
        (["h.0", "h.2"], "h.0 h.2"),
        ("h.*", "h.0 h.1 h.2 h.3"),
        ("h.[12]", "h.1 h.2"),
        (["*.1.down"], "h.1.down"),
        ("down", "h.0.down h.1.down h.2.down h.3.down"),
        ("2.norm", "h.2.norm"),
        ("0.*o*", "h.0.norm h.0.down"),
        ("re:h\\.[0-2]", "h.0 h.1 h.2"),
        ("re:.*down", "h.0.down h.1.down h.2.down h.3.down"),
        (MODEL.h[1], "h.1"),
        ([MODEL.h[0], "h.3"], "h.0 h.3"),
        (MODEL.h, "h.0 h.1 h.2 h.3"),
        ([MODEL.h], "h.0 h.1 h.2 h.3"),
        ("h", "h.0 h.1 h.2 h.3"),
        ({"h": Companion(detach=True)}, "h.0 h.1 h.2 h.3"),
        (lambda name, layer: isinstance(layer, nn.LayerNorm) and name != "norm",
         "h.0.norm h.1.norm h.2.norm h.3.norm"),
        ([0, -2], "h.0 h.2"),
        (1, "h.1"),
        ({"h.[01]": Companion(detach=True), 2: Companion(head="output")}, "h.0 h.1 h.2"),
    ],
)  # fmt: skip
def test_every_way_to_name_layers(at: Any, taps: str) -> None:
    net = supervise(MODEL, at, num_classes=WORDS, example=words())
    try:
        assert net.taps == tuple(taps.split())
    finally:
        net.strip()


def test_numbers_count_the_layers_of_a_sequence() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    assert supervise(model, [1], num_classes=3).taps == ("1",)


@pytest.mark.parametrize(
    ("at", "message"),
    [
        ("h.9", r"no layer 'h\.9' in LanguageModel; did you mean 'h\."),
        ("layer*", r"no layer 'layer\*' in LanguageModel; expected one of: embedding"),
        ("re:g.*", r"no layer 're:g\.\*' in LanguageModel"),
        ("re:(", r"at='re:\(' is no regular expression"),
        (nn.Linear(2, 2), r"no layer \(a Linear\) in LanguageModel"),
        ([9], r"at has the number 9; expected -4 to 3: LanguageModel has 4 main blocks, 'h\.0' to 'h\.3'"),
        ([2.5], r"at has 2\.5; expected a layer's name, a wildcard"),
        (["h.0", "h.*"], r"at names 'h\.0' more than once, by 'h\.0' and by 'h\.\*'"),
        ("re:norm|unembed", r"layer 'unembed' returns the output itself"),
        ("unem*", r"layer 'unembed' returns the output itself or runs after it"),
        (lambda name, layer: False, "at=<lambda> chooses no layer of LanguageModel; expected one of"),  # noqa: ARG005 - as at= calls it
    ],

)  # fmt: skip
def test_names_that_fit_nothing(at: Any, message: str) -> None:
    model = LanguageModel()
    with pytest.raises(DeepsupError, match=message) as caught:
        supervise(model, at, num_classes=WORDS, example=words())
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)
    assert not any(layer._forward_hooks for layer in model.modules())


def test_tappable_lists_names_with_shapes() -> None:
    shapes = tappable(LanguageModel(2), words(2, 5))
    assert shapes["h.0"] == shapes["h.1"] == (2, 5, 16)
    assert shapes["h.0.up"] == (2, 5, 32)
    assert "unembed" not in shapes
    assert [name for name in tappable(Loop(), torch.randn(2, 6)) if "block" in name] == [
        "block#1",
        "block#2",
        "block#3",
    ]
    for name in shapes:  # what it lists can be tapped
        supervise(LanguageModel(2), name, num_classes=WORDS, example=words()).strip()


def test_features_are_what_the_companions_get() -> None:
    model = ConvNet()
    net = supervise(model, ["conv1", "conv2"], num_classes=CLASSES, example=images(1)).eval()
    caught: dict[str, Any] = {}
    model.conv1.register_forward_hook(lambda _layer, _args, output: caught.update(conv1=output))
    x = images()
    features = net.features(x)
    assert list(features) == ["conv1", "conv2"]
    assert torch.equal(features["conv1"], caught["conv1"])
    assert torch.equal(net.head("conv1")(features["conv1"]), net(x).companions["conv1"])


def test_a_paused_net_is_the_bare_model() -> None:
    model = ConvNet().eval()
    plain = copy.deepcopy(model)
    net = supervise(model, "auto", num_classes=CLASSES, example=images(1))
    x = images()
    with net.paused():
        out = net(x)
        assert out.companions == {}
        assert torch.equal(out.scores, plain(x))
        assert net.features(x) == {}
    objective_of(net)(net(images()), labels()).total.backward()


def test_companions_alone_in_a_file(tmp_path: Path) -> None:
    net = supervise(ConvNet(), "auto", num_classes=CLASSES, example=images(1))
    other = supervise(ConvNet(), "auto", num_classes=CLASSES, example=images(1))
    net.save_companions(tmp_path / "heads.safetensors")
    trunk = copy.deepcopy(other.trunk.state_dict())
    other.load_companions(tmp_path / "heads.safetensors")
    for name, weight in net.heads.state_dict().items():
        assert torch.equal(weight, other.heads.state_dict()[name])
    assert all(torch.equal(weight, trunk[name]) for name, weight in other.trunk.state_dict().items())


@pytest.mark.parametrize("damage", ["other", "missing", "text", "long"])
def test_a_file_of_companions_that_does_not_fit(tmp_path: Path, damage: str) -> None:
    net = supervise(ConvNet(), ["conv1"], num_classes=CLASSES, example=images(1))
    path = tmp_path / "heads.safetensors"
    if damage == "other":
        supervise(ConvNet(), ["conv2"], num_classes=CLASSES, example=images(1)).save_companions(path)
    elif damage != "missing":
        path.write_bytes(b"no weights" if damage == "text" else bytes(50_000_000))
    before = copy.deepcopy(net.heads.state_dict())
    with pytest.raises(DeepsupError, match=r"heads\.safetensors") as caught:
        net.load_companions(path)
    assert "\n" not in str(caught.value)
    assert all(torch.equal(weight, before[name]) for name, weight in net.heads.state_dict().items())
    unsized = supervise(ConvNet(), ["conv1"], num_classes=CLASSES)
    with pytest.raises(DeepsupError, match="the net has not run yet"):
        unsized.save_companions(path)


class Tied(nn.Module):
    """One layer under two names; and a layer whose name looks like a call of another one."""

    def __init__(self) -> None:
        super().__init__()
        self.a = self.b = nn.Linear(4, 4)
        self.odd = nn.ModuleDict({"x#1": nn.Linear(4, 4)})
        self.out = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.out(self.odd["x#1"](self.b(x).relu()))
        return scores


def test_a_layer_with_two_names_is_tapped_once() -> None:
    x = torch.randn(2, 4)
    assert supervise(Tied(), "[ab]", num_classes=3, example=x).taps == ("a",)
    assert supervise(Tied(), "b", num_classes=3, example=x).taps == ("b",)


@pytest.mark.parametrize(
    ("at", "message"),
    [
        (["a", "b"], "at names 'a' and 'b', which are one layer under two names"),
        ("odd.x#1", r"layer 'odd\.x#1' has a name that stands for call 1 of a layer 'odd\.x'.*; rename it"),
        (b"a", "at=b'a'; expected layer names"),
        (torch.tensor(1), r"at=tensor\(1\); expected layer names"),
        (lambda name: True, r"at=<lambda> fails \(TypeError: .*at=lambda name, layer"),  # noqa: ARG005 - as at= calls it
    ],
)
def test_names_that_are_ambiguous_or_none(at: Any, message: str) -> None:
    model = Tied()
    with pytest.raises(DeepsupError, match=message):
        supervise(model, at, num_classes=3)
    assert not any(layer._forward_hooks for layer in model.modules())


def test_pauses_that_overlap_end_with_the_last() -> None:
    net = supervise(Tied(), "a", num_classes=3, example=torch.randn(2, 4))
    one, other = net.paused(), net.paused()
    one.__enter__(), other.__enter__(), one.__exit__(None, None, None)
    assert net(torch.randn(2, 4)).companions == {}
    other.__exit__(None, None, None)
    assert [*net(torch.randn(2, 4)).companions] == ["a"]


def test_whole_numbers_are_no_weights_of_companions(tmp_path: Path) -> None:
    net = supervise(Tied(), "a", num_classes=3, example=torch.randn(2, 4))
    save_file({name: each.long() for name, each in net.heads.state_dict().items()}, tmp_path / "heads.safetensors")
    with pytest.raises(DeepsupError, match=r"'a\.classifier\.\w+' is torch\.int64 in the file and torch\.float32"):
        net.load_companions(tmp_path / "heads.safetensors")
