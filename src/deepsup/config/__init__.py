"""The settings of a run: groups of typed fields, and the Config that holds them. Needs no torch."""

from deepsup.config.config import Config
from deepsup.config.groups import GROUPS as GROUPS
from deepsup.config.groups import PLACES as PLACES
from deepsup.config.groups import (
    DataSettings,
    NetworkSettings,
    ObjectiveSettings,
    OptimizerSettings,
    Phase,
    RunSettings,
    SupervisionSettings,
)
from deepsup.config.setting import Setting, current, settings_of

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
