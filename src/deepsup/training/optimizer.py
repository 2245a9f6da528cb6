"""A net and a config -> SGD with a group for every rate and decay, and the learning rate at each step."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from deepsup.config import Config, Phase
from deepsup.networks import Network
from deepsup.supervision import DeeplySupervised


def build_optimizer(config: Config, net: DeeplySupervised) -> torch.optim.SGD:
    """Return SGD over all parameters. Each group has a ``rate``, its multiple of the learning rate, and ``head``."""
    groups: dict[tuple[float, float, bool], list[nn.Parameter]] = {}
    for name, parameter in net.named_parameters():
        groups.setdefault(group_of(config, net, name, parameter), []).append(parameter)
    settings: list[dict[str, Any]] = [
        {"params": parameters, "rate": rate, "weight_decay": decay, "head": head}
        for (rate, decay, head), parameters in groups.items()
    ]
    return torch.optim.SGD(settings, lr=config.plan[0].lr, momentum=config.momentum, nesterov=config.nesterov)


def group_of(config: Config, net: DeeplySupervised, name: str, parameter: nn.Parameter) -> tuple[float, float, bool]:
    """Return a parameter's rate, its weight decay (none for biases and norms), and whether it is a companion's."""
    decay = config.weight_decay if parameter.ndim > 1 else 0.0
    room, _, inside = name.partition(".")
    if room == "heads":
        return config.head_lr, decay, True
    layer = inside.rpartition(".")[0]
    if not config.published_rates or not isinstance(net.trunk, Network) or layer not in net.trunk.published:
        return 1.0, decay, False
    published = net.trunk.published[layer]
    if published.decay is not None and parameter.ndim > 1:
        decay = published.decay
    return published.bias_rate if inside.endswith("bias") else published.rate, decay, False


def phases_by_epoch(config: Config) -> Iterator[tuple[int, Phase, int]]:
    """Yield, for every epoch of the training, the number of its phase, the phase, and the epoch within it."""
    for index, phase in enumerate(config.plan):
        for epoch in range(phase.epochs):
            yield index, phase, epoch


def learning_rate(config: Config, phase: Phase, epoch: int, progress: float, divisions: int) -> float:
    """Return the rate at an epoch of a phase; ``progress`` of the training within 0 and 1, ``divisions`` by stalls."""
    if config.anneal == "triangle" and not config.phases:
        up = progress / config.warmup if config.warmup else 1.0
        return phase.lr * min(up, (1 - progress) / max(1 - config.warmup, 1e-12), 1.0)
    divisions += sum(epoch >= stop for stop in phase.anneal_at)
    return phase.lr / phase.anneal_factor**divisions


def set_rates(optimizer: torch.optim.Optimizer, lr: float, iteration: int, head_lr_decay: bool) -> None:
    """Give every group its multiple of the rate; the companions' decays with the iterations where asked for."""
    head = (1 + 1e-4 * iteration) ** -0.75 if head_lr_decay else 1.0
    for group in optimizer.param_groups:
        group["lr"] = lr * group["rate"] * (head if group["head"] else 1.0)
