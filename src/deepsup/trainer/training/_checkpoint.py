"""The state of a training -> a file that is whole or not there, and back; plain types and tensors only."""

import logging
import re
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from deepsup.errors import RunError
from deepsup.io import check_zip_list, reason, remove, whole_file

logger = logging.getLogger("deepsup")
FORMAT = 1
MOST_STRUCTURE = 3 * 2**20
"""Bytes of all but the values of tensors: about 100 per tensor. A single byte can stand for an object of a hundred."""


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


def check_zip(path: Path) -> None:
    """Compare every record with its checksum, which torch writes but does not read; refuse packed records.

    torch stores records as they are, so that they never take more memory than the file has bytes.
    """
    check_zip_list(path)
    with zipfile.ZipFile(path) as archive:
        structure = max((info.file_size for info in archive.infolist() if info.filename.endswith(".pkl")), default=0)
        if structure > MOST_STRUCTURE:
            raise ValueError(f"its structure has {structure:,} bytes, expected at most {MOST_STRUCTURE:,}")
        if any(info.compress_type != zipfile.ZIP_STORED for info in archive.infolist()):
            raise ValueError("it has packed records")
        damaged = archive.testzip()
    if damaged is not None:
        raise ValueError(f"the checksum of its record {damaged!r} differs")


def check_tensors(value: Any) -> None:
    """Refuse tensors that claim more values than the file holds for them."""
    if isinstance(value, Tensor):
        if value.nbytes > value.untyped_storage().nbytes():
            raise ValueError(f"a tensor {list(value.shape)} has more values than are stored")
    elif isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            check_tensors(each)


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
