"""DropConnect against its definition: a mask on every weight of every example, and the moments of those masks."""

import itertools
import math

import pytest
import torch
from torch import Tensor, nn

from deepsup.errors import NetworkError
from deepsup.trainer.networks import DropConnectLinear
from deepsup.trainer.networks.layers import _dropconnect_linear as dropconnect


def slow_dropconnect(v: Tensor, layer: DropConnectLinear, mask: Tensor, bias_mask: Tensor) -> Tensor:
    """u_bo = sum_i M_boi W_oi v_bi + m_bo b_o, one product after the other."""
    out = []
    for b in range(len(v)):
        for o in range(len(layer.bias)):
            u = bias_mask[b, o] * layer.bias[o]
            for i in range(v.shape[1]):
                u = u + mask[b, o, i] * layer.weight[o, i] * v[b, i]
            out.append(torch.relu(u))
    return torch.stack(out).reshape(len(v), -1)


@pytest.mark.parametrize("examples_at_a_time", [1, 2, 100])
def test_training_masks_every_weight_of_every_example(examples_at_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = DropConnectLinear(4, 3, keep=0.6, activation=nn.ReLU()).double()
    v = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    monkeypatch.setattr(dropconnect, "_CHUNK", examples_at_a_time * layer.weight.numel())
    torch.manual_seed(11)
    fast = layer(v)
    torch.manual_seed(11)  # the same draws again, in the order in which the layer makes them
    chunks = [len(chunk) for chunk in v.split(examples_at_a_time)]
    mask = torch.cat([torch.rand(size, 3, 4) < 0.6 for size in chunks])
    bias_mask = torch.empty(5, 3, dtype=torch.float64).bernoulli_(0.6)
    slow = slow_dropconnect(v, layer, mask, bias_mask)
    torch.testing.assert_close(fast, slow)
    weights = torch.randn_like(fast)
    parameters = (v, layer.weight, layer.bias)
    ours = torch.autograd.grad((fast * weights).sum(), parameters)
    oracle = torch.autograd.grad((slow * weights).sum(), parameters)
    for one, other in zip(ours, oracle, strict=True):
        torch.testing.assert_close(one, other)


def test_training_has_the_moments_of_its_masks() -> None:
    """20,000 examples of one input: mean and variance of each output within 5 standard errors of those of the masks."""
    layer, n, p = DropConnectLinear(6, 4, keep=0.3).double(), 20_000, 0.3
    v = torch.randn(6, dtype=torch.float64)
    u = layer(v.expand(n, 6)).detach()
    mean = p * (layer.weight @ v + layer.bias)
    variance = p * (1 - p) * (layer.weight**2 @ v**2 + layer.bias**2)
    assert ((u.mean(0) - mean).abs() <= 5 * (variance / n).sqrt()).all()
    # the sum of seven masked terms has a kurtosis below 3, so the error of its variance is below a Gaussian's
    assert ((u.var(0) - variance).abs() <= 5 * variance * math.sqrt(2 / n)).all()


def test_the_gaussian_has_the_exact_moments_of_the_masks() -> None:
    """All 2^4 masks of three weights and a bias, weighted by their probability."""
    layer, p = DropConnectLinear(3, 1, keep=0.3, inference="gaussian").double(), 0.3
    v = torch.randn(1, 3, dtype=torch.float64)
    terms = torch.cat([layer.weight[0] * v[0], layer.bias]).detach()
    masks = torch.tensor(list(itertools.product([0.0, 1.0], repeat=4)), dtype=torch.float64)
    chance = (p**masks * (1 - p) ** (1 - masks)).prod(1)
    mean = (chance * (masks @ terms)).sum()
    variance = (chance * (masks @ terms - mean).square()).sum()
    seen: list[Tensor] = []
    layer.activation.register_forward_hook(lambda _module, _args, output: seen.append(output))
    layer.samples = 200_000
    layer.eval()(v)
    draws = torch.cat(seen).flatten()
    assert abs(draws.mean() - mean) <= 5 * (variance / len(draws)).sqrt()
    assert abs(draws.var() - variance) <= 5 * variance * math.sqrt(2 / len(draws))


def test_gaussian_inference_averages_the_activation() -> None:
    """Against the closed form for ReLU, mu Phi(mu/s) + s phi(mu/s), within 5 standard errors of 20,000 samples."""
    layer = DropConnectLinear(8, 5, activation=nn.ReLU(), inference="gaussian", samples=20_000).double().eval()
    v = torch.randn(7, 8, dtype=torch.float64)
    mean = 0.5 * (v @ layer.weight.T + layer.bias)
    deviation = (0.25 * (v**2 @ layer.weight.T**2 + layer.bias**2)).sqrt()
    ratio = mean / deviation
    standard = torch.distributions.Normal(torch.zeros((), dtype=torch.float64), 1.0)
    exact = mean * standard.cdf(ratio) + deviation * standard.log_prob(ratio).exp()
    assert ((layer(v) - exact).abs() <= 5 * deviation / math.sqrt(20_000)).all()


def test_gaussian_samples_come_in_bounded_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dropconnect, "_CHUNK", 64)
    seen: list[int] = []
    layer = DropConnectLinear(3, 4, activation=nn.ReLU(), inference="gaussian", samples=50).eval()
    layer.activation.register_forward_hook(lambda _module, _args, output: seen.append(output.numel()))
    layer(torch.randn(2, 3))
    assert max(seen) <= 64
    assert sum(seen) == 50 * 2 * 4


