"""Unshared convolution, response norm, dropout, whitening and norm caps, each against its definition written out."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from deepsup.errors import NetworkError
from deepsup.trainer.networks import (
    LocallyConnected2d,
    MaxoutLinear,
    UnscaledDropout,
    WhiteningConv2d,
    cap_norms,
    cap_rows,
    create_network,
    cross_map_norm,
    fit_whitening,
)


def slow_local(x: Tensor, layer: LocallyConnected2d) -> Tensor:
    """Each place of the output has its own filters: one dot product after the other."""
    pad, k, side = layer.padding, layer.kernel_size, layer.out_size
    padded = F.pad(x, (pad, pad, pad, pad))
    out = []
    for image in padded:
        for channel in range(layer.out_channels):
            for top in range(side):
                for left in range(side):
                    patch = image[:, top : top + k, left : left + k].flatten()
                    place = top * side + left
                    out.append(
                        (patch * layer.weight[place, :, channel]).sum()
                        + layer.bias[place * layer.out_channels + channel]
                    )
    return torch.stack(out).reshape(len(x), -1, side, side)


@pytest.mark.parametrize(("size", "kernel", "padding"), [(5, 3, 1), (4, 3, 0), (3, 1, 0)])
def test_local_layer(size: int, kernel: int, padding: int) -> None:
    layer = LocallyConnected2d(2, 3, size, kernel, padding).double()
    x = torch.randn(2, 2, size, size, dtype=torch.float64, requires_grad=True)
    fast, slow = layer(x), slow_local(x, layer)
    torch.testing.assert_close(fast, slow)
    weights = torch.randn_like(fast)
    parameters = (x, layer.weight, layer.bias)
    for one, other in zip(
        torch.autograd.grad((fast * weights).sum(), parameters),
        torch.autograd.grad((slow * weights).sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_local_layer_with_one_filter_everywhere_is_a_convolution() -> None:
    conv, local = nn.Conv2d(2, 3, 3, padding=1), LocallyConnected2d(2, 3, 5, 3, padding=1)
    assert conv.bias is not None
    with torch.no_grad():
        local.weight.copy_(conv.weight.flatten(1).T.expand_as(local.weight))
        local.bias.copy_(conv.bias.repeat(25))
    x = torch.randn(4, 2, 5, 5)
    torch.testing.assert_close(local(x), conv(x), rtol=1e-4, atol=1e-5)


def test_local_layer_refuses_other_maps() -> None:
    with pytest.raises(NetworkError, match=r"got maps \(2, 6, 6\); it was built for \(2, 5, 5\)"):
        LocallyConnected2d(2, 3, 5, 3)(torch.zeros(1, 2, 6, 6))
    with pytest.raises(NetworkError, match="kernels of 3, its padded maps are 2 wide"):
        LocallyConnected2d(2, 3, 2, 3)


def test_response_norm_is_cuda_convnets() -> None:
    """u_f / (1 + scale/size * sum of u^2 over the maps f - size//2 ... that exist) ^ power."""
    size, scale, power, maps = 9, 0.001, 0.75, 12
    x = (30 * torch.randn(2, maps, 3, 3, dtype=torch.float64)).requires_grad_()
    slow = []
    for f in range(maps):
        near = range(max(0, f - size // 2), min(maps, f - size // 2 + size))
        total = sum((x[:, g] ** 2 for g in near), start=torch.zeros((), dtype=torch.float64))
        slow.append(x[:, f] / (1 + scale / size * total) ** power)
    oracle = torch.stack(slow, 1)
    ours = cross_map_norm(size, scale, power)(x)
    torch.testing.assert_close(ours, oracle)
    weights = torch.randn_like(ours)
    torch.testing.assert_close(
        torch.autograd.grad((ours * weights).sum(), x), torch.autograd.grad((oracle * weights).sum(), x)
    )


def test_unscaled_dropout() -> None:
    """In training x times a mask, with gradient the mask; in evaluation x times a constant. 10,000 draws, 5 errors."""
    layer, x = UnscaledDropout(0.2, eval_scale=0.8), torch.full((10_000,), 3.0, requires_grad=True)
    out = layer(x)
    assert set(out.tolist()) == {0.0, 3.0}
    assert abs((out > 0).double().mean().item() - 0.8) <= 5 * math.sqrt(0.8 * 0.2 / 10_000)
    out.sum().backward()
    assert torch.equal(x.grad * 3, out.detach())  # type: ignore[operator]
    assert torch.equal(layer.eval()(x), x * 0.8)
    assert torch.equal(UnscaledDropout(0.2).eval()(x), x)
    with pytest.raises(NetworkError, match="p of UnscaledDropout is 2; expected a finite number between 0 and 1"):
        UnscaledDropout(2)


def test_whitening_decorrelates_the_patches_it_was_fitted_to() -> None:
    images = F.avg_pool2d(torch.randn(64, 3, 18, 18), 3, 1) * torch.tensor([1.0, 4.0, 0.5]).view(3, 1, 1)
    layer = WhiteningConv2d(3)
    layer.fit_images(images, eps=0.0)
    out = layer(images)  # [64, 24, 15, 15]
    assert out.shape == (64, 24, 15, 15)
    patches = out[:, :12].transpose(0, 1).flatten(1)
    torch.testing.assert_close(patches.double().cov(), torch.eye(12, dtype=torch.float64), rtol=0, atol=1e-3)
    torch.testing.assert_close(out[:, 12:], -out[:, :12])
    assert not list(layer.parameters())
    assert "weight" in layer.state_dict()


def test_whitening_sums_up_over_parts_of_a_large_set() -> None:
    images = 5 + torch.randn(1100, 1, 6, 6)  # three parts; a mean that a careless sum would leave in
    layer = WhiteningConv2d(1)
    layer.fit_images(images, eps=0.0)
    patches = F.unfold(images.double(), 2).transpose(1, 2).flatten(0, 1)
    white = patches @ layer.weight[:4].flatten(1).T.double()
    torch.testing.assert_close(white.T.cov(), torch.eye(4, dtype=torch.float64), rtol=0, atol=1e-5)


def test_whitening_survives_directions_without_variance() -> None:
    network = create_network("fast", widths=(8,), image_size=8)
    images = torch.rand(16, 1, 8, 8).expand(16, 3, 8, 8)  # three equal channels: rank 4 of 12
    fit_whitening(nn.Sequential(network), images)  # found inside a wrapper too
    assert network(images).isfinite().all()


def test_whitening_refuses_what_it_cannot_fit() -> None:
    network = create_network("fast")
    with pytest.raises(NetworkError, match=r"got images of shape \(5, 1, 8, 8\); expected \[B, 3, H, W\]"):
        fit_whitening(network, torch.zeros(5, 1, 8, 8))
    with pytest.raises(NetworkError, match="got images of list; expected a tensor"):
        fit_whitening(network, [0.0])  # type: ignore[arg-type]
    with pytest.raises(NetworkError, match="expected at least two patches, all of finite numbers"):
        fit_whitening(network, torch.full((5, 3, 8, 8), torch.nan))
    with pytest.raises(NetworkError, match="expected at least two patches"):
        fit_whitening(network, torch.zeros(0, 3, 8, 8))
    with pytest.raises(NetworkError, match="Linear has no whitening layer to fit"):
        fit_whitening(nn.Linear(2, 2), torch.zeros(5, 1, 8, 8))


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(1, 6), st.floats(0.1, 3))
def test_capped_rows_point_where_they_did(rows: int, columns: int, cap: float) -> None:
    weight = torch.randn(rows, columns, 2, 2, dtype=torch.float64)
    capped = weight.clone()
    cap_rows(capped, cap)
    for before, after in zip(weight, capped, strict=True):
        norm = math.sqrt(sum(value**2 for value in before.flatten().tolist()))
        expected = before if norm <= cap else before * (cap / norm)
        torch.testing.assert_close(after, expected, rtol=1e-6, atol=1e-9)


def test_cap_norms_uses_the_published_caps() -> None:
    network = create_network("maxout-svhn", image_size=8)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1000)
    biases = network.get_parameter("conv1.bias").clone()
    cap_norms(nn.Sequential(network))
    for name, cap in {"conv1": 0.9, "conv2": 1.9365, "conv3": 1.9365, "fc": 1.9, "scores": 1.9365}.items():
        norms = network.get_parameter(f"{name}.weight").flatten(1).norm(dim=1)
        assert norms.max().item() == pytest.approx(cap, rel=1e-5), name
    assert torch.equal(network.get_parameter("conv1.bias"), biases)


def test_a_maxout_pieces_norm_is_capped_each_by_itself() -> None:
    layer = MaxoutLinear(2, 1, pieces=2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[3.0, 4.0], [0.3, 0.4]]))
    cap_rows(layer.weight, 1.0)
    torch.testing.assert_close(layer.weight.data, torch.tensor([[0.6, 0.8], [0.3, 0.4]]))
    with pytest.raises(NetworkError, match="cap is 0"):
        cap_rows(layer.weight, 0)
