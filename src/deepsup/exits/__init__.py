"""Early exits: answer as soon as a companion is sure, and run the rest of the net for the other samples only."""

from deepsup.exits.calibration import calibrate
from deepsup.exits.early_exit import EarlyExit, EarlyOutput

__all__ = ["EarlyExit", "EarlyOutput", "calibrate"]
