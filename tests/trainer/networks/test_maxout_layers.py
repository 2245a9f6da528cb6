"""Maxout against its definition: for each unit the largest of its pieces, each piece a convolution written out."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from deepsup.errors import NetworkError
from deepsup.trainer.networks import MaxoutConv2d, MaxoutLinear


def slow_maxout_conv(x: Tensor, layer: MaxoutConv2d) -> Tensor:
    """h_u = max_j (W_uj . patch + b_uj), place by place; piece j of unit u is filter j*U + u."""
    pad, k, units = layer.padding, layer.weight.shape[-1], layer.out_channels
    padded = F.pad(x, (pad, pad, pad, pad))
    side = padded.shape[-1] - k + 1
    rows = []
    for image in padded:
        for u in range(units):
            for top in range(side):
                for left in range(side):
                    patch = image[:, top : top + k, left : left + k]
                    pieces = []
                    for j in range(layer.pieces):
                        f = j * units + u
                        bias = layer.bias[f] if layer.untied is None else layer.bias[(f * side + top) * side + left]
                        pieces.append((layer.weight[f] * patch).sum() + bias)
                    rows.append(torch.stack(pieces).max())
    return torch.stack(rows).reshape(len(x), units, side, side)


def gradients(output: Tensor, *of: Tensor) -> tuple[Tensor, ...]:
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).reshape(output.shape)
    return torch.autograd.grad((output * weights).sum(), of)


@pytest.mark.parametrize("untied", [None, 5])
@pytest.mark.parametrize("pieces", [1, 2, 3])
def test_conv_is_the_largest_piece(pieces: int, untied: int | None) -> None:
    layer = MaxoutConv2d(2, 3, 3, pieces, padding=1, untied=untied, init_range=1.0).double()
    torch.nn.init.normal_(layer.bias)
    x = torch.randn(2, 2, 5, 5, dtype=torch.float64, requires_grad=True)
    fast, slow = layer(x), slow_maxout_conv(x, layer)
    torch.testing.assert_close(fast, slow)
    for ours, oracle in zip(
        gradients(fast, x, layer.weight, layer.bias), gradients(slow, x, layer.weight, layer.bias), strict=True
    ):
        torch.testing.assert_close(ours, oracle)


@pytest.mark.parametrize("pieces", [1, 2, 5])
def test_linear_is_the_largest_piece(pieces: int) -> None:
    layer = MaxoutLinear(4, 3, pieces, init_range=1.0).double()
    torch.nn.init.normal_(layer.bias)
    v = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    slow = torch.stack(
        [
            torch.stack([(layer.weight[j * 3 + u] * row).sum() + layer.bias[j * 3 + u] for j in range(pieces)]).max()
            for row in v
            for u in range(3)
        ]
    ).reshape(6, 3)
    fast = layer(v)
    torch.testing.assert_close(fast, slow)
    for ours, oracle in zip(gradients(fast, v, layer.weight), gradients(slow, v, layer.weight), strict=True):
        torch.testing.assert_close(ours, oracle)


def test_an_image_without_a_batch_is_the_same_image() -> None:
    conv, full = MaxoutConv2d(2, 3, 3, 2, untied=4, init_range=1.0), MaxoutLinear(5, 3, 2, init_range=1.0)
    x, v = torch.randn(2, 6, 6), torch.randn(7, 2, 5)
    torch.testing.assert_close(conv(x), conv(x[None])[0])
    torch.testing.assert_close(full(v), torch.stack([full(row) for row in v]))


def test_a_tie_shares_the_gradient() -> None:
    layer = MaxoutLinear(1, 1, 2)
    torch.nn.init.ones_(layer.weight)
    layer(torch.ones(1, 1)).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.tolist() == [[0.5], [0.5]]


def test_the_start_is_the_published_one() -> None:
    conv, full = MaxoutConv2d(3, 8, 5, 2), MaxoutLinear(50, 8, 5)
    for layer in (conv, full):
        assert layer.weight.abs().max() <= 0.005
        # U(-a, a) has deviation a / sqrt(3); 800 draws and more put the estimate within a tenth of it
        assert layer.weight.std().item() == pytest.approx(0.005 / 3**0.5, rel=0.1)
        assert not layer.bias.any()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: MaxoutConv2d(1, 1, 1, pieces=0), "pieces of MaxoutConv2d is 0; expected a whole number of at least 1"),
        (lambda: MaxoutConv2d(0, 1, 1, 1), "in_channels of MaxoutConv2d is 0"),
        (lambda: MaxoutConv2d(1, 1, 1, 1, padding=-1), "padding of MaxoutConv2d is -1; expected .* at least 0"),
        (lambda: MaxoutLinear(4, 2.5, 1), "out_features of MaxoutLinear is 2.5"),  # type: ignore[arg-type]
        (lambda: MaxoutLinear(4, True, 1), "out_features of MaxoutLinear is True"),
    ],
)
def test_bad_sizes_are_named(build: object, message: str) -> None:
    with pytest.raises(NetworkError, match=message):
        build()  # type: ignore[operator]
