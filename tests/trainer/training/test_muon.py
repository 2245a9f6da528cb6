"""Muon against singular values and explicit steps, beside SGD, and where it must be refused."""

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from deepsup.errors import TrainingError
from deepsup.supervision import DeeplySupervised
from deepsup.trainer.config import Config
from deepsup.trainer.networks import create_network
from deepsup.trainer.training._build import build_net, build_optimizer
from deepsup.trainer.training._muon import Muon, orthogonalize


def by_singular_values(matrix: Tensor, steps: int) -> Tensor:
    """The iteration acts on singular values alone: take them apart, apply the polynomial, put them together."""
    u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
    s = s / s.square().sum().sqrt()
    for _ in range(steps):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return u @ torch.diag(s) @ vh


@pytest.mark.parametrize("shape", [(8, 27), (27, 8), (6, 6), (1, 9), (5, 1)])
def test_it_acts_on_singular_values_alone(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, dtype=torch.float64)
    for steps in (1, 3, 5):
        assert torch.allclose(orthogonalize(matrix, steps), by_singular_values(matrix, steps), atol=1e-6)


def test_a_step_is_nearly_as_long_in_every_direction() -> None:
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonalize(torch.randn(32, 288)))
    assert values.min() > 0.5
    assert values.max() < 1.5


@pytest.mark.parametrize("shape", [(96, 576), (576, 96), (32, 2304)])
@pytest.mark.parametrize("decay", [0.0, 1.5])
def test_bfloat16_gives_the_direction_of_float32(shape: tuple[int, int], decay: float) -> None:
    torch.manual_seed(0)
    u, s, vh = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    matrix = u @ torch.diag(s * torch.arange(1, len(s) + 1) ** -decay) @ vh  # as random weights, or as a gradient
    whole, half = orthogonalize(matrix), orthogonalize(matrix, dtype=torch.bfloat16)
    assert half.dtype == torch.float32
    assert torch.cosine_similarity(whole.flatten(), half.flatten(), 0) > 0.999
    assert (torch.linalg.svdvals(half) - torch.linalg.svdvals(whole)).abs().max() < 0.05
    assert torch.linalg.svdvals(half).max() < 1.5


@pytest.mark.parametrize(("amp", "products"), [("on", torch.bfloat16), ("off", None)])
def test_the_precision_of_a_run_is_that_of_its_products(amp: str, products: torch.dtype | None) -> None:
    config = Config(network="fast", network_options={"widths": [8]}, optimizer="muon", amp=amp)
    optimizer = build_optimizer(config, build_net(config, 10, (1, 28, 28)))
    assert isinstance(optimizer, Muon)
    assert optimizer.products == products


def test_no_gradient_no_direction() -> None:
    assert orthogonalize(torch.zeros(3, 4)).abs().max() == 0


@pytest.mark.parametrize("nesterov", [True, False])
def test_its_steps_are_those_written_out(nesterov: bool) -> None:
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(4, 3, 3, 3, dtype=torch.float64))
    groups = [{"params": [weight], "orthogonal": True}]
    optimizer = Muon(groups, lr=0.2, momentum=0.7, nesterov=nesterov)
    expected, buffer = weight.detach().clone(), torch.zeros_like(weight)
    for _ in range(3):
        gradient = torch.randn_like(weight)
        weight.grad = gradient.clone()
        optimizer.step()
        buffer = 0.7 * buffer + gradient
        direction = gradient + 0.7 * buffer if nesterov else buffer
        expected = expected * (4**0.5 / expected.square().sum().sqrt())
        expected = expected - 0.2 * by_singular_values(direction.flatten(1), 3).reshape(expected.shape)
        assert torch.allclose(weight, expected, atol=1e-6)


def test_all_other_parameters_take_the_steps_of_sgd() -> None:
    torch.manual_seed(0)
    start = torch.randn(3, 5)
    mine, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    turned = nn.Parameter(torch.randn(2, 3, 3, 3))
    muon = Muon(
        [{"params": [mine], "orthogonal": False, "weight_decay": 0.01}, {"params": [turned], "orthogonal": True}],
        lr=0.1, momentum=0.9, nesterov=True,
    )  # fmt: skip
    sgd = torch.optim.SGD([theirs], lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)
    for _ in range(4):
        mine.grad = torch.randn_like(start)
        theirs.grad, turned.grad = mine.grad.clone(), torch.randn_like(turned)
        muon.step()
        sgd.step()
    assert torch.equal(mine, theirs)


def test_it_goes_on_from_its_state() -> None:
    def training(weight: nn.Parameter) -> Muon:
        return Muon([{"params": [weight], "orthogonal": True}], lr=0.1, momentum=0.9)

    torch.manual_seed(0)
    gradients = torch.randn(4, 6, 3, 3, 3)
    one = nn.Parameter(torch.randn(6, 3, 3, 3))
    first = training(one)
    for gradient in gradients[:2]:
        one.grad = gradient.clone()
        first.step()
    other = nn.Parameter(one.detach().clone())
    second = training(other)
    second.load_state_dict(deepcopy(first.state_dict()))
    for gradient in gradients[2:]:
        one.grad, other.grad = gradient.clone(), gradient.clone()
        first.step()
        second.step()
    assert torch.equal(one, other)


MUON = Config(network="fast", optimizer="muon", lr=2.0, muon_lr=0.05, bias_lr=30.0, companion_lr=0.5, weight_decay=0.1)


def test_it_turns_the_trunks_convolutions_and_nothing_else() -> None:
    net = build_net(MUON, 10, (1, 28, 28))
    for group in build_optimizer(MUON, net).param_groups:
        assert group["orthogonal"] == (group["params"][0].ndim == 4)
        rate = 0.05 if group["orthogonal"] else 0.5 if group["head"] else 1.0 if group["params"][0].ndim > 1 else 30.0
        assert group["rate"] == rate
        assert group["weight_decay"] == (0.1 if group["params"][0].ndim == 2 else 0.0)


def test_what_is_not_learned_is_not_in_the_optimizer() -> None:
    net = build_net(MUON, 10, (1, 28, 28))
    grouped = {id(p) for group in build_optimizer(MUON, net).param_groups for p in group["params"]}
    assert grouped == {id(p) for p in net.parameters() if p.requires_grad}


@pytest.mark.parametrize(
    ("network", "lacks"), [(create_network("cnn"), "norms"), (nn.Sequential(nn.Linear(3, 2)), "convolutions")]
)
def test_it_is_refused_where_it_makes_no_sense(network: nn.Module, lacks: str) -> None:
    net = DeeplySupervised(network, {}, 10)
    with pytest.raises(TrainingError, match=f"without {lacks}; expected .* use optimizer=sgd"):
        build_optimizer(MUON, net)
