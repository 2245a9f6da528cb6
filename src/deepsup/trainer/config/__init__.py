"""The settings of a run: groups of typed fields, and the Config that holds them. Needs no torch."""

from deepsup.trainer.config._config import Config, plain_types
from deepsup.trainer.config._groups import (
    GROUPS,
    PLACES,
    DataSettings,
    NetworkSettings,
    ObjectiveSettings,
    OptimizerSettings,
    Phase,
    RunSettings,
    SupervisionSettings,
)
from deepsup.trainer.config._setting import (
    Setting,
    current,
    current_name,
    option_words,
    settings_of,
    value_words,
)

__all__ = [
    "GROUPS",
    "PLACES",
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
    "current_name",
    "option_words",
    "plain_types",
    "settings_of",
    "value_words",
]
