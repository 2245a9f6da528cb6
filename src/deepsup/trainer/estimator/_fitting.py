"""A trunk, samples and settings -> a trained net, without a trace in the global random state.

N samples, K classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from deepsup.errors import DataError, SupervisionError
from deepsup.supervision import Companion, DeeplySupervised, supervise
from deepsup.trainer.config import Config
from deepsup.trainer.estimator._trunks import build_trunk, taps_of_trunk
from deepsup.trainer.training import (
    Batches,
    EarlyStopping,
    History,
    Processes,
    Training,
    device_of,
    settle_layers,
    settle_precision,
)


@dataclass(frozen=True, eq=False)
class SampleBatches(Batches):
    """Batches of samples of any shape, already scaled. A last sample of its own joins the batch before it.

    BatchNorm has no variance of a single sample.
    """

    def __post_init__(self) -> None:
        if len(self.images) < 2:
            raise DataError(f"{len(self.images)} sample to train on; expected at least 2; give more samples")

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (samples [B, ...], labels [B])."""
        order = torch.randperm(len(self.images), generator=torch.Generator().manual_seed(self.seed + epoch))
        for start, end in self.bounds():
            yield self.images[order[start:end]], self.labels[order[start:end]]

    def bounds(self) -> list[tuple[int, int]]:
        """Return where each batch begins and ends."""
        size = max(2, self.batch_size)
        starts = [start for start in range(0, len(self.images), size) if len(self.images) - start > 1]
        return list(zip(starts, [*starts[1:], len(self.images)], strict=True))


def build_supervised(
    network: Any, at: Any, companion: Companion | None, shape: tuple[int, ...], classes: int, config: Config
) -> DeeplySupervised:
    """Return a new supervised net for samples of ``shape``; raise an error that names both shapes if it has another."""
    trunk = build_trunk(network, shape, classes).to(device_of(config))
    like = next((each for each in trunk.parameters() if each.is_floating_point()), torch.empty(0))
    example = torch.zeros(2, *shape, device=like.device)
    try:
        net = supervise(
            trunk, at=taps_of_trunk(trunk, at), num_classes=classes, example=example, companion=companion or Companion()
        )
    except SupervisionError as error:
        if "fails on the example" not in str(error):
            raise
        reason = " ".join(str(error.__cause__ or error).split())
        raise DataError(
            f"{type(trunk).__name__} does not take samples of shape {list(shape)}: {reason}; expected samples of the "
            f"shape that the network was made for; resize them, or give image_shape="
        ) from error
    return net.train()


def settled(config: Config, net: DeeplySupervised, shape: tuple[int, ...]) -> Config:
    """Return the config with its precision decided, and the layers named that stay in float32."""
    return settle_layers(settle_precision(config, Processes()), net, shape, Processes())


def train_net(
    net: DeeplySupervised, train: tuple[Tensor, Tensor], config: Config, stopping: EarlyStopping | None
) -> list[dict[str, Any]]:
    """Train the net in place; return what each epoch gave."""
    batches = SampleBatches(*train, batch_size=config.run.batch_size, seed=config.run.seed)
    history = History()
    Training(config, net, batches).train([*([stopping] if stopping else []), history])
    net.eval()
    return history.epochs
