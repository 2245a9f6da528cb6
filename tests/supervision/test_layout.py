"""Where the channels of a layer's output lie: every companion's input against pooling by hand over the right axes."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
import torchvision
from nets import CLASSES, ConvNet, TokenNet, images, linear
from torch import Tensor, nn

from deepsup import Companion, DeeplySupervised, DeepsupError, create_network, list_networks, supervise

FIRST, LAST = "channels_first", "channels_last"


def output_of(model: nn.Module, name: str, x: Tensor) -> Tensor:
    """What a layer puts out, caught independently of the library."""
    caught: list[Tensor] = []
    handle = model.get_submodule(name).register_forward_hook(lambda _m, _a, output: caught.append(output.clone()))
    with torch.no_grad():
        model(x)
    handle.remove()
    return caught[0]


def by_hand(features: Tensor, layout: str, how: Any) -> Tensor:
    """Pool image by image, channel by channel."""
    rows = []
    for image in features:
        channels = image.unbind(0 if layout == FIRST else -1)
        if how == "avg":
            rows.append(torch.stack([channel.mean() for channel in channels]))
        elif how == "max":
            rows.append(torch.stack([channel.max() for channel in channels]))
        else:
            pooled = []
            for channel in channels:
                for axis in range(channel.ndim):
                    size = channel.shape[axis]
                    parts = min(how, size)
                    bounds = [(i * size // parts, -(-(i + 1) * size // parts)) for i in range(parts)]
                    channel = torch.stack([channel.movedim(axis, 0)[a:b].mean(0) for a, b in bounds]).movedim(0, axis)
                pooled.append(channel.flatten())
            rows.append(torch.cat(pooled))
    return torch.stack(rows)


def check(model: nn.Module, taps: dict[str, str], x: Tensor, classes: int, lazy: bool = False) -> DeeplySupervised:
    """Supervise with every way of pooling; compare what the classifier makes of the layer's output by hand."""
    model.eval()
    for how in ("avg", "max", 2):
        net = supervise(
            model, at=list(taps), num_classes=classes, companion=linear(how), example=None if lazy else x
        )  # fmt: skip
        out = net(x)
        for name, layout in taps.items():
            assert net.head(name).layout == layout, name
            features = by_hand(output_of(model, name, x), layout, how)
            expected = net.head(name).classifier(features)
            torch.testing.assert_close(out.companions[name], expected, rtol=1e-4, atol=1e-5, msg=name)
        kept = net
        if how != 2:
            net.strip()
    return kept


def torchvision_swin() -> nn.Module:
    swin = torchvision.models.SwinTransformer
    return swin([4, 4], embed_dim=24, depths=[1, 1], num_heads=[2, 2], window_size=[4, 4], num_classes=10)


def torchvision_convnext(width: int = 24) -> nn.Module:
    block = torchvision.models.convnext.CNBlockConfig
    return torchvision.models.ConvNeXt([block(width, 2 * width, 2), block(2 * width, None, 2)], num_classes=10)


def from_timm(name: str, **small: Any) -> nn.Module:
    model: nn.Module = timm.create_model(name, num_classes=10, **small)
    return model


def timm_swin() -> nn.Module:
    small = {"img_size": 56, "embed_dim": 24, "depths": (1, 1), "num_heads": (2, 2)}
    return from_timm("swin_tiny_patch4_window7_224", **small)


def timm_vit() -> nn.Module:
    return from_timm("vit_tiny_patch16_224", img_size=64, embed_dim=24, depth=4)


