"""Companions of models that score every position: the decoder's stages, their scores, pruning, fusion, bad input."""

import copy
from typing import Any

import pytest
import segmentation_models_pytorch as smp
import torch
from dense_nets import LEARNED, UNet, dense_net, masks, pictures
from monai.networks import nets as monai
from nets import CLASSES, ConvNet, TokenNet, images
from torch import Tensor, nn
from torch.nn import functional as F

from deepsup import Companion, DeepsupError, Objective, supervise

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:monai", "ignore::FutureWarning:monai")
DYN: dict[str, Any] = {"kernel_size": [3] * 4, "strides": [1, 2, 2, 2], "upsample_kernel_size": [2] * 3}


def monai_net(name: str, dims: int) -> nn.Module:
    if name == "DynUNet":
        return monai.DynUNet(dims, 1, CLASSES, **DYN, filters=[4, 8, 16, 32])
    if name == "UNet":
        return monai.UNet(dims, 1, CLASSES, channels=(4, 8, 16, 32), strides=(2, 2, 2), num_res_units=1)
    return monai.BasicUNetPlusPlus(dims, 1, CLASSES, features=(4, 4, 8, 8, 16, 4))


# model -> what "auto" must find, and how many times coarser than the image each stage is
STAGES: dict[str, dict[str, int]] = {
    "DynUNet": {"upsamples.0": 4, "upsamples.1": 2},
    "UNet": {"model.1.submodule.1": 4, "model.1": 2},
    "BasicUNetPlusPlus": {"upcat_3_1": 8, "upcat_2_2": 4, "upcat_1_3": 2},
    "Unet": {"decoder.blocks.0": 4, "decoder.blocks.1": 2},
    "UnetPlusPlus": {"decoder.blocks.x_0_0": 4, "decoder.blocks.x_0_1": 2},
}
MODELS = [(name, dims) for name in ("DynUNet", "UNet", "BasicUNetPlusPlus") for dims in (2, 3)]
MODELS += [("Unet", 2), ("UnetPlusPlus", 2)]


def build(name: str, dims: int) -> nn.Module:
    if name.startswith("Unet"):
        small: Any = {"encoder_depth": 3, "decoder_channels": (16, 8, 4), "encoder_weights": None}
        return getattr(smp, name)("resnet18", classes=CLASSES, in_channels=1, **small)  # type: ignore[no-any-return]
    return monai_net(name, dims)


def plain_scores(output: Any) -> Tensor:
    return output[0] if isinstance(output, list) else output


@pytest.mark.parametrize(("name", "dims"), MODELS)
def test_models_of_monai_and_smp_unmodified(name: str, dims: int) -> None:
    model = build(name, dims)
    keys, side = list(model.state_dict()), 32
    x, y = pictures(2, dims, side), masks(2, dims, side)
    net = supervise(model, num_classes=CLASSES, example=x[:1], companion=LEARNED)
    assert {tap: side // size[0] for tap, size in net.sizes.items()} == STAGES[name]
    loss = Objective(net, schedule="constant")(net(x), y)
    loss.total.backward()
    for tap in net.taps:
        assert all(p.grad.any() for p in net.head(tap).classifier.parameters())
    torch.optim.SGD(net.parameters(), lr=1e-3).step()
    net.eval()
    with torch.no_grad():
        out = net(x)
        twin = copy.deepcopy(net)
        assert twin.strip() is twin.trunk
        assert torch.equal(plain_scores(twin.trunk(x)), out.scores)
    stripped = net.strip()
    assert stripped is model
    assert list(model.state_dict()) == keys
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in model.modules())


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_scores_at_every_position_equal_a_linear_layer_at_each(dims: int) -> None:
    companion = Companion(hidden=(5,), length=2.0, init="torch")
    net = dense_net(dims, companion=companion).double()
    seen: dict[str, Tensor] = {}
    for name in net.taps:
        net.trunk.get_submodule(name).register_forward_hook(lambda _l, _a, out, name=name: seen.update({name: out}))
    out = net(pictures(dims=dims).double())
    assert net.taps == ("up3", "up2")
    for name, features in seen.items():
        head = net.head(name)
        vectors = features.flatten(2)  # [B,C,p]
        lengths = vectors.square().sum((1, 2), keepdim=True) / vectors.shape[2]
        scaled = (vectors * 2.0 / lengths.sqrt()).movedim(1, -1)
        expected = head.classifier(F.linear(scaled, head.first.weight, head.first.bias).relu())
        torch.testing.assert_close(out.companions[name].flatten(2).movedim(1, -1), expected, rtol=1e-10, atol=1e-10)


