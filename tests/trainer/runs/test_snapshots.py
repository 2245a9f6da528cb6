"""Snapshots of the weights during training: when they are kept, and that they are what the net was then."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from deepsup.errors import RunError
from deepsup.trainer.config import Config
from deepsup.trainer.runs._train import train
from deepsup.trainer.runs.callbacks._snapshots import half, read_snapshot, snapshot_epochs, snapshot_files
from deepsup.trainer.training import Callback
from deepsup.trainer.training._loop import Training


@pytest.mark.parametrize(("count", "epochs"), [(1, 1), (2, 1), (10, 30), (10, 10), (5, 400), (30, 7), (3, 2), (10, 20)])
def test_the_epochs_that_are_kept(count: int, epochs: int) -> None:
    """With the model itself as many as asked for, or all there are; the first before training, then ever rarer."""
    kept = [*snapshot_epochs(count, epochs), epochs]
    assert len(kept) == max(2, min(count, epochs + 1))
    assert kept[0] == 0
    assert kept == sorted(set(kept))
    gaps = np.diff(kept)
    assert (np.diff(gaps) >= -1).all()
    assert snapshot_epochs(0, epochs) == []


class Watching(Callback):
    """Keeps the weights after every epoch."""

    def __init__(self) -> None:
        self.seen: dict[int, dict[str, torch.Tensor]] = {}

    def started(self, training: Training) -> None:
        self.seen[0] = self.copied(training)

    def epoch_ended(self, training: Training, record: dict[str, Any]) -> None:
        self.seen[record["epoch"] + 1] = self.copied(training)

    def copied(self, training: Training) -> dict[str, torch.Tensor]:
        return {name: value.detach().clone() for name, value in training.trained.state_dict().items()}


def test_the_weights_are_those_of_their_epoch(small: Config, tmp_path: Path) -> None:
    watching = Watching()
    run = train(small.replace(snapshots=3), tmp_path / "run", callbacks=[watching])
    files = snapshot_files(run)
    assert list(files) == snapshot_epochs(3, 3) == [0, 1]
    for epoch, path in files.items():
        for name, value in read_snapshot(path).items():
            torch.testing.assert_close(value, watching.seen[epoch][name], rtol=2**-11, atol=1e-7)
    plain = train(small, tmp_path / "plain")
    assert not plain.snapshots.exists()
    for name, value in plain.load().state_dict().items():
        assert torch.equal(value, run.load().state_dict()[name])  # keeping them changes nothing


def test_a_stopped_run_goes_on_keeping_them(small: Config, tmp_path: Path) -> None:
    config = small.replace(snapshots=3)
    train(config.replace(limit_steps=8), tmp_path / "run")
    first = (tmp_path / "run/snapshots/epoch-0000.safetensors").read_bytes()
    run = train(config, tmp_path / "run", resume=True)
    assert list(snapshot_files(run)) == [0, 1]
    assert (tmp_path / "run/snapshots/epoch-0000.safetensors").read_bytes() == first


def test_numbers_too_large_for_half_precision_stay_as_they_are() -> None:
    assert half(torch.tensor([1e6])).dtype == torch.float32
    assert half(torch.tensor([1.5])).dtype == torch.half
    assert half(torch.tensor([3])).dtype == torch.int64
    assert half(torch.empty(0)).dtype == torch.half


def test_a_damaged_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "epoch-0001.safetensors"
    path.write_bytes(b"no weights")
    with pytest.raises(RunError, match=r"epoch-0001.safetensors is no snapshot that deepsup wrote .*; remove it"):
        read_snapshot(path)
