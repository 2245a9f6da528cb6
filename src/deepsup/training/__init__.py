"""A network, an objective and batches -> a trained network, epoch by epoch."""

from deepsup.training.batches import Batches

__all__ = ["Batches"]
