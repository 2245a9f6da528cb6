"""The record of every epoch -> a line of metrics.jsonl."""

from typing import Any

from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.training import Callback, Training


class MetricsFile(Callback):
    """Writes the record of every epoch to metrics.jsonl, with what was changed in it after a divergence."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run

    def started(self, training: Training) -> None:
        """Drop the records of epochs that are trained again."""
        self.run.keep_metrics(training.epoch)

    def epoch_ended(self, training: Training, record: dict[str, Any]) -> None:  # noqa: ARG002
        changes = [change for change in self.run.changes if change["epoch"] == record["epoch"]]
        record |= {"changes": changes} if changes else {}
        self.run.add_metrics(record)
