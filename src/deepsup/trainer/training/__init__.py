"""A network, an objective and batches -> a trained network, epoch by epoch."""

from deepsup.trainer.training._answers import answering, measured_in
from deepsup.trainer.training._batches import Batches
from deepsup.trainer.training._build import build_batches, build_net, build_network, build_objective, device_of, taps_of
from deepsup.trainer.training._callbacks import Callback, Clock, Deadline, EarlyStopping, History
from deepsup.trainer.training._distributed import Processes, joined
from deepsup.trainer.training._hooks import hooks
from deepsup.trainer.training._loop import Training, not_finite
from deepsup.trainer.training._memory import kept_memory
from deepsup.trainer.training._precision import bfloat16_on, precision_of, settle_layers, settle_precision

__all__ = [
    "Batches",
    "Callback",
    "Clock",
    "Deadline",
    "EarlyStopping",
    "History",
    "Processes",
    "Training",
    "answering",
    "bfloat16_on",
    "build_batches",
    "build_net",
    "build_network",
    "build_objective",
    "device_of",
    "hooks",
    "joined",
    "kept_memory",
    "measured_in",
    "not_finite",
    "precision_of",
    "settle_layers",
    "settle_precision",
    "taps_of",
]
