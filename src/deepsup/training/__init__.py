"""A network, an objective and batches -> a trained network, epoch by epoch."""

from deepsup.training.batches import Batches
from deepsup.training.callbacks import Callback

__all__ = ["Batches", "Callback"]