def test_mean_inference_is_the_linear_map_times_p() -> None:
    layer = DropConnectLinear(4, 3, keep=0.7, activation=nn.ReLU()).eval()
    v = torch.randn(5, 4)
    torch.testing.assert_close(layer(v), torch.relu(0.7 * (v @ layer.weight.T + layer.bias)))
    assert torch.equal(layer(v), layer(v))


def test_the_gaussian_has_a_finite_gradient_where_all_is_zero() -> None:
    layer = DropConnectLinear(3, 2, inference="gaussian", samples=10).eval()
    nn.init.zeros_(layer.bias)
    layer(torch.zeros(4, 3)).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.isfinite().all()


def test_keep_one_and_keep_zero() -> None:
    v = torch.randn(5, 4)
    whole, nothing = DropConnectLinear(4, 3, keep=1.0), DropConnectLinear(4, 3, keep=0.0)
    torch.testing.assert_close(whole(v), v @ whole.weight.T + whole.bias)
    assert not nothing(v).any()


def test_no_float_mask_outlives_the_forward_pass() -> None:
    saved: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    layer, v = DropConnectLinear(32, 16), torch.randn(8, 32, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        layer(v)
    assert max(t.numel() for t in saved if t.is_floating_point()) < 8 * 16 * 32
    assert [t.dtype for t in saved if t.numel() == 8 * 16 * 32] == [torch.bool]


def test_autocast_and_an_empty_batch() -> None:
    layer = DropConnectLinear(4, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = layer(torch.randn(5, 4).bfloat16()).sum()
    loss.backward()
    assert layer.weight.grad is not None
    assert layer(torch.empty(0, 4)).shape == (0, 3)


@pytest.mark.parametrize("keep", [-0.1, 1.5, float("nan"), "half", True])
def test_a_probability_outside_0_1_is_refused(keep: object) -> None:
    with pytest.raises(
        NetworkError, match=r"keep of DropConnectLinear is .*; expected a finite number between 0 and 1"
    ):
        DropConnectLinear(4, 3, keep=keep)  # type: ignore[arg-type]


def test_other_shapes_are_refused() -> None:
    for shape in [(4,), (2, 3, 4), (2, 5)]:
        with pytest.raises(NetworkError, match=r"got a tensor of shape .*; expected \[B, 4\]"):
            DropConnectLinear(4, 3)(torch.zeros(shape))


def test_an_unknown_inference_is_refused() -> None:
    with pytest.raises(NetworkError, match="inference of DropConnectLinear is 'gausian'; did you mean 'gaussian'"):
        DropConnectLinear(4, 3, inference="gausian")
