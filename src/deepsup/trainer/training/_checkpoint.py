"""The state of a training -> a file that is whole or not there, and back; plain types and tensors only."""

import logging
import re
from pathlib import Path
from typing import Any

import torch

from deepsup.errors import RunError
from deepsup.io import reason, remove, whole_file
from deepsup.trainer.training._saved_structure import check_tensors, check_zip

logger = logging.getLogger("deepsup")
FORMAT = 1


class DamagedCheckpointError(RunError):
    """A checkpoint that is not what was written: the one before may be."""


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint: to a temporary file, synced, then renamed; a failed write is an error."""
    with whole_file(path) as file:
        try:
            torch.save({"deepsup": FORMAT, **state}, file)
        except RuntimeError as error:  # torch wraps what the disk says
            raise OSError(None, str(error).splitlines()[0]) from error


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint, or say why it cannot be one."""
    try:
        check_zip(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
        check_tensors(state)
    except FileNotFoundError as error:
        raise RunError(f"no checkpoint {path}") from error
    except Exception as error:  # of zip, of pickle, of torch
        raise DamagedCheckpointError(
            f"{path} cannot be read as a checkpoint ({reason(error)}); expected a whole one that deepsup wrote; remove "
            f"it to go on from the one before"
        ) from error
    if not isinstance(state, dict) or not isinstance(state.get("deepsup"), int):
        raise RunError(f"{path} is not a checkpoint of deepsup; expected one that deepsup train wrote")
    if state["deepsup"] > FORMAT:
        raise RunError(
            f"{path} has format {state['deepsup']}, this deepsup reads up to {FORMAT}; install the newer version"
        )
    return state


def latest_valid(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """Return the newest checkpoint that is whole; those that are damaged are named in a warning."""
    damage: DamagedCheckpointError | None = None
    for path in reversed(all_steps(folder)):
        try:
            return path, load(path)
        except DamagedCheckpointError as error:
            logger.warning("%s; going on from the one before", str(error).rsplit(";", 1)[0])
            damage = damage or error
    if damage is not None:
        raise damage
    return None


def step_path(folder: Path, step: int) -> Path:
    """Return where the checkpoint after ``step`` steps lies."""
    return folder / f"step-{step:09d}.pt"


def all_steps(folder: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first."""
    return sorted(path for path in folder.glob("step-*.pt") if re.fullmatch(r"step-\d+\.pt", path.name))


def keep_last(folder: Path, count: int) -> None:
    """Remove all but the last checkpoints, and what a crash left half-written."""
    for path in [*all_steps(folder)[:-count], *folder.glob(".*.part")]:
        remove(path)
