"""Taps, companions, and how they are put on any nn.Module: the paper's idea, knowing nothing of our own networks."""

from deepsup.supervision.attach import DeeplySupervised, DeepOutput, supervise
from deepsup.supervision.companions import Companion

__all__ = ["Companion", "DeepOutput", "DeeplySupervised", "supervise"]
