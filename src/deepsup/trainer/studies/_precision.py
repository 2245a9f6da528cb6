"""A config and the folder of a study -> the config with the precision that all runs of the study have."""

from pathlib import Path

from deepsup.io import disk_errors_named
from deepsup.trainer.config import Config
from deepsup.trainer.runs import RunFolder
from deepsup.trainer.training import Processes, settle_precision


def with_precision(config: Config, folder: Path) -> Config:
    """Return the config with ``amp`` on or off: under auto as the runs in the folder have it, else as is fast here.

    So a study that goes on on another machine goes on in the precision of its first run.
    """
    if config.run.amp != "auto":
        return config
    with disk_errors_named(folder):
        begun = next(iter(sorted(folder.glob("**/config.yaml"))), None)
    if begun is None:
        return settle_precision(config, Processes())
    return config.replace(amp=RunFolder(begun.parent).config.run.amp)
