"""The settings of a run: groups of typed fields, and the Config that holds them. Needs no torch."""

from deepsup.trainer.config.config import Config
from deepsup.trainer.config.groups import GROUPS as GROUPS
from deepsup.trainer.config.groups import PLACES as PLACES
from deepsup.trainer.config.groups import (
    DataSettings,
    NetworkSettings,
    ObjectiveSettings,
    OptimizerSettings,
    Phase,
    RunSettings,
    SupervisionSettings,
)
from deepsup.trainer.config.setting import Setting, current, settings_of

__all__ = [
    "Config",
    "DataSettings",
    "NetworkSettings",
    "ObjectiveSettings",
    "OptimizerSettings",
    "Phase",
    "RunSettings",
    "Setting",
    "SupervisionSettings",
    "current",
    "settings_of",
]
