"""What a run does between the steps and epochs of its training: measure, record, save, stop."""

from deepsup.trainer.runs.callbacks._checkpointing import Checkpointing
from deepsup.trainer.runs.callbacks._measuring import Measuring
from deepsup.trainer.runs.callbacks._metrics_file import MetricsFile
from deepsup.trainer.runs.callbacks._snapshots import Snapshots
from deepsup.trainer.runs.callbacks._stop import StopOnSignal
from deepsup.trainer.runs.callbacks._tensorboard import TensorBoard

__all__ = ["Checkpointing", "Measuring", "MetricsFile", "Snapshots", "StopOnSignal", "TensorBoard"]
