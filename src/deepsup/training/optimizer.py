"""A net and a config -> SGD or Muon with a group for every rate and decay, and the learning rate at each step."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from deepsup.config import Config, Phase
from deepsup.errors import TrainingError
from deepsup.networks import Network
from deepsup.supervision import DeeplySupervised
from deepsup.training.muon import Muon


class Group(NamedTuple):
    """What a parameter shares with others: its multiple of the learning rate, and how it is trained."""

    rate: float
    weight_decay: float
    head: bool = False
    """Whether it is a companion's."""
    orthogonal: bool = False
    """Whether Muon turns its steps."""


def build_optimizer(config: Config, net: DeeplySupervised) -> torch.optim.SGD:
    """Return SGD, or Muon beside it, over all parameters that are learned; its groups have the fields of Group."""
    groups: dict[Group, list[nn.Parameter]] = {}
    for name, parameter in net.named_parameters():
        if parameter.requires_grad:
            groups.setdefault(group_of(config, net, name, parameter), []).append(parameter)
    if config.optimizer == "muon":
        check_muon(net.trunk, any(group.orthogonal for group in groups))
    settings: list[dict[str, Any]] = [{"params": parameters, **group._asdict()} for group, parameters in groups.items()]
    kind = Muon if config.optimizer == "muon" else torch.optim.SGD
    return kind(settings, lr=config.plan[0].lr, momentum=config.momentum, nesterov=config.nesterov)


def group_of(config: Config, net: DeeplySupervised, name: str, parameter: nn.Parameter) -> Group:
    """Return a parameter's group. Biases and norms do not decay."""
    decay = config.weight_decay if parameter.ndim > 1 else 0.0
    room, _, inside = name.partition(".")
    if room == "heads":
        return Group(config.head_lr, decay, head=True)
    if config.optimizer == "muon" and parameter.ndim == 4:
        return Group(config.muon_lr, 0.0, orthogonal=True)
    layer = inside.rpartition(".")[0]
    if not config.published_rates or not isinstance(net.trunk, Network) or layer not in net.trunk.published:
        return Group(1.0 if parameter.ndim > 1 else config.bias_lr, decay)
    published = net.trunk.published[layer]
    if published.decay is not None and parameter.ndim > 1:
        decay = published.decay
    return Group(published.bias_rate if inside.endswith("bias") else published.rate, decay)


def check_muon(trunk: nn.Module, turns: bool) -> None:
    """Refuse Muon where it has nothing to turn, or where nothing undoes the scale that it gives to convolutions."""
    norms = (nn.modules.batchnorm._BatchNorm, nn.GroupNorm, nn.LayerNorm)  # torch has no public name for the first
    lacks = "convolutions" if not turns else "norms" if not any(isinstance(m, norms) for m in trunk.modules()) else ""
    if lacks:
        raise TrainingError(
            f"optimizer=muon for a {type(trunk).__name__} without {lacks}; expected convolutions with BatchNorm or the "
            f"like behind them, as 'fast' has; use optimizer=sgd"
        )


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
