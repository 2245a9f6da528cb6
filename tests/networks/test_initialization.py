"""Initialisations: He's keeps the size of the signal through a deep net, torch's does not."""

import math

import pytest
import torch
from torch import nn

from deepsup import DeepsupError, create_network


@pytest.mark.parametrize("name", ["nin-mnist", "nin-cifar10", "cnn", "plain"])
def test_he_draws_kaiming_normal_with_zero_biases(name: str) -> None:
    network = create_network(name, init="he")
    for row, layer in network.named_modules():
        if isinstance(layer, nn.Conv2d | nn.Linear) and layer.weight.numel() > 2000:
            fan_in = layer.weight[0].numel()
            assert layer.weight.std().item() == pytest.approx(math.sqrt(2 / fan_in), rel=0.1), row
            assert layer.bias is not None
            assert not layer.bias.any(), row


def test_he_keeps_the_signal_and_torchs_start_loses_it() -> None:
    sizes = {}
    for init in ("he", "torch"):
        network = create_network("plain", depth=30, init=init)
        seen = []
        network.relu30.register_forward_hook(lambda _m, _a, output, seen=seen: seen.append(output))
        network(torch.randn(8, 1, 28, 28))
        sizes[init] = seen[0].std(0).mean().item()  # how much images differ behind the last convolution
    assert sizes["he"] > 0.005
    assert sizes["torch"] < sizes["he"] / 100


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"init": "xavier"}, "init is 'xavier'; expected one of: torch, caffe, he"),
        ({"depth": 0}, "depth is 0; expected a whole number of at least 1"),
        ({"depth": 2}, r"widths are \(16, 32, 48\); expected the channels of 1 to 2 groups"),
        ({"widths": "abc"}, "widths are 'abc'"),
        ({"norm": "layer"}, "norm is 'layer'; expected one of: none, batch"),
    ],
)
def test_bad_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(DeepsupError, match=message):
        create_network("plain", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("depth", "taps"), [(6, "relu1 relu3 relu4"), (21, "relu5 relu10 relu15"), (3, "relu1 relu2")])
def test_taps_and_groups_at_any_depth(depth: int, taps: str) -> None:
    network = create_network("plain", depth=depth, norm="batch")
    assert " ".join(network.taps) == taps
    assert [network.shapes[f"conv{i + 1}"][0] for i in range(depth)] == sorted([16, 32, 48] * (depth // 3))
    assert sum(isinstance(layer, nn.BatchNorm2d) for layer in network.modules()) == depth


def test_nin_of_half_width() -> None:
    half, whole = create_network("nin-cifar10", width=0.5), create_network("nin-cifar10")
    for name in ("conv1", "mlp1a", "mlp1b", "conv2", "mlp2a", "mlp2b", "conv3", "mlp3a"):
        assert 2 * half.shapes[name][0] == whole.shapes[name][0]
    assert half.shapes["mlp3b"] == whole.shapes["mlp3b"] == (10, 8, 8)
    with pytest.raises(DeepsupError, match="width is 0; expected a finite number between"):
        create_network("nin-cifar10", width=0)
