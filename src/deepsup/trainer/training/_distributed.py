"""The processes of torchrun: the rank of this process, and sums over all of them."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import Tensor, distributed

from deepsup.errors import DeepsupError, TrainingError


@dataclass(frozen=True)
class Processes:
    """One process alone, or one of several that train the same net together."""

    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """Return the sum over all processes."""
        if self.world == 1:
            return tensor
        total = tensor.clone()
        distributed.all_reduce(total)
        return total

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any of the processes."""
        return bool(self.sum(torch.tensor(float(flag))) > 0)

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all processes, in the order of their ranks."""
        if self.world == 1:
            return [tensor]
        gathered = [torch.empty_like(tensor) for _ in range(self.world)]
        distributed.all_gather(gathered, tensor)
        return gathered


@contextmanager
def joined(device: str) -> Iterator[Processes]:
    """Join the process group if torchrun started several processes; leave it at the end.

    A process that waits for the others longer than $DEEPSUP_TIMEOUT seconds (300) gives up: one of them has stopped.
    The DDP wrapper must be deleted by then: a reducer that outlives its group makes torch wait, with the GIL taken, for
    a thread that waits for the GIL.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1 or distributed.is_initialized():
        yield Processes() if world == 1 else Processes(distributed.get_rank(), world)
        return
    seconds = waiting_time()
    backend = "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"
    distributed.init_process_group(backend, timeout=timedelta(seconds=seconds))
    try:
        yield Processes(distributed.get_rank(), distributed.get_world_size())
    except RuntimeError as error:
        if isinstance(error, DeepsupError) or not (isinstance(error, distributed.DistError) or "gloo" in str(error)):
            raise
        raise TrainingError(
            f"another process of this training has ended, or has not answered for {seconds:g} s ($DEEPSUP_TIMEOUT); "
            f"start all of them again with --resume"
        ) from error
    gc.collect()
    distributed.destroy_process_group()


def waiting_time() -> float:
    """Return for how many seconds a process waits for the others."""
    given = os.environ.get("DEEPSUP_TIMEOUT", "300")
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise TrainingError(f"DEEPSUP_TIMEOUT={given}; expected seconds above 0 and below 1,000,000, e.g. 300")
    return seconds
