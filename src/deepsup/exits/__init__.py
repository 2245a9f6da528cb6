"""Early exits: answer as soon as a companion is sure, and run the rest of the net for the other samples only."""

from deepsup.exits._calibration import calibrate
from deepsup.exits._early_exit import EarlyExit, EarlyOutput
from deepsup.exits._stage_export import export_stages
from deepsup.exits._stage_times import measure_speed
from deepsup.exits._timing import Ratio, Turn, ratio, take_turns

__all__ = [
    "EarlyExit",
    "EarlyOutput",
    "Ratio",
    "Turn",
    "calibrate",
    "export_stages",
    "measure_speed",
    "ratio",
    "take_turns",
]