MODELS: dict[str, tuple[Callable[[], nn.Module], int, dict[str, str]]] = {
    "torchvision Swin": (torchvision_swin, 64, {"features.0": LAST, "features.1": LAST, "features.2": LAST}),
    "timm Swin": (timm_swin, 56, {"layers.0": LAST, "layers.1": LAST, "norm": LAST}),
    "torchvision ConvNeXt": (torchvision_convnext, 64, {
        "features.0": FIRST, "features.1": FIRST, "features.2.0": FIRST, "features.3": FIRST,
        "features.1.0.block.1": LAST, "features.1.0.block.2": LAST,
    }),
    "timm ConvNeXt": (lambda: from_timm("convnext_atto"), 64, {"stem": FIRST, "stages.0": FIRST, "stages.2": FIRST}),
    "timm ViT": (timm_vit, 64, {"blocks.1": LAST, "blocks.2.norm1": LAST}),
    "torchvision ResNet": (lambda: torchvision.models.resnet18(num_classes=10), 64, {
        "relu": FIRST, "layer1": FIRST, "layer3.0.bn1": FIRST,
    }),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_models_that_nobody_here_wrote(name: str) -> None:
    build, size, taps = MODELS[name]
    check(build(), taps, torch.randn(2, 3, size, size), 10)


def conv1d_net(channels: int = 6) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv1d(2, channels, 3, padding=1), nn.BatchNorm1d(channels), nn.ReLU(), nn.MaxPool1d(2),
        nn.Sequential(nn.Conv1d(channels, channels, 3, padding=1), nn.Dropout(0.1)), nn.GELU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(channels, CLASSES),
    )  # fmt: skip


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("length", [12, 6, 9])  # 6: as long as it has channels
def test_maps_of_one_dimension(length: int, lazy: bool) -> None:
    taps = dict.fromkeys(["0", "1", "2", "3", "4", "5"], FIRST)
    check(conv1d_net(), taps, torch.randn(3, 2, length), CLASSES, lazy)


class Gated(nn.Module):
    """A block whose convolution has twice its channels; nothing inside it has the shape of its output."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.glu, self.act = nn.Conv1d(2, 12, 3, padding=1), nn.GLU(dim=1), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.act(self.glu(self.conv(x)))
        return z


@pytest.mark.parametrize("length", [11, 6, 12])
def test_blocks_that_halve_their_channels(length: int) -> None:
    model = nn.Sequential(Gated(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(6, CLASSES))
    check(model, {"0": FIRST, "0.glu": FIRST, "0.act": FIRST}, torch.randn(3, 2, length), CLASSES)


@pytest.mark.parametrize("name", list_networks())
def test_our_own_networks(name: str) -> None:
    network = create_network(name)
    x = torch.zeros(2, network.in_channels, network.image_size, network.image_size)
    for at in (network.taps, "auto"):
        net = supervise(network, at, num_classes=network.num_classes, companion=Companion(pool=4), example=x)
        assert {net.head(tap).layout for tap in net.taps} == {FIRST}
        net.strip()


class Hybrid(nn.Module):
    """Convolutions over a signal, then a transformer over its steps."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(2, width, 3, padding=1), nn.ReLU())
        self.drop = nn.Dropout(0.1)
        layer = nn.TransformerEncoderLayer(width, 2, 16, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.act = nn.ReLU()
        self.fc = nn.Linear(width, CLASSES)

    def forward(self, signal: Tensor) -> Tensor:
        z = self.drop(self.conv(signal))
        scores: Tensor = self.fc(self.act(self.encoder(z.transpose(1, 2))).mean(1))
        return scores


@pytest.mark.parametrize("lazy", [False, True])
def test_a_hybrid_of_convolutions_and_a_transformer(lazy: bool) -> None:
    taps = {"conv": FIRST, "drop": FIRST, "encoder.layers.0": LAST, "encoder": LAST, "act": LAST}
    check(Hybrid(), taps, torch.randn(3, 2, 11), CLASSES, lazy)


def test_a_hybrid_as_long_as_it_is_wide() -> None:
    """Maps and tokens have one shape: each layer speaks for itself, and what only comes after both is refused."""
    x = torch.randn(3, 2, 8)
    taps = {"conv": FIRST, "drop": FIRST, "encoder.layers.0": LAST, "encoder": LAST}
    check(Hybrid(), taps, x, CLASSES).strip()
    with pytest.raises(DeepsupError, match=r"layer 'act', \[3, 8, 8\], may be \[B,C,L\] or \[B,N,D\]: .*disagree"):
        supervise(Hybrid(), at={"act": Companion(pool="avg")}, num_classes=CLASSES, example=x)
    told = linear("avg", layout="channels_last")
    net = supervise(Hybrid().eval(), at={"act": told}, num_classes=CLASSES, example=x)
    expected = net.head("act").classifier(output_of(net.trunk, "act", x).mean(1))
    torch.testing.assert_close(net(x).companions["act"], expected)


def cube(channels: int = 16) -> nn.Sequential:
    """An ordinary net whose maps are 16 x 16 x 16."""
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(),
        nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.GroupNorm(4, channels), nn.GELU()),
        nn.Dropout(0.1), nn.AvgPool2d(1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(channels, CLASSES),
    )  # fmt: skip


