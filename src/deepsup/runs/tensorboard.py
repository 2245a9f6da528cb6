"""The record of an epoch -> TensorBoard events, where that package is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from deepsup.training import Callback
from deepsup.training.loop import Training


class TensorBoard(Callback):
    """Writes every number of an epoch's record as an event; does nothing without the package. Close it at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writer: Any = None

    def started(self, training: Training) -> None:
        """Open the file of events; those of epochs that are trained again are dropped."""
        if importlib.util.find_spec("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter  # half a second: only where it is used

            self._writer = SummaryWriter(str(self.folder), purge_step=training.epoch)

    def epoch_ended(self, training: Training, record: dict[str, Any]) -> None:  # noqa: ARG002
        """Write the events of an epoch."""
        if self._writer is not None:
            write_events(self._writer, record)

    def close(self) -> None:
        """Write what is left and close the file."""
        if self._writer is not None:
            self._writer.close()


def write_events(writer: Any, record: dict[str, Any]) -> None:
    """Write every number of an epoch's record."""
    for name, value in record.items():
        if isinstance(value, dict):
            for tap, each in ((tap, each) for tap, each in value.items() if isinstance(each, float)):
                writer.add_scalar(f"{name}/{tap}", each, record["epoch"])
        elif isinstance(value, float):
            writer.add_scalar(name, value, record["epoch"])
