"""A trained net -> numbers: its scores, its errors, and those of every companion."""

from deepsup.evaluation.metrics import Measurement, error_percent, measure

__all__ = ["Measurement", "error_percent", "measure"]
