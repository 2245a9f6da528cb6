"""A companion's pooling, hidden layers and initialisation, each against its definition."""

import math
from typing import Any

import pytest
import torch
from nets import CLASSES, ConvNet, TokenNet, images
from torch import Tensor

from deepsup import Companion, DeepsupError, supervise
from deepsup.supervision.companions import pool


def test_pooling_of_maps() -> None:
    x = torch.randn(2, 3, 8, 6)
    torch.testing.assert_close(
        pool(x, "avg", "channels_first"), torch.stack([x[:, c].mean((1, 2)) for c in range(3)], 1)
    )
    torch.testing.assert_close(
        pool(x, "max", "channels_first"), torch.stack([x[:, c].amax((1, 2)) for c in range(3)], 1)
    )
    quarters = torch.stack([x[:, :, 4 * i : 4 * i + 4, 3 * j : 3 * j + 3].mean((2, 3)) for i in (0, 1) for j in (0, 1)])
    torch.testing.assert_close(pool(x, 2, "channels_first").flatten(2), quarters.permute(1, 2, 0))
    assert pool(x, 7, "channels_first").shape == (2, 3, 7, 6)  # never blown up
    assert pool(x, "none", "channels_first") is x


def test_pooling_of_tokens_volumes_and_vectors() -> None:
    tokens, volume, vectors = torch.randn(2, 6, 5), torch.randn(2, 3, 4, 4, 4), torch.randn(2, 5)
    torch.testing.assert_close(pool(tokens, "avg", "channels_last"), tokens.mean(1))
    torch.testing.assert_close(pool(tokens, "max", "channels_last"), tokens.amax(1))
    torch.testing.assert_close(pool(tokens, 2, "channels_last")[:, :, 0], tokens[:, :3].mean(1))
    assert pool(volume, 2, "channels_first").shape == (2, 3, 2, 2, 2)
    torch.testing.assert_close(pool(volume, "avg", "channels_first"), volume.flatten(2).mean(2))
    assert pool(vectors, "avg", None) is vectors


@pytest.mark.parametrize(("how", "width"), [("none", 4 * 64), ("avg", 4), ("max", 4), (2, 16)])
def test_companions_in_a_net(how: Any, width: int) -> None:
    net = supervise(
        ConvNet(), at={"conv1": Companion(pool=how, hidden=(9, 6)), "conv2": Companion.paper()}, num_classes=CLASSES
    )
    x = images()
    out = net(x)
    head = net.head("conv1")
    assert head.first.in_features == width
    assert net.head("conv2").first.in_features == 5 * 16
    z: Tensor = pool(net.trunk.get_submodule("conv1")(x), how, "channels_first").flatten(1)
    for name in ("hidden.0.0", "hidden.1.0"):
        layer = head.get_submodule(name)
        z = (z @ layer.weight.T + layer.bias).relu()
    torch.testing.assert_close(out.companions["conv1"], z @ head.classifier.weight.T + head.classifier.bias)


def test_pooled_companions_take_images_of_any_size() -> None:
    net = supervise(ConvNet(), at=["conv1"], num_classes=CLASSES, companion=Companion(pool=2), example=images(1))
    assert net(torch.randn(3, 2, 12, 10)).companions["conv1"].shape == (3, CLASSES)


def test_flat_companions_say_that_the_size_changed() -> None:
    net = supervise(ConvNet(), at=["conv1"], num_classes=CLASSES, companion=Companion.paper(), example=images(1))
    with pytest.raises(
        DeepsupError, match=r"layer 'conv1' gives 480 values per image .* was built for 256; .*pool='avg'"
    ):
        net(torch.randn(3, 2, 12, 10))


def test_tokens_pooled_in_a_net() -> None:
    net = supervise(TokenNet(), at=["layers.0"], num_classes=CLASSES, companion=Companion(pool="avg"))
    assert net(torch.randn(2, 7, 8)).companions["layers.0"].shape == (2, CLASSES)
    assert net.head("layers.0").first.in_features == 8


@pytest.mark.parametrize("example", [images(1), None])
def test_caffe_initialisation(example: Tensor | None) -> None:
    net = supervise(ConvNet(), at=["conv1"], num_classes=CLASSES, companion=Companion.caffe(), example=example)
    net(images())
    layer = net.head("conv1").classifier
    bound = math.sqrt(3 / (CLASSES * 256))
    assert 0.95 * bound < layer.weight.abs().max() <= bound
    assert abs(layer.weight.std().item() / (bound / math.sqrt(3)) - 1) < 0.1
    assert layer.bias.abs().max() == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pool": "mean"}, "pool='mean' is not a way to pool; expected 'none', 'avg', 'max' or a size"),
        ({"pool": 0}, "pool=0"),
        ({"pool": True}, "pool=True"),
        ({"hidden": (0,)}, r"hidden=\(0,\); expected widths of at least 1"),
        ({"hidden": 64}, "hidden=64; expected a tuple of widths"),
        ({"hidden": ("a",)}, "expected widths"),
        ({"layout": "last"}, r"layout='last'; expected one of: auto, channels_first, channels_last"),
        ({"layout": "channel_last"}, "did you mean 'channels_last'"),
        ({"init": "cafe"}, "init='cafe'; did you mean 'caffe'"),
    ],
)
def test_bad_companions(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DeepsupError, match=message):
        Companion(**settings)
