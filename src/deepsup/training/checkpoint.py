"""The state of a training -> a file that is whole or not there, and back; plain types and tensors only."""

import pickle
import re
from pathlib import Path
from typing import Any

import torch

from deepsup.errors import RunError
from deepsup.files import whole_file

FORMAT = 1


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint: to a temporary file, synced, then renamed; a failed write is an error."""
    with whole_file(path) as part, part.open("wb") as file:
        try:
            torch.save({"deepsup": FORMAT, **state}, file)
        except RuntimeError as error:  # torch wraps what the disk says
            raise OSError(None, str(error).splitlines()[0]) from error


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint, or say why it cannot be one."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise RunError(f"no checkpoint {path}") from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, pickle.UnpicklingError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RunError(
            f"{path} cannot be read as a checkpoint ({reason}); expected a whole one that deepsup wrote; remove it to "
            f"go on from the one before"
        ) from error
    if not isinstance(state, dict) or not isinstance(state.get("deepsup"), int):
        raise RunError(f"{path} is not a checkpoint of deepsup; expected one that deepsup train wrote")
    if state["deepsup"] > FORMAT:
        raise RunError(
            f"{path} has format {state['deepsup']}, this deepsup reads up to {FORMAT}; install the newer version"
        )
    return state


def step_path(folder: Path, step: int) -> Path:
    """Return where the checkpoint after ``step`` steps lies."""
    return folder / f"step-{step:09d}.pt"


def all_steps(folder: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first."""
    return sorted(path for path in folder.glob("step-*.pt") if re.fullmatch(r"step-\d+\.pt", path.name))


def keep_last(folder: Path, count: int) -> None:
    """Remove all but the last checkpoints, and what a crash left half-written."""
    for path in all_steps(folder)[:-count]:
        path.unlink(missing_ok=True)
    for path in folder.glob(".*.part"):
        path.unlink(missing_ok=True)