def test_as_many_channels_as_rows_and_columns() -> None:
    check(cube(), dict.fromkeys("0123456", FIRST), torch.randn(2, 3, 16, 16), CLASSES)


class LastMaps(nn.Module):
    """The same shape, channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.stage1 = nn.Sequential(nn.Linear(3, 16), nn.GELU(), nn.LayerNorm(16))
        self.act, self.fc = nn.ReLU(), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        z = self.act(self.stage1(x.permute(0, 2, 3, 1)))
        scores: Tensor = self.fc(z.mean((1, 2)))
        return scores


def test_as_many_channels_as_rows_and_columns_and_they_are_last() -> None:
    check(LastMaps(), {"stage1": LAST, "stage1.1": LAST, "act": LAST}, torch.randn(2, 3, 16, 16), CLASSES)


def test_volumes() -> None:
    model = nn.Sequential(
        nn.Conv3d(2, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(4, CLASSES)
    )
    check(model, {"0": FIRST, "1": FIRST}, torch.randn(2, 2, 4, 4, 4), CLASSES)
    check(model, {"0": FIRST, "1": FIRST}, torch.randn(2, 2, 6, 4, 8), CLASSES)


class Silent(nn.Module):
    """Layers that say nothing about themselves."""

    def __init__(self, ndim: int = 3) -> None:
        super().__init__()
        self.weight, self.act, self.ndim = nn.Parameter(torch.randn(5, 5)), nn.ReLU(), ndim

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.act(x @ self.weight)
        return z.flatten(2).mean(2)[:, :CLASSES]


@pytest.mark.parametrize("lazy", [False, True])
def test_nothing_tells(lazy: bool) -> None:
    x = torch.randn(2, 4, 5)
    pooled = Companion(pool="avg")
    message = r"layer 'act', \[2, 4, 5\], may be .*no layer before it decides.*layout='channels_last'\)"
    with pytest.raises(DeepsupError, match=message) as caught:
        supervise(Silent(), at=["act"], num_classes=CLASSES, companion=pooled, example=None if lazy else x)(x)
    assert "\n" not in str(caught.value)
    net = supervise(Silent(), at=["act"], num_classes=CLASSES, companion=Companion(pool="none"), example=x)
    assert net.head("act").layout is None  # where nothing is pooled nothing is ambiguous
    for layout, width in ((FIRST, 4), (LAST, 5)):
        companion = Companion(pool="avg", layout=layout)  # type: ignore[arg-type]
        net = supervise(Silent(), at=["act"], num_classes=CLASSES, companion=companion, example=x)
        assert net.head("act").first.in_features == width


def test_a_map_told_by_the_aspect_of_the_image_alone() -> None:
    x = torch.randn(2, 3, 10, 5)
    net = supervise(Silent(4), at=["act"], num_classes=CLASSES, companion=Companion(pool="avg"), example=x)
    assert net.head("act").layout == FIRST


class OwnConv(nn.Module):
    """A convolution written by hand, whose map grows by its padding."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 3, 3, 3))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.conv2d(x, self.weight, padding=2)


def own_conv_net() -> nn.Sequential:
    return nn.Sequential(OwnConv(), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, CLASSES))


