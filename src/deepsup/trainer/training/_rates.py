"""A config, an epoch and a step -> the learning rate of every group of parameters."""

from math import cos, pi

import torch

from deepsup.trainer.config import Config, Phase


def phase_at(config: Config, epoch: int) -> tuple[int, Phase, int]:
    """Return the number of the phase that an epoch belongs to, the phase, and the epoch within it."""
    within = epoch
    for index, phase in enumerate(config.plan):
        if within < phase.epochs:
            return index, phase, within
        within -= phase.epochs
    raise AssertionError(f"epoch {epoch} of {config.total_epochs}")


def learning_rate(config: Config, phase: Phase, epoch: int, progress: float, divisions: int) -> float:
    """Return the rate at an epoch of a phase; ``progress`` of the phase within 0 and 1, ``divisions`` by stalls."""
    anneal, warmup = phase.anneal, config.optimizer.warmup
    if anneal != "step":
        up = progress / warmup if warmup else 1.0
        left = (1 - progress) / max(1 - warmup, 1e-12)  # of what follows the warmup; above 1 within it
        down = left if anneal == "triangular" else (1 - cos(pi * min(left, 1.0))) / 2
        return phase.lr * min(up, down, 1.0)
    divisions += sum(epoch >= stop for stop in phase.anneal_at)
    return phase.lr / phase.anneal_factor**divisions


def set_rates(optimizer: torch.optim.Optimizer, lr: float, iteration: int, companion_lr_decay: bool) -> None:
    """Give every group its multiple of the rate; the companions' decays with the iterations where asked for."""
    head = (1 + 1e-4 * iteration) ** -0.75 if companion_lr_decay else 1.0
    for group in optimizer.param_groups:
        group["lr"] = lr * group["rate"] * (head if group["head"] else 1.0)
