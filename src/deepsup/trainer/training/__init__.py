"""A network, an objective and batches -> a trained network, epoch by epoch."""

from deepsup.trainer.training.batches import Batches
from deepsup.trainer.training.callbacks import Callback

__all__ = ["Batches", "Callback"]
