"""Layers with mirrored pairs: against plain layers with the mirrored filters written out, and against a mirror."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepsup.errors import NetworkError
from deepsup.trainer.networks import create_network, describe, fit_whitening
from deepsup.trainer.networks.layers import (
    MirrorConv2d,
    MirrorMaximum,
    MirrorNorm2d,
    MirrorPooledConv2d,
    WhiteningConv2d,
    swapped,
)


def mirrored(maps: Tensor) -> Tensor:
    """What the maps of the mirrored image are: each pair swapped, each map mirrored. Written with a loop."""
    half = maps.shape[1] // 2
    return torch.stack([maps[:, (c + half) % (2 * half)].flip(2) for c in range(2 * half)], 1)


def random_maps(width: int, channels: int = 6) -> Tensor:
    return torch.randn(3, channels, 5, width, dtype=torch.double)


def written_out(layer: MirrorConv2d) -> Tensor:
    """Both halves of the filters, one number after the other."""
    learned = layer.weight.detach()
    half, channels = learned.shape[:2]
    full = torch.empty(2 * half, channels, 3, 3, dtype=torch.double)
    for o in range(half):
        for c in range(channels):
            for x in range(3):
                full[o, c, :, x] = learned[o, c, :, x]
                full[half + o, c, :, x] = learned[o, int(layer.order[c]), :, 2 - x]
    return full


def test_a_convolution_is_the_plain_one_with_mirrored_filters():
    layer, maps = MirrorConv2d(6, 8, swapped(6)).double(), random_maps(7)
    torch.testing.assert_close(layer(maps), F.conv2d(maps, written_out(layer), padding=1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("width", [2, 3, 6, 7])
def test_pooling_leaves_out_the_last_column_of_each_half_on_its_own_way(width):
    layer, maps = MirrorPooledConv2d(6, 8, swapped(6)).double(), random_maps(width)
    whole = F.conv2d(maps, written_out(layer), padding=1)
    first, second = F.max_pool2d(whole[:, :4], 2), F.max_pool2d(whole[:, 4:].flip(3), 2).flip(3)
    torch.testing.assert_close(layer(maps), torch.cat([first, second], 1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("width", [4, 5, 7])
@pytest.mark.parametrize("build", [MirrorConv2d, MirrorPooledConv2d])
def test_a_mirror_swaps_and_mirrors_what_comes_out(build, width):
    layer, maps = build(6, 8, swapped(6)).double(), random_maps(width)
    torch.testing.assert_close(layer(mirrored(maps)), mirrored(layer(maps)), rtol=0, atol=1e-12)


def test_a_norm_has_one_mean_and_one_variance_for_a_pair():
    norm = nn.BatchNorm2d(3, momentum=1.0).double()
    layer, maps = MirrorNorm2d(norm), random_maps(4) * 3 + torch.arange(6.0)[:, None, None]
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.0, 2.0, 0.5]))
        norm.bias.copy_(torch.tensor([0.0, -1.0, 4.0]))
    got = layer(maps)
    for pair in range(3):
        both = torch.stack([maps[:, pair], maps[:, pair + 3]])
        mean, variance = both.mean(), both.var(correction=0)
        expected = (both - mean) / (variance + norm.eps).sqrt() * norm.weight[pair] + norm.bias[pair]
        torch.testing.assert_close(torch.stack([got[:, pair], got[:, pair + 3]]), expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(norm.running_mean[pair], mean, rtol=0, atol=1e-12)


def test_the_maximum_is_that_of_a_pair():
    maps = random_maps(4)
    expected = torch.maximum(maps[:, :3], maps[:, 3:]).amax((2, 3))
    torch.testing.assert_close(MirrorMaximum()(maps)[:, :, 0, 0], expected, rtol=0, atol=0)


@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize(("channels", "kernel"), [(3, 2), (1, 2), (2, 3)])
def test_a_mirror_reorders_the_whitened_maps(channels, kernel, fitted):
    layer, images = WhiteningConv2d(channels, kernel, mirror=True), torch.randn(4, channels, 6, 7)
    if fitted:
        layer.fit_images(torch.randn(50, channels, 9, 9).cumsum(2))
    assert layer.order is not None
    assert sorted(layer.order) == list(range(layer.out_channels))
    torch.testing.assert_close(layer(images.flip(3)), layer(images)[:, list(layer.order)].flip(3), rtol=0, atol=1e-4)


def test_whitened_patches_of_images_and_mirror_images_are_uncorrelated():
    images = torch.randn(300, 2, 8, 8).cumsum(3)
    layer = WhiteningConv2d(2, mirror=True)
    layer.fit_images(images, eps=0)
    both = layer(torch.cat([images, images.flip(3)]))[:, :8].permute(1, 0, 2, 3).flatten(1)
    torch.testing.assert_close(torch.cov(both), torch.eye(8), rtol=0, atol=2e-2)


@pytest.mark.parametrize("size", [32, 28, 27])
def test_fast_gives_an_image_and_its_mirror_image_the_same_scores(size):
    network = create_network("fast", image_size=size, widths=(8, 16, 16), mirror=True).double()
    with torch.no_grad():
        for parameter in network.parameters():  # away from the identity, which any net would mirror
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    fit_whitening(network, torch.randn(40, 3, size, size).double())
    images = torch.randn(5, 3, size, size, dtype=torch.double)
    for training in (True, False):
        network.train(training)
        torch.testing.assert_close(network(images), network(images.flip(3)), rtol=0, atol=1e-9)
        assert network(images).std(0).min() > 1e-3  # it does tell images apart
    plain = create_network("fast", image_size=size, widths=(8, 16, 16)).double().eval()
    assert (plain(images) - plain(images.flip(3))).abs().max() > 1e-4


def test_fast_with_mirror_starts_as_the_identity_and_has_half_of_the_filters():
    network = create_network("fast", widths=(8, 16), mirror=True)
    conv = network.group2[3]
    maps = torch.randn(2, 16, 4, 4)
    torch.testing.assert_close(conv(maps), maps)
    pooled = network.group2[0]
    maps = torch.randn(2, 8, 4, 4)
    out = pooled(maps)
    torch.testing.assert_close(out[:, [0, 1, 2, 3, 8, 9, 10, 11]], F.max_pool2d(maps, 2))
    filters = 9 * (24 * 4 + 8 * 4 + 8 * 8 + 16 * 8)
    assert describe("fast", widths=(8, 16), mirror=True).parameters == filters + 2 * (4 + 8) + 8 * 10
    assert sum(p.numel() for p in network.parameters()) == filters + 2 * (4 + 8) + 8 * 10


def test_gradients_reach_the_learned_half_from_both_sides():
    layer = MirrorConv2d(2, 2, swapped(2))
    maps = torch.randn(1, 2, 4, 4)
    for half in (0, 1):
        layer.zero_grad()
        layer(maps)[:, half].pow(2).sum().backward()
        assert layer.weight.grad is not None
        assert layer.weight.grad.abs().min() > 0


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"mirror": "yes"}, "mirror is 'yes'; expected True or False"),
        ({"mirror": 1}, "mirror is 1; expected True or False"),
        ({"mirror": True, "widths": (8, 7)}, r"widths is \(8, 7\) with mirror; expected even numbers"),
    ],
)
def test_what_is_refused(options, word):
    with pytest.raises(NetworkError, match=word):
        create_network("fast", **options)


def test_plain_convolutions_stay_plain():
    network = create_network("fast", widths=(8,), image_size=8)
    assert isinstance(network.group1[3], nn.Conv2d)
