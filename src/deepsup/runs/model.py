"""A trained net -> one file with all that predicting needs (weights, preprocessing, class names), and back."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from deepsup.config import Config
from deepsup.errors import RunError
from deepsup.files import write_whole
from deepsup.preprocess import Normalizer
from deepsup.runs.folder import RunFolder
from deepsup.supervision import DeeplySupervised
from deepsup.training.build import build_net

FORMAT = 1


@dataclass(frozen=True, eq=False)
class Model:
    """A trained net and what it was trained with."""

    net: DeeplySupervised
    normalize: Normalizer
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    """Of one image: [C,H,W]."""
    config: Config


def save_model(path: Path, net: nn.Module, normalize: Normalizer, classes: tuple[str, ...], shape: tuple[int, ...],
               config: Config) -> None:  # fmt: skip
    """Write the file whole."""
    state = normalize.state()
    tensors = {f"net.{name}": tensor for name, tensor in net.state_dict().items()}
    tensors |= {f"normalize.{name}": tensor for name, tensor in state["arrays"].items()}
    about = {"format": FORMAT, "config": config.to_dict(), "classes": classes, "shape": shape, "steps": state["steps"]}
    # cloned, since safetensors refuses tensors that share memory
    packed = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    write_whole(path, to_bytes(packed, {"deepsup": json.dumps(about)}))


def load_model(run: RunFolder) -> Model:
    """Read the model of a finished run, without pickle and without the data."""
    if not run.exists:
        _ = run.config  # says what is missing
    if not run.model.is_file():
        raise RunError(f"{run.folder} has no model.safetensors yet; let it finish: deepsup train --out DIR --resume")
    try:
        with safe_open(run.model, framework="pt") as file:
            about = json.loads((file.metadata() or {})["deepsup"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise RunError(f"{run.model} is not a model that deepsup wrote ({error}); train it again") from error
    if about["format"] > FORMAT:
        raise RunError(
            f"{run.model} has format {about['format']}; this deepsup reads up to {FORMAT}; install the newer"
        )
    return restored(about, tensors)


def restored(about: dict[str, Any], tensors: dict[str, Tensor]) -> Model:
    """Build the net again and give it its weights."""
    config = Config.recorded({**about["config"], "device": "cpu", "compile": False})
    classes, shape = tuple(about["classes"]), tuple(about["shape"])
    arrays = {name.removeprefix("normalize."): t for name, t in tensors.items() if name.startswith("normalize.")}
    normalize = Normalizer.from_state({"steps": about["steps"], "arrays": arrays})
    with torch.random.fork_rng(devices=[]):
        net = build_net(config, len(classes), shape)
    try:
        net.load_state_dict({name.removeprefix("net."): t for name, t in tensors.items() if name.startswith("net.")})
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise RunError(
            f"the model's weights do not fit its network ({reason}); has the network changed since?"
        ) from error
    return Model(net.eval(), normalize, classes, shape, config)
