"""Every intermediate shape as published, and a forward and a training step at every size and channel count claimed."""

import pytest
import torch
from torch.nn import functional as F

from deepsup.trainer.networks import create_network, describe, list_networks
from deepsup.trainer.networks._fast import PooledConv2d

# The maps behind the named layers, for the image size of the paper: (channels, side) or (features,)
PUBLISHED = {
    "nin-cifar10": {
        "conv1": (192, 32), "mlp1a": (160, 32), "mlp1b": (96, 32), "pool1": (96, 16),
        "conv2": (192, 16), "mlp2a": (192, 16), "mlp2b": (192, 16), "pool2": (192, 8),
        "conv3": (192, 8), "mlp3a": (192, 8), "mlp3b": (10, 8), "flatten": (10,),
    },
    "nin-mnist": {
        "conv1": (96, 28), "mlp1a": (64, 28), "mlp1b": (48, 28), "pool1": (48, 14),
        "conv2": (128, 14), "mlp2a": (96, 14), "mlp2b": (48, 14), "pool2": (48, 7),
        "conv3": (128, 7), "mlp3a": (96, 7), "mlp3b": (10, 7), "flatten": (10,),
    },
    "nin-svhn": {
        "conv1": (128, 32), "mlp1a": (96, 32), "mlp1b": (64, 32), "pool1": (64, 16),
        "conv2": (320, 16), "mlp2a": (256, 16), "mlp2b": (128, 16), "pool2": (128, 8),
        "conv3": (384, 8), "mlp3a": (256, 8), "mlp3b": (10, 8), "flatten": (10,),
    },
    "cnn": {"conv1": (20, 24), "pool1": (20, 12), "conv2": (50, 8), "pool2": (50, 4), "fc1": (500,), "scores": (10,)},
    "maxout-mnist": {
        "conv1": (48, 21), "pool1": (48, 10), "conv2": (48, 9), "pool2": (48, 4), "conv3": (24, 6), "pool3": (24, 3),
        "scores": (10,),
    },
    "maxout-cifar10": {
        "conv1": (96, 33), "pool1": (96, 16), "conv2": (192, 15), "pool2": (192, 7), "conv3": (192, 9),
        "pool3": (192, 5), "fc": (500,), "scores": (10,),
    },
    "maxout-svhn": {
        "conv1": (64, 36), "pool1": (64, 18), "conv2": (128, 20), "pool2": (128, 10), "conv3": (128, 12),
        "pool3": (128, 6), "fc": (400,), "scores": (10,),
    },
    "stochastic-pooling-cifar10": {
        "conv1": (64, 32), "pool1": (64, 16), "norm1": (64, 16), "conv2": (64, 16), "pool2": (64, 8), "conv3": (64, 8),
        "pool3": (64, 4), "scores": (10,),
    },
    "dropconnect-cifar10": {
        "conv1": (64, 24), "pool1": (64, 12), "norm1": (64, 12), "conv2": (64, 12), "norm2": (64, 12), "pool2": (64, 6),
        "local3": (64, 6), "local4": (32, 6), "fc": (128,), "scores": (10,),
    },
    "tree-cifar100": {
        "conv1": (96, 32), "pool1": (96, 16), "conv2": (128, 16), "pool2": (128, 8), "conv3": (256, 8),
        "pool3": (256, 4), "fc4": (2048,), "fc5": (2048,), "scores": (100,),
    },
    "plain": {
        "conv4": (16, 28), "pool1": (16, 14), "conv8": (32, 14), "pool2": (32, 7), "relu12": (48, 7), "scores": (10,),
    },
    "fast": {"whiten": (24, 31), "group1": (32, 15), "group2": (128, 7), "group3": (128, 3), "scores": (10,)},
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_maps_are_those_of_the_paper(name: str) -> None:
    network = create_network(name)
    for layer, (channels, *side) in PUBLISHED[name].items():
        assert network.shapes[layer] == (channels, *side, *side), layer


def claims(name: str) -> list[tuple[int, int]]:
    """(image size, channels): the published, the smallest, an odd one, and those of the other data sets."""
    known = describe(name)
    smallest = known.minimum_image_size
    other = 1 if known.in_channels == 3 else 3
    sizes = {
        (known.image_size, known.in_channels),
        (smallest, other),
        (smallest + 1, 2),
        (max(smallest, 19), other),
        (28, 1),
        (32, 3),
    }
    return sorted(sizes)


@pytest.mark.parametrize(
    ("name", "size", "channels"), [(name, *claim) for name in list_networks() for claim in claims(name)]
)
def test_forward_and_training_step(name: str, size: int, channels: int) -> None:
    network = create_network(name, num_classes=7, in_channels=channels, image_size=size)
    seen: dict[str, tuple[int, ...]] = {}
    for row, layer in network.named_children():
        layer.register_forward_hook(lambda _module, _args, output, row=row: seen.update({row: tuple(output.shape[1:])}))
    images, labels = torch.rand(2, channels, size, size), torch.tensor([0, 6])
    positions = (size, size) if name == "unet-small" else ()
    labels = labels.reshape(2, *[1 for _ in positions]).expand(2, *positions)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    scores = network(images)
    assert scores.shape == (2, 7, *positions)
    assert seen == network.shapes
    F.cross_entropy(scores, labels).backward()
    for row, parameter in network.named_parameters():
        assert parameter.grad is not None, row
        assert parameter.grad.isfinite().all(), row
    before = [parameter.clone() for parameter in network.parameters()]
    optimizer.step()
    assert any(not torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))
    assert network.eval()(images).isfinite().all()


@pytest.mark.parametrize("name", list_networks())
def test_the_minimum_is_the_minimum(name: str) -> None:
    """Torch itself agrees: the layers built for the minimum refuse maps one pixel smaller, or there are none."""
    smallest = describe(name).minimum_image_size
    if smallest == 1 or name == "unet-small":  # whose poolings round up: a map of one pixel says nothing
        return
    network = create_network(name, image_size=smallest).eval()
    network.minimum_image_size, network.any_size = 0, True  # take away our own check
    with pytest.raises((RuntimeError, ValueError)):
        network(torch.rand(2, network.in_channels, smallest - 1, smallest - 1))


@pytest.mark.parametrize("side", [6, 7, 15, 16])
def test_a_pooled_convolution_leaves_out_what_pooling_drops(side: int) -> None:
    """The oracle: a convolution padded by 1 on all sides, then max pooling."""
    torch.manual_seed(0)
    layer, maps = PooledConv2d(3, 5).double(), torch.randn(2, 3, side, side, dtype=torch.double, requires_grad=True)
    expected = F.max_pool2d(F.conv2d(maps, layer.weight, padding=1), 2)
    got = layer(maps)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-14)
    weights = torch.randn_like(expected)
    for mine, theirs in zip(
        torch.autograd.grad((got * weights).sum(), [maps, layer.weight]),
        torch.autograd.grad((expected * weights).sum(), [maps, layer.weight]),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)
