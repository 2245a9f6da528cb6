"""A folder of plain settings and weights, here or on the Hugging Face Hub: write it, fetch it, read it without code.

config.json         settings in plain types, with a digest of the weights
model.safetensors   tensors; no pickle is ever read
README.md           the model card
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from deepsup.errors import RunError, extras_named
from deepsup.io import check, check_tensor_list, disk_errors_named, faults_named, read_json, write_whole

SETTINGS, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
FORMAT = 1


def make_folder(folder: str | os.PathLike[str]) -> Path:
    """Make a folder to save to; it may be there already."""
    path = Path(folder)
    with disk_errors_named(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


def write_pretrained(folder: Path, settings: Mapping[str, Any], tensors: Mapping[str, Tensor], card: str) -> None:
    """Write the three files, each whole."""
    # cloned, since safetensors refuses tensors that share memory
    weights = to_bytes({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()})
    about = {**settings, "format": FORMAT, "sha256": hashlib.sha256(weights).hexdigest()}
    write_whole(folder / WEIGHTS, weights)
    write_whole(folder / SETTINGS, (json.dumps(about, indent=2) + "\n").encode())
    write_whole(folder / CARD, card.encode())


def read_pretrained(folder: Path, shape: Mapping[str, Any], remedy: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return settings of this shape (see ``io.check``) and the tensors."""
    for name in (SETTINGS, WEIGHTS):
        if not (folder / name).is_file():
            raise RunError(f"{folder} has no {name}; {remedy}")
    settings = read_json(folder / SETTINGS, {"format": int, "sha256": str}, remedy)
    if settings["format"] > FORMAT:
        raise RunError(
            f"{folder / SETTINGS} has format {settings['format']}; this deepsup reads up to {FORMAT}; install the newer"
        )
    with faults_named(folder / SETTINGS, RunError, remedy):
        check(settings, shape)
    with faults_named(folder / WEIGHTS, RunError, remedy):
        check_tensor_list(folder / WEIGHTS)
        content = (folder / WEIGHTS).read_bytes()
        tensors = from_bytes(content)
    if hashlib.sha256(content).hexdigest() != settings["sha256"]:
        raise RunError(f"{folder / WEIGHTS} is damaged: its checksum differs; copy it again")
    return settings, tensors


def local_folder(name: str | os.PathLike[str], files: Sequence[str], **options: Any) -> Path:
    """Return a folder that is here, or fetch these files of a model from the hub; nothing else is fetched.

    options: ``revision``, ``token``, ``cache_dir``, ``local_files_only`` and others of ``snapshot_download``.
    """
    if Path(name).is_dir():
        return Path(name)
    text = os.fspath(name)
    if text.count("/") > 1 or text.startswith((".", "~")) or os.sep * 2 in text or Path(text).exists():
        raise RunError(
            f"{text} is no folder; expected one that save_pretrained made, or the name of a model on the hub"
        )
    hub = hub_package()
    try:
        return Path(hub.snapshot_download(text, allow_patterns=list(files), library_name="deepsup", **options))
    except Exception as error:  # of the hub's client: many classes, of HTTP, of the disk, of names
        reason = " ".join(str(error).split())[:200]
        raise RunError(
            f"{text} is no folder here and cannot be fetched from the hub ({type(error).__name__}: {reason}); expected "
            f"a folder that save_pretrained made, or owner/name of a model"
        ) from error


def push(save: Callable[[str], None], repo_id: str, *, private: bool, token: str | None, message: str) -> str:
    """Save to a temporary folder and upload it to the hub; make the repository if need be; return its URL."""
    api = hub_package().HfApi(token=token)
    with tempfile.TemporaryDirectory() as folder:
        save(folder)
        try:
            url = api.create_repo(repo_id, private=private, exist_ok=True)
            api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message=message)
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            raise RunError(
                f"cannot upload to {repo_id} ({type(error).__name__}: {reason}); expected owner/name, and a token with "
                f"write access: hf auth login, or token="
            ) from error
    return str(url)


def hub_package() -> Any:
    """Return huggingface_hub; only fetching and uploading need it."""
    with extras_named("the Hugging Face Hub"):
        import huggingface_hub
    return huggingface_hub


def card_of(title: str, lines: Sequence[str], code: str) -> str:
    """Return a short model card, with the front matter that the hub reads."""
    front = "---\nlibrary_name: deepsup\ntags:\n- deep-supervision\n- image-classification\n---\n"
    text = "\n".join(f"- {line}" for line in lines)
    return f"{front}\n# {title}\n\n{text}\n\n```python\n{code}\n```\n"


def sizes_of(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    """Return the shape of each tensor."""
    return {name: tensor.shape for name, tensor in tensors.items()}
