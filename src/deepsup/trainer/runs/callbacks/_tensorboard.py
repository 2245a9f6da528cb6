"""The record of an epoch -> TensorBoard events, where that package is installed."""

from __future__ import annotations

import importlib.util
import os
import secrets
import time
from pathlib import Path
from typing import Any

from deepsup.io import disk_errors_named
from deepsup.trainer.training import Callback, Training


class TensorBoard(Callback):
    """Writes every number of an epoch's record as an event; does nothing without the package. Close it at the end.

    Events are written at once, in this thread: a full disk is then an error like any other.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"events.out.tfevents.{int(time.time())}.{os.getpid()}.{secrets.token_hex(4)}"
        self._file: Any = None

    def started(self, training: Training) -> None:
        """Open the file of events; those of epochs that are trained again are dropped."""
        if importlib.util.find_spec("tensorboard"):
            from tensorboard.compat.proto.event_pb2 import SessionLog

            with disk_errors_named(self.path):
                self._file = self.path.open("xb", buffering=0)  # a name that is free
            start = SessionLog(status=SessionLog.START)
            self._write([{"file_version": "brain.Event:2"}, {"step": training.epoch, "session_log": start}])

    def epoch_ended(self, training: Training, record: dict[str, Any]) -> None:  # noqa: ARG002
        """Write the events of an epoch."""
        if self._file is not None:
            from tensorboard.compat.proto.summary_pb2 import Summary

            values = [Summary.Value(tag=tag, simple_value=value) for tag, value in numbers(record)]
            self._write([{"step": record["epoch"], "summary": Summary(value=[value])} for value in values])

    def _write(self, events: list[dict[str, Any]]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        with disk_errors_named(self.path):
            writer = RecordWriter(self._file)
            for event in events:
                writer.write(Event(wall_time=time.time(), **event).SerializeToString())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def numbers(record: dict[str, Any]) -> list[tuple[str, float]]:
    """Return every number of an epoch's record with its tag, ``error`` or ``companion_errors/conv1``."""
    tagged = []
    for name, value in record.items():
        if isinstance(value, dict):
            tagged += [(f"{name}/{tap}", each) for tap, each in value.items() if isinstance(each, float)]
        elif isinstance(value, float):
            tagged.append((name, value))
    return tagged
