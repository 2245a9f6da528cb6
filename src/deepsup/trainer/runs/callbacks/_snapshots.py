"""A training -> small copies of its weights after some epochs, float16, for a page that goes through the epochs."""

import math
import re
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from deepsup.errors import RunError
from deepsup.io import below, check_tensor_list, folder_below, reason, write_whole
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.training import Callback, Training


def snapshot_epochs(count: int, epochs: int) -> list[int]:
    """Return after how many epochs a copy is kept: before the first, then ever more rarely, since nets learn early.

    The weights of the last epoch are the model itself, so they are not among them.

    >>> snapshot_epochs(10, 30)
    [0, 1, 2, 3, 5, 7, 10, 14, 21]
    """
    if count <= 0:
        return []
    inner = max(count - 2, 0)
    chosen = {0} | {round(math.exp(math.log(epochs) * index / (inner + 1))) for index in range(inner + 1)}
    free = iter(each for each in range(1, epochs) if each not in chosen)
    while len(chosen - {epochs}) < min(count - 1, epochs):  # roundings that coincide leave room for others
        chosen.add(next(free))
    return sorted(chosen - {epochs})[: max(count - 1, 1)]


class Snapshots(Callback):
    """Writes ``snapshots/epoch-0003.safetensors`` after some epochs: the weights of net and companions, float16."""

    def __init__(self, run: RunFolder, count: int, epochs: int) -> None:
        self.run = run
        self.epochs = frozenset(snapshot_epochs(count, epochs))

    def started(self, training: Training) -> None:
        """Keep the weights before the first step."""
        if training.iteration == 0:
            self.keep(0, training)

    def epoch_ended(self, training: Training, record: dict[str, Any]) -> None:
        """Keep the weights of some epochs."""
        self.keep(record["epoch"] + 1, training)

    def keep(self, epoch: int, training: Training) -> None:
        """Write the weights after so many epochs, if they are wanted."""
        if epoch in self.epochs and training.processes.first:
            weights = {name: half(value) for name, value in training.trained.state_dict().items()}
            folder = folder_below(self.run.folder, self.run.snapshots.name)
            write_whole(folder / f"epoch-{epoch:04}.safetensors", to_bytes(weights))


def half(value: Tensor) -> Tensor:
    """Return a tensor as float16 where its values fit into that."""
    value = value.detach().cpu().clone().contiguous()
    if not value.is_floating_point() or float(value.abs().amax() if value.numel() else 0) > torch.finfo(torch.half).max:
        return value
    return value.half()


def snapshot_files(run: RunFolder) -> dict[int, Path]:
    """Return epoch -> file of a run's snapshots, in order; none for a run that keeps none. Links are refused."""
    files = {}
    for path in sorted(below(run.folder, run.snapshots.name).glob("epoch-*.safetensors")):
        if number := re.fullmatch(r"epoch-(\d{1,9})\.safetensors", path.name):
            files[int(number[1])] = below(run.folder, run.snapshots.name, path.name)
    return dict(sorted(files.items()))


def read_snapshot(path: Path) -> dict[str, Tensor]:
    """Return the weights of a snapshot, float32 again."""
    try:
        check_tensor_list(path)
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    except Exception as error:  # of safetensors, of torch
        raise RunError(f"{path} is no snapshot that deepsup wrote ({reason(error)}); remove it") from error
    return {name: value.float() if value.dtype == torch.half else value for name, value in tensors.items()}
