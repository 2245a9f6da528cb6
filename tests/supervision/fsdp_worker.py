"""One process of two, started by torchrun: three steps of a sharded language model on this rank's half of the batch.

Each case shards, checkpoints activations, accumulates gradients or compiles; rank 0 saves the losses of the batch.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from token_nets import WORDS, LanguageModel, words
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from deepsup import Companion, DeeplySupervised, Objective, supervise

BATCH, STEPS = 8, 3
CASES = ("fsdp", "fsdp linear", "fsdp checkpoint accumulate", "fsdp compile", "ddp compile", "ddp random")


def build(case: str) -> DeeplySupervised:
    """Return the net of a case, in double precision."""
    model = LanguageModel().double()
    if "checkpoint" in case:
        for block in model.h:
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    head: Any = "linear" if "linear" in case else "output"
    torch.manual_seed(5)
    return supervise(model, "h.[0-2]", num_classes=WORDS, example=words(), companion=Companion(head=head))


def batches() -> list[Tensor]:
    return [words(BATCH, seed=seed) for seed in range(STEPS)]


def parts_of(case: str, ranks: list[int]) -> list[list[int]]:
    """Return the rows of each part of a step that processes take together; each has half of the batch."""
    half, size = BATCH // 2, BATCH // 4 if "accumulate" in case else BATCH // 2
    return [[rank * half + first + row for rank in ranks for row in range(size)] for first in range(0, half, size)]


def train(net: Any, case: str, ranks: list[int]) -> list[Tensor]:
    """Return the loss of each step on the rows of some processes."""
    alpha: Any = "random" if "random" in case else 0.3
    objective = Objective(net, alpha=alpha, shift=1, steps=STEPS)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    losses = []
    for step, batch in enumerate(batches()):
        optimizer.zero_grad()
        found = []
        for rows in (parts := parts_of(case, ranks)):
            total = objective(net(batch[rows]), batch[rows], progress=step / STEPS).total / len(parts)
            total.backward()
            found.append(total.detach())
        optimizer.step()
        losses.append(torch.stack(found).sum())
    return losses


def main(folder: Path) -> None:
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    for case in CASES:
        net: nn.Module = build(case)
        if "fsdp" in case:
            for block in net.trunk.h:  # type: ignore[union-attr] # a ModuleList
                fully_shard(block)
            fully_shard(net)
        if "compile" in case:
            net = torch.compile(net, backend="aot_eager")  # type: ignore[assignment] # a module
        if "ddp" in case:
            net = DistributedDataParallel(net)
        losses = torch.stack(train(net, case, [rank]))
        distributed.all_reduce(losses)
        if rank == 0:
            torch.save(losses / 2, folder / f"{case}.pt")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
