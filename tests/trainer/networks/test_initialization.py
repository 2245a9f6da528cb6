"""Initialisations: He's keeps the size of the signal through a deep net, torch's does not."""

import math

import pytest
import torch
from torch import nn

from deepsup import DeepsupError, create_network, list_networks
from deepsup.trainer.networks import LocallyConnected2d
from deepsup.trainer.networks._initialization import draw_weights, maxout_square

WITH_INIT = [name for name in list_networks() if name not in ("fast", "unet-small")]  # these have norm layers


def fan_in(layer: nn.Module) -> int:
    """The number of inputs of one unit: [units, ...], but [positions, inputs, units] in an unshared layer."""
    return layer.weight.shape[1] if isinstance(layer, LocallyConnected2d) else math.prod(layer.weight.shape[1:])


@pytest.mark.parametrize("name", WITH_INIT)
def test_he_draws_by_the_fan_in_with_zero_biases(name: str) -> None:
    drawn = {row: layer for row, layer in create_network(name, init="he").named_modules() if hasattr(layer, "weight")}
    assert drawn.keys() == {row.removesuffix(".weight") for row, _ in create_network(name).named_parameters()
                            if row.endswith(".weight")}  # fmt: skip
    for row, layer in drawn.items():
        pieces = getattr(layer, "pieces", 0)
        square = torch.randn(200_000, pieces).amax(1).square().mean().item() if pieces else 0.5
        count = layer.weight.numel()
        within = 5 / math.sqrt(2 * count) + (0.02 if pieces else 0)  # five standard errors of a deviation
        assert layer.weight.std().item() == pytest.approx(math.sqrt(1 / (square * fan_in(layer))), rel=within), row
        assert abs(layer.weight.mean().item()) < 5 * layer.weight.std().item() / math.sqrt(count), row
        assert not layer.bias.any(), row


def test_he_is_torchs_kaiming_normal_to_the_bit() -> None:
    for layer in (nn.Conv2d(3, 7, 5), nn.Linear(50, 3)):
        torch.manual_seed(3)
        draw_weights([layer], "he")
        oracle = torch.empty_like(layer.weight)
        torch.manual_seed(3)
        nn.init.kaiming_normal_(oracle, nonlinearity="relu")
        assert torch.equal(layer.weight, oracle)


@pytest.mark.parametrize("pieces", [1, 2, 4, 5])
def test_the_mean_square_of_the_largest_piece(pieces: int) -> None:
    sampled = torch.randn(1_000_000, pieces, generator=torch.Generator().manual_seed(0)).amax(1).square().mean()
    assert maxout_square(pieces) == pytest.approx(sampled.item(), abs=0.01)


@pytest.mark.parametrize(
    ("name", "bound"), [("maxout-mnist", 0.005), ("maxout-cifar10", 0.005), ("dropconnect-svhn", None)]
)
def test_the_published_initialization_stays_the_default(name: str, bound: float | None) -> None:
    for row, weight in create_network(name).named_parameters():
        if row.endswith(".weight"):
            std = bound / math.sqrt(3) if bound else 0.1 if row.startswith(("fc", "scores")) else 0.01
            assert weight.std().item() == pytest.approx(std, rel=5 / math.sqrt(weight.numel())), row
    with pytest.raises(DeepsupError, match="init is 'torch'; expected one of: published, caffe, he"):
        create_network(name, init="torch")


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