def test_the_default_companion_has_c_times_k_weights() -> None:
    net = dense_net(companion=Companion())
    assert net.head("up3").classifier.weight.shape == (CLASSES, 6)


def test_companions_without_an_example_and_from_a_state_dict() -> None:
    net = dense_net()
    late = supervise(UNet(), at=["up3", "up2"], num_classes=CLASSES)
    parameters = list(late.parameters())
    late.load_state_dict(net.state_dict())
    x = pictures()
    assert torch.equal(late(x).companions["up2"], net(x).companions["up2"])
    assert all(a is b for a, b in zip(parameters, late.parameters(), strict=True))


def test_maps_with_channels_last_and_the_memory_format() -> None:
    class Last(UNet):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(6)

        def forward(self, x: Tensor) -> Tensor:
            z = self.norm(self.down2(F.max_pool2d(self.down1(x), 2)).movedim(1, -1))
            scores: Tensor = self.scores(self.grow(self.up2(torch.cat([z.movedim(-1, 1)] * 2, 1))[:, :4]))
            return scores

    x = pictures()
    net = supervise(Last(), at=["norm"], num_classes=CLASSES, example=x, companion=LEARNED)
    assert net(x).companions["norm"].shape == (3, CLASSES, 8, 8)
    other = dense_net()
    expected = other(x).companions["up2"]
    other.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    found = other(x.to(memory_format=torch.channels_last)).companions["up2"]
    torch.testing.assert_close(found, expected)


# pruning


@pytest.mark.parametrize(("name", "dims"), MODELS)
def test_a_pruned_model_gives_the_companions_scores_to_the_bit(name: str, dims: int) -> None:
    x = pictures(2, dims, 32)
    net = supervise(build(name, dims), num_classes=CLASSES, example=x[:1], companion=LEARNED).eval()
    whole = sum(p.numel() for p in net.trunk.parameters())
    with torch.no_grad():
        out = net(x)
        for tap in net.taps:
            small = net.strip(keep=tap)
            assert torch.equal(small(x), out.companions[tap])
            assert sum(p.numel() for p in small.parameters()) < whole
        assert torch.equal(net(x).companions[tap], out.companions[tap])  # the net stays as it is


def test_a_pruned_classifier_has_no_later_layer_and_trains_on() -> None:
    x = images()
    net = supervise(ConvNet().eval(), at=["pool1"], num_classes=CLASSES, example=x, companion=LEARNED)
    small = net.strip(keep="pool1")
    assert torch.equal(small(x), net(x).companions["pool1"])
    assert [name for name, _ in small.trunk.named_children()] == ["conv1", "pool1"]  # type: ignore[union-attr]
    again = copy.deepcopy(small)
    small(x).sum().backward()
    assert small.trunk.conv1.weight.grad.any()  # type: ignore[union-attr]
    assert torch.equal(again(x), net(x).companions["pool1"])
    assert set(small.trunk.state_dict()) < set(net.trunk.state_dict())  # type: ignore[union-attr]


def test_pruning_inside_a_sequence_of_encoder_layers() -> None:
    x = torch.randn(2, 7, 8)
    net = supervise(TokenNet().eval(), at=["layers.1"], num_classes=CLASSES, example=x, companion=LEARNED)
    small = net.strip(keep="layers.1")
    assert torch.equal(small(x), net(x).companions["layers.1"])
    assert {name.split(".")[2] for name in small.state_dict() if name.startswith("trunk.layers")} == {"0", "1"}