@pytest.mark.parametrize("size", [(8, 8), (16, 8)], ids=str)
def test_a_map_that_has_grown_beyond_the_image(size: tuple[int, int]) -> None:
    check(own_conv_net(), {"0": FIRST, "1": FIRST}, torch.randn(2, 3, *size), CLASSES)


def test_a_map_that_has_grown_and_has_the_aspect_both_ways() -> None:
    """10 x 18 and 5 x 10 both come from 8 x 16; that the second is no larger than the image proves nothing."""
    x = torch.randn(2, 3, 8, 16)
    with pytest.raises(DeepsupError, match=r"layer '0', \[2, 5, 10, 18\], may be .*no layer before it decides"):
        supervise(own_conv_net(), at=["0"], num_classes=CLASSES, example=x)


class Collapsed(nn.Module):
    """A text reader's map: its height collapsed, so that only the wrong reading has the image's aspect."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Conv2d(1, 8, 3, stride=(2, 4), padding=1), nn.ReLU())
        self.fc = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.fc(self.block(x).mean((2, 3)))
        return scores


def test_layers_and_an_image_that_disagree() -> None:
    x = torch.randn(2, 1, 64, 256)  # the block gives [2, 8, 32, 64]: as [B,H,W,C], 8 x 32 has the aspect of 64 x 256
    check(Collapsed(), {"block.0": FIRST}, x, CLASSES).strip()  # a convolution speaks for itself
    pooled = Companion(pool="avg")
    with pytest.raises(DeepsupError, match=r"layer 'block', \[2, 8, 32, 64\], .*disagree.*layout='channels_first'"):
        supervise(Collapsed(), at=["block"], num_classes=CLASSES, companion=pooled, example=x)
    told = Companion(pool="avg", layout="channels_first")
    net = supervise(Collapsed(), at=["block"], num_classes=CLASSES, companion=told, example=x)
    assert net.head("block").first.in_features == 8


def test_a_block_that_goes_both_ways_at_one_shape() -> None:
    """ConvNeXt's block where C == H == W: its convolution and its linear layers have one shape."""
    x = torch.randn(2, 3, 64, 64)
    pooled = Companion(pool="avg")
    with pytest.raises(DeepsupError, match=r"layer 'features.1', \[2, 16, 16, 16\], .*disagree"):
        supervise(torchvision_convnext(16), at=["features.1"], num_classes=10, companion=pooled, example=x)


@pytest.mark.parametrize("lazy", [False, True])
def test_the_layout_goes_with_copies_and_into_compiled_nets(lazy: bool) -> None:
    torch._dynamo.reset()
    x = torch.randn(3, 2, 11)
    taps = {"conv": FIRST, "encoder.layers.0": LAST}
    companion = linear("avg")
    example = None if lazy else x
    net = supervise(Hybrid().eval(), at=list(taps), num_classes=CLASSES, companion=companion, example=example)
    early = [copy.deepcopy(net), pickle.loads(pickle.dumps(net))]
    expected = net(x)
    loaded = supervise(Hybrid().eval(), at=list(taps), num_classes=CLASSES, companion=companion)
    loaded.load_state_dict(net.state_dict())
    for twin in (*early, copy.deepcopy(net), pickle.loads(pickle.dumps(net)), loaded):
        if lazy and twin in early:
            twin(x)
            twin.load_state_dict(net.state_dict())
        for name, layout in taps.items():
            torch.testing.assert_close(twin(x).companions[name], expected.companions[name])
            assert twin.head(name).layout == layout
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    for name in taps:
        torch.testing.assert_close(compiled(x).companions[name], expected.companions[name], rtol=1e-4, atol=1e-5)
    assert "layout='channels_last'" in str(net.heads)


def test_plain_nets_just_work() -> None:
    check(ConvNet(), {"conv1": FIRST, "pool1": FIRST, "conv2": FIRST}, images(2), CLASSES)
    check(TokenNet(), {"layers.0": LAST, "layers.1": LAST}, torch.randn(2, 7, 8), CLASSES)
    check(TokenNet(), {"layers.0": LAST, "layers.1": LAST}, torch.randn(2, 8, 8), CLASSES)
