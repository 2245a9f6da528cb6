"""Attach companions to the hidden layers of any ``nn.Module``."""

from deepsup.supervision.attach import DeeplySupervised, DeepOutput, supervise
from deepsup.supervision.companions import Companion

__all__ = ["Companion", "DeepOutput", "DeeplySupervised", "supervise"]