def test_a_pruned_model_can_be_compiled() -> None:
    net = dense_net().eval()
    x = pictures()
    small = net.strip(keep="up3")
    torch._dynamo.reset()
    with torch.no_grad():  # in pieces: the tap ends the forward pass by an exception
        torch.testing.assert_close(torch.compile(small, backend="eager")(x), net(x).companions["up3"])


def test_bad_pruning() -> None:
    net = dense_net()
    with pytest.raises(DeepsupError, match=r"no companion at 'up9'; did you mean"):
        net.strip(keep="up9")
    late = supervise(UNet(), at=["up3"], num_classes=CLASSES)
    with pytest.raises(DeepsupError, match=r"strip\(keep='up3'\) before the net has run.*example="):
        late.strip(keep="up3")

    class LooksAhead(ConvNet):
        def forward(self, images: Tensor) -> Tensor:
            assert self.fc.weight.isfinite().all()
            return super().forward(images)

    cut = supervise(LooksAhead(), at=["conv1"], num_classes=CLASSES, example=images()).strip(keep="conv1")
    with pytest.raises(DeepsupError, match=r"LooksAhead cannot be cut at 'conv1': it needs a later layer first"):
        cut(images())


# fusion


def test_fusion_starts_as_the_mean_of_all_scores_and_is_learned() -> None:
    net = dense_net(fuse=True)
    x = pictures()
    out = net(x)
    assert list(out.companions) == ["up3", "up2", "fuse"] == list(net.outputs)
    grown = [F.interpolate(out.companions[name], size=(16, 16), mode="bilinear") for name in net.taps]
    torch.testing.assert_close(out.companions["fuse"], torch.stack([out.scores, *grown]).mean(0))
    loss = Objective(net, alpha={"up3": 0.0, "up2": 0.0, "fuse": 1.0}, schedule="constant")(out, masks())
    loss.companions["fuse"].backward()
    assert net.classifier("fuse").weight.grad.any()  # type: ignore[union-attr]
    assert net.trunk.up3.weight.grad.any()  # type: ignore[union-attr]
    with torch.no_grad():
        before = net(x).scores
        assert torch.equal(net.strip()(x), before)


# bad input


class Several(UNet):
    def forward(self, x: Tensor) -> Any:
        return [super().forward(x)] * 2


class Last(UNet):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).movedim(1, -1)


class OnePosition(UNet):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).mean((2, 3), keepdim=True)


@pytest.mark.parametrize(
    ("model", "settings", "words"),
    [
        (UNet(), {"num_classes": 7}, r"scores of shape \[1, 3, 16, 16\], num_classes is 7.*build the model with 7"),
        (Several(), {}, r"a list \(Tensor .*without its own deep supervision"),
        (Last(), {}, r"\[1, 16, 16, 3\].*scores\.movedim\(3, 1\)"),
        (OnePosition(), {}, r"\[1, 3, 1, 1\].*scores\.flatten\(1\)"),
        (UNet(), {"companion": Companion(pool="avg")}, r"pool='avg' at 'up3'.*leave pool= out"),
        (ConvNet(), {"fuse": True, "example": images()}, r"fuse=True for ConvNet, .*expected a dense model"),
    ],
)
def test_models_and_settings_that_do_not_fit(model: nn.Module, settings: dict[str, Any], words: str) -> None:
    given = {"num_classes": CLASSES, "example": pictures(1)} | settings
    with pytest.raises(DeepsupError, match=words):
        supervise(model, **given)
    assert not any(layer._forward_hooks for layer in model.modules())


def test_a_tap_without_positions() -> None:
    class Squeezed(UNet):
        def __init__(self) -> None:
            super().__init__()
            self.flat = nn.Flatten()

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + 0 * self.flat(x).sum()

    with pytest.raises(DeepsupError, match=r"layer 'flat' returns \[1, 256\] in a model that scores every position"):
        supervise(Squeezed(), at=["flat"], num_classes=CLASSES, example=pictures(1))
