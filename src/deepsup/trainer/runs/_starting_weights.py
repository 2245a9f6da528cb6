"""Start a run from weights that are there: of another run's trunk, of a file, or published with the network."""

import logging
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from deepsup.errors import RunError
from deepsup.io import check_tensor_list, faults_named, size_of_regular
from deepsup.supervision import DeeplySupervised
from deepsup.trainer.config import Config
from deepsup.trainer.networks import full_name, published_weights
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.runs._model import digest_of, part_of, read_model
from deepsup.trainer.training import check_saved, check_tensors

GONE = "gone"
"""In place of a digest: the run to start from is no longer there."""


PUBLISHED = "published"
"""In place of a file: the weights that torchvision or timm publish."""
logger = logging.getLogger("deepsup")


def start_trunk(net: DeeplySupervised, config: Config, begun: bool = False) -> str | None:
    """Give the trunk the weights that ``start_from`` or ``weights`` names; return their digest, None without a name.

    begun: whether the training goes on from a checkpoint, so that the weights to start from may be gone.
    """
    given = config.network.start_from or config.network.weights
    if given is None:
        return None
    if begun and (given == PUBLISHED or not Path(given).exists()):
        return GONE
    digest = from_run(net, config, given) if config.network.start_from else from_weights(net, config, given)
    net.trunk.load_state_dict(net.trunk.state_dict() | digest)
    return digest_of(full_name(config.network.name), digest)


def from_run(net: DeeplySupervised, config: Config, folder: str) -> dict[str, Tensor]:
    """Return the weights of a run of the same network, without those of the last layer: its classes are others."""
    where = f"start_from={folder}"
    try:
        about, tensors = read_model(RunFolder(folder))
    except RunError as error:
        raise RunError(f"{where}: {error}") from error
    if (network := about["config"].get("network")) != full_name(config.network.name):
        raise RunError(f"{where} is a run of the network {network}; expected one of {config.network.name}")
    last = last_layer(net)
    theirs, ours = (
        {name: tensor for name, tensor in each.items() if not name.startswith(last)}
        for each in (part_of(tensors, "net.trunk."), net.trunk.state_dict())
    )
    check_fit(where, theirs, ours, "the same images' shape and the same network_options")
    return theirs


def from_weights(net: DeeplySupervised, config: Config, source: str) -> dict[str, Tensor]:
    """Return pretrained weights as far as they fit: all, or all but a last layer for other classes."""
    name = config.network.name
    read = published_weights(full_name(name)) if source == PUBLISHED else read_weights(Path(source))
    ours, last = net.trunk.state_dict(), last_layer(net)
    theirs = {key: tensor for key, tensor in read.items() if not key.lower().startswith("aux")}  # not built here
    counts = {key: tensor for key, tensor in ours.items() if key.endswith("num_batches_tracked")}
    theirs = {**counts, **theirs}  # files of older versions of torch have none
    new = [key for key in ours if key.startswith(last) and key in theirs and theirs[key].shape != ours[key].shape]
    if new:
        counts_of = f"{len(theirs[new[0]]):,} classes there, {len(ours[new[0]]):,} here"
        logger.info("weights: all of %s but %s, which is new: %s", source, last[:-1], counts_of)
        theirs = {key: tensor for key, tensor in theirs.items() if not key.startswith(last)}
        ours = {key: tensor for key, tensor in ours.items() if not key.startswith(last)}
    check_fit(f"weights={source}", theirs, ours, f"weights of {name}")
    return theirs


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file of safetensors, or of a state_dict that torch has saved; no code of it is run."""
    expected = "expected a .safetensors file, or what torch.save(model.state_dict(), FILE) wrote"
    with faults_named(path, RunError, expected):
        size_of_regular(path)
        read: Any = tensors_of(path) if path.suffix == ".safetensors" else unpickled(path)
        for key in ("state_dict", "model"):  # checkpoints of training scripts
            read = read[key] if isinstance(read.get(key), Mapping) else read
        tensors = {str(name).removeprefix("module."): each for name, each in read.items() if isinstance(each, Tensor)}
        if not tensors:
            raise ValueError("it holds no tensors by name")
    return tensors


def tensors_of(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file."""
    check_tensor_list(path)
    return load_file(path)


def unpickled(path: Path) -> Any:
    """Return what torch has saved in a file: a zip, or in files of old versions a row of pickles."""
    other = "it is no state_dict but, perhaps, a whole model"
    try:
        check_saved(path)
    except pickle.UnpicklingError as error:
        raise ValueError(f"{other}: {error}") from error
    try:
        read = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:  # its text advises to load the file without this protection
        raise ValueError(other) from error
    check_tensors(read)
    return read


def last_layer(net: DeeplySupervised) -> str:
    """Return the beginning of the names of its weights: those of the layer that gives the scores."""
    return next(f"{name}." for name, layer in net.trunk.named_modules() if layer is net.output_layer)


def check_fit(where: str, given: Mapping[str, Tensor], net: Mapping[str, Tensor], expected: str) -> None:
    """Refuse weights of other names or shapes, naming the first."""
    for name in sorted(given.keys() | net.keys()):
        theirs, ours = (list(each[name].shape) if name in each else "not there" for each in (given, net))
        if theirs != ours:
            raise RunError(f"{where}: its {name} is {theirs}, that of the network to train {ours}; expected {expected}")
