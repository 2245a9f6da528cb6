"""Rates and groups: the authors' code at chosen iterations, schedules, AdamW, and what decays."""

import math
from pathlib import Path

import pytest
import torch

from deepsup import train
from deepsup.errors import ConfigError
from deepsup.trainer.config import Config, Phase
from deepsup.trainer.recipes import caffe_cifar10
from deepsup.trainer.training._build import build_net, build_objective, build_optimizer
from deepsup.trainer.training._rates import learning_rate, phase_at, set_rates


def caffe_rates(iteration: int) -> dict[tuple[bool, float], float]:
    """Every group's rate at an iteration of the authors' training: (is a head, its multiple) -> rate."""
    config = caffe_cifar10()
    net = build_net(config, 10, (3, 32, 32))
    optimizer = build_optimizer(config, net)
    _, phase, within = phase_at(config, iteration // 500)  # 50,000 images in batches of 100
    lr = learning_rate(config, phase, within, 0.0, 0)
    set_rates(optimizer, lr, iteration, config.optimizer.companion_lr_decay)
    return {(group["head"], group["rate"]): group["lr"] for group in optimizer.param_groups}


RATES = [(0, 0.025), (50_000, 0.025), (100_000, 0.025), (150_000, 0.025 / 20), (170_000, 1e-4)]


@pytest.mark.parametrize(("iteration", "lr"), RATES)
def test_the_caffe_recipe_has_the_authors_rates(iteration: int, lr: float) -> None:
    rates = caffe_rates(iteration)
    head = 0.001 * lr * (1 + 1e-4 * iteration) ** -0.75
    expected = {
        (False, 1.0): lr,
        (False, 2.0): 2 * lr,
        (False, 0.1): 0.1 * lr,
        (False, 0.2): 0.2 * lr,
        (True, 0.001): head,
    }
    assert rates.keys() == expected.keys()
    for key, value in expected.items():
        assert rates[key] == pytest.approx(value, rel=1e-12)


def test_the_caffe_recipe_has_the_authors_phases() -> None:
    plan = [phase_at(caffe_cifar10(), epoch) for epoch in range(caffe_cifar10().total_epochs)]
    assert len(plan) * 500 == 200_000
    assert [phase.companions for _, phase, _ in plan] == [True] * 100 + [False] * 300
    assert plan[100][1].reset_momentum
    assert caffe_cifar10().run.batch_size == 100


def test_the_phase_of_an_epoch_is_found_without_counting_them_out() -> None:
    """The oracle is the list of all epochs; a billion of them need no list."""
    config = Config(phases=(Phase(2, 0.1), Phase(1, 0.2), Phase(3, 0.3)))
    listed = [(i, phase, within) for i, phase in enumerate(config.plan) for within in range(phase.epochs)]
    assert [phase_at(config, epoch) for epoch in range(6)] == listed
    assert phase_at(Config(epochs=10**9), 10**9 - 1)[2] == 10**9 - 1


def test_the_caffe_recipe_starts_within_the_authors_bounds() -> None:
    torch.manual_seed(0)
    net = build_net(caffe_cifar10(), 10, (3, 32, 32))
    for tap, features in {"conv1": 196_608, "conv2": 49_152, "conv3": 12_288}.items():
        layer = net.head(tap).classifier
        bound = (3 / (10 * features)) ** 0.5
        assert 0.99 * bound < layer.weight.abs().max() <= bound
        assert layer.bias.abs().max() == 0
    conv = net.trunk.get_submodule("conv2")
    assert conv.weight.std().item() == pytest.approx(0.05, rel=0.02)
    assert sum(p.numel() for p in net.heads.parameters()) == 2_580_510
    assert sum(p.numel() for p in net.trunk.parameters()) == 966_986


def test_the_caffe_recipe_starts_at_the_loss_of_zero_scores() -> None:
    """One-vs-rest, squared: scores near 0 lose K = 10, at the output and at every companion."""
    torch.manual_seed(0)
    config = caffe_cifar10()
    net = build_net(config, 10, (3, 32, 32)).eval()
    images = torch.randn(8, 3, 32, 32)  # of unit variance, as the authors' data
    with torch.no_grad():
        loss = build_objective(config, net)(net(images), torch.arange(8))
    assert loss.total.item() == pytest.approx(40, rel=0.1)
    for each in (loss.output_loss, *loss.companion_losses.values()):
        assert each.item() == pytest.approx(10, rel=0.1)


def test_weights_decay_and_biases_do_not() -> None:
    config = Config(weight_decay=0.1, companion_lr=0.5)
    net = build_net(config, 10, (1, 28, 28))
    for group in build_optimizer(config, net).param_groups:
        assert {p.ndim > 1 for p in group["params"]} == {group["weight_decay"] == 0.1}
        assert group["rate"] == (0.5 if group["head"] else 1.0)


def test_every_parameter_is_in_one_group() -> None:
    config = caffe_cifar10()
    net = build_net(config, 10, (3, 32, 32))
    grouped = [p for group in build_optimizer(config, net).param_groups for p in group["params"]]
    assert len(grouped) == len({id(p) for p in grouped}) == len(list(net.parameters()))


def test_the_step_and_the_plateau_schedule() -> None:
    config = Config(anneal="step", anneal_at=(3, 5), anneal_factor=10, lr=1.0, epochs=8)
    rates = [learning_rate(config, config.plan[0], epoch, epoch / 8, 0) for epoch in range(8)]
    assert rates == pytest.approx([1, 1, 1, 0.1, 0.1, 0.01, 0.01, 0.01])
    stalled = Config(anneal="plateau", validation=10, lr=1.0)
    assert learning_rate(stalled, stalled.plan[0], 4, 0.5, 2) == pytest.approx(1 / 400)


@pytest.mark.parametrize("warmup", [0.0, 0.25, 1.0])
def test_the_cosine_is_its_closed_form(warmup: float) -> None:
    config = Config(anneal="cosine", warmup=warmup, lr=2.0)
    for progress in (step / 40 for step in range(40)):
        if progress < warmup:
            expected = 2.0 * progress / warmup
        else:
            expected = 2.0 * (1 + math.cos(math.pi * (progress - warmup) / (1 - warmup))) / 2
        assert learning_rate(config, config.plan[0], 0, progress, 0) == pytest.approx(expected), progress
    assert learning_rate(config, config.plan[0], 0, 1.0, 0) == pytest.approx(0)


def test_adamw_is_that_of_torch_on_every_parameter_with_its_own_rate_and_decay() -> None:
    """The oracle: one torch.optim.AdamW per parameter, on the same gradients."""
    torch.manual_seed(0)
    config = Config(
        optimizer="adamw", lr=0.01, companion_lr=0.5, bias_lr=2.0, weight_decay=0.1, anneal="cosine", warmup=0.2
    )
    net = build_net(config, 10, (1, 28, 28))
    optimizer = build_optimizer(config, net)
    assert type(optimizer) is torch.optim.AdamW
    expected = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
    alone = {name: torch.optim.AdamW([weight], betas=(0.9, 0.999), eps=1e-8) for name, weight in expected.items()}
    for step in range(5):
        lr = learning_rate(config, config.plan[0], 0, (step + 0.5) / 5, 0)
        set_rates(optimizer, lr, step, companion_lr_decay=False)
        for name, parameter in net.named_parameters():
            parameter.grad = torch.randn_like(parameter)
            multiple = 0.5 if name.startswith("heads.") else 2.0 if parameter.ndim == 1 else 1.0
            (group,) = alone[name].param_groups
            group |= {"lr": multiple * lr, "weight_decay": 0.1 if parameter.ndim > 1 else 0.0}
            expected[name].grad = parameter.grad.clone()
            alone[name].step()
        optimizer.step()
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(parameter.detach(), expected[name], rtol=1e-6, atol=1e-8)


def test_the_triangle() -> None:
    config = Config(anneal="triangular", warmup=0.25, lr=2.0, epochs=4)
    at = [learning_rate(config, config.plan[0], 0, progress, 0) for progress in (0, 0.125, 0.25, 0.625, 1)]
    assert at == pytest.approx([0, 1, 2, 1, 0])


@pytest.mark.parametrize("anneal", ["triangular", "cosine"])
def test_a_phase_with_a_schedule_of_its_own_is_a_training_of_its_own(anneal: str) -> None:
    phases = (Phase(2, 0.1), Phase(4, 0.2, anneal=anneal), Phase(3, 0.3, anneal_at=(1,), anneal_factor=10))
    config, alone = Config(phases=phases, warmup=0.3), Config(epochs=4, lr=0.2, anneal=anneal, warmup=0.3)
    rates = []
    for epoch in range(config.total_epochs):
        index, phase, within = phase_at(config, epoch)
        assert phase == phases[index]
        rates.append(learning_rate(config, phase, within, (within + 0.5) / phase.epochs, 0))
    expected = [learning_rate(alone, alone.plan[0], epoch, (epoch + 0.5) / 4, 0) for epoch in range(4)]
    assert rates == pytest.approx([0.1, 0.1, *expected, 0.3, 0.03, 0.03])


def test_a_phase_with_two_schedules_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"a phase has anneal=cosine and anneal_at=\[1\]; expected one of them"):
        Phase(3, 0.1, anneal="cosine", anneal_at=(1,))


def test_the_loop_anneals_within_the_phase(tmp_path: Path) -> None:
    phases = (Phase(1, 0.001), Phase(4, 0.002, anneal="triangular"))
    config = Config(train_size=20, batch_size=10, phases=phases, warmup=0.0, tensorboard=False, test=False)
    rates = [record["lr"] for record in train(config, tmp_path / "run").metrics]  # at the last step of each epoch
    assert rates == pytest.approx([0.001, *(0.002 * (1 - (epoch + 0.75) / 4) for epoch in range(4))])
