"""Starts, learning rates, caps and dropouts of the rivals' networks, as their papers have them."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from deepsup.trainer.networks import (
    DropConnectLinear,
    LocallyConnected2d,
    Network,
    Published,
    UnscaledDropout,
    create_network,
)


def layers(network: Network, kind: type[nn.Module]) -> list[nn.Module]:
    return [layer for layer in network.modules() if isinstance(layer, kind)]


def test_maxout() -> None:
    for name, caps, rate in (
        ("maxout-mnist", [0.9, 1.9365, 1.9365], 1.0),
        ("maxout-cifar10", [0.9, 1.9365, 1.9365], 0.05),
        ("maxout-svhn", [0.9, 1.9365, 1.9365], 0.05),
    ):
        network = create_network(name, image_size=16)
        for block, cap in enumerate(caps, 1):
            assert network.published[f"conv{block}"] == Published(cap=cap, rate=rate, bias_rate=rate)
        assert network.published["scores"] == Published(cap=1.9365)
        assert ("fc" in network.published) == (name != "maxout-mnist")
        # the input loses a fifth, not made up for; every later input a half, made up for
        (first,) = layers(network, UnscaledDropout)
        assert (first.p, first.eval_scale) == (0.2, 1.0)
        assert [layer.p for layer in layers(network, nn.Dropout)] == [0.5] * (3 if name == "maxout-mnist" else 4)
        for row, weight in network.named_parameters():
            assert weight.abs().max() <= 0.005, row


def test_dropconnect() -> None:
    network = create_network("dropconnect-cifar10")
    for row, decay in {
        "conv1": 0.0,
        "conv2": 0.0,
        "local3": 0.004,
        "local4": 0.004,
        "fc": None,
        "scores": 0.01,
    }.items():
        assert network.published[row] == Published(bias_rate=2.0, decay=decay)
    for row, deviation in {"conv1": 0.01, "conv2": 0.01, "local3": 0.01, "fc": 0.1, "scores": 0.1}.items():
        # 1,280 draws at least: 6 standard errors of a deviation are 6 / sqrt(2 * 1280)
        assert network.get_parameter(f"{row}.weight").std().item() == pytest.approx(deviation, rel=0.12), row
        assert not network.get_parameter(f"{row}.bias").any(), row
    (fc,) = layers(network, DropConnectLinear)
    assert (fc.keep, fc.inference, fc.samples) == (0.5, "mean", 1000)
    assert len(layers(network, LocallyConnected2d)) == 2
    assert create_network("dropconnect-cifar10", inference="gaussian").fc.inference == "gaussian"


def test_dropconnects_gaussian_inference_runs_in_the_network() -> None:
    network = create_network("dropconnect-cifar10", image_size=8, inference="gaussian", samples=200).eval()
    with torch.no_grad():
        network.fc.weight.mul_(10)
        images = torch.rand(2, 3, 8, 8)
        assert not torch.equal(network(images), network(images))  # random by design
        torch.manual_seed(1)
        first = network(images)
        torch.manual_seed(1)
        assert torch.equal(network(images), first)


def test_stochastic_pooling_and_tree() -> None:
    pooling = create_network("stochastic-pooling-svhn").published
    assert pooling["conv3"] == Published(rate=0.01, bias_rate=0.01, decay=0.001)
    assert pooling["scores"] == Published(decay=0.001)
    tree = create_network("tree-cifar100", image_size=8)
    assert {published.cap for published in tree.published.values()} == {4.0}
    assert len(tree.published) == 6
    # keep rates .9 .75 .75 .5 .5 .5, written as what is dropped
    assert [layer.p for layer in layers(tree, nn.Dropout)] == [0.1, 0.25, 0.25, 0.5, 0.5, 0.5]


def test_fast_starts_as_the_identity() -> None:
    network = create_network("fast", widths=(16, 40))
    convolutions = layers(network, nn.Conv2d)
    assert [(conv.in_channels, conv.out_channels) for conv in convolutions] == [(24, 16), (16, 16), (16, 40), (40, 40)]
    for conv in convolutions:
        assert conv.bias is None
        x = torch.randn(2, conv.in_channels, 6, 6)
        kept = min(conv.in_channels, conv.out_channels)
        torch.testing.assert_close(F.conv2d(x, conv.weight, padding=1)[:, :kept], x[:, :kept])
    assert len(layers(network, nn.BatchNorm2d)) == 4
    assert network.taps == ("group1", "group2")


def test_fast_scales_its_scores() -> None:
    small, large = (
        create_network("fast", widths=(8,), image_size=8),
        create_network("fast", widths=(8,), image_size=8, scale=1.0),
    )
    large.load_state_dict(small.state_dict())
    images = torch.rand(2, 3, 8, 8)
    torch.testing.assert_close(9 * small.eval()(images), large.eval()(images))
