"""A trained net -> one file with all that predicting needs (weights, preprocessing, class names), and back."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from deepsup.errors import RunError
from deepsup.insight import DenseMeasurement, Measurement, measure, measure_dense
from deepsup.io import check, check_tensor_list, decoded, faults_named, reason, sorted_metadata, write_whole
from deepsup.supervision import DeeplySupervised
from deepsup.trainer.config import Config
from deepsup.trainer.data import Images
from deepsup.trainer.preprocess import Normalizer, to_tensor
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.training import (
    Processes,
    answering,
    build_net,
    measured_in,
    settle_layers,
    settle_precision,
)

FORMAT = 1
ABOUT = {"format": int, "config": {}, "classes": [str], "shape": [int], "steps": [{"step": str}]}
REMEDY = "expected a model that deepsup wrote; train it again"
MOST_VALUES = 2**22
"""Values of one image, channels included: what a model's file can make its reader allocate."""


@dataclass(frozen=True, eq=False)
class Model:
    """A trained net and what it was trained with."""

    net: DeeplySupervised
    normalize: Normalizer
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    """Of one image: [C,H,W]."""
    config: Config
    path: Path
    """The file that it was read from."""

    @property
    def dense(self) -> bool:
        """Whether the net scores every pixel."""
        return self.net.dense

    def asked(self, tta: str | None, amp: str | None) -> "Model":
        """Return a model that answers from other views, or in another precision, than its run does; None: the run's.

        amp: auto, on or off, of the machine here.
        """
        config = self.config if tta is None else self.config.replace(tta=tta)
        if amp is not None:
            config = settle_precision(config.replace(amp=amp, amp_test=True), Processes())
            config = settle_layers(config, self.net, self.shape, Processes())
        return replace(self, config=config)

    def how(self) -> dict[str, str]:
        """Return from which views and in which precision it answers."""
        return {"tta": self.config.run.tta, "measured_in": measured_in(self.config)}

    def measure_dense(self, images: Images, labels: Tensor | None = None) -> DenseMeasurement:
        """Return what a dense net predicts for every pixel of uint8 images [N,C,H,W]."""
        labels = torch.zeros(len(images), *images.shape[2:], dtype=torch.uint8) if labels is None else labels
        forward = answering(self.config, self.net)
        measured = measure_dense(self.net, to_tensor(images), labels, self.normalize, forward=forward)
        self.check_finite(*measured.not_finite)
        return measured

    def measure(self, images: Images, labels: Tensor | None = None) -> Measurement:
        """Return what the net says of uint8 images [N,C,H,W]; scores that are not finite are refused."""
        labels = torch.zeros(len(images), dtype=torch.long) if labels is None else labels
        forward = answering(self.config, self.net)
        measured = measure(self.net, to_tensor(images), labels, self.normalize, forward=forward)
        scores = {"output": measured.scores, **measured.companions}
        self.check_finite(*(name for name, each in scores.items() if not each.isfinite().all()))
        return measured

    def check_finite(self, *not_finite: str) -> None:
        """Refuse a model that has layers whose scores are not finite: what it predicts means nothing."""
        if not_finite:
            raise RunError(
                f"{self.path}: the model's scores are not finite at {not_finite[0]}: its weights hold NaN or infinite "
                f"numbers, or too large ones; train it again with a lower learning rate"
            )


def save_model(path: Path, net: nn.Module, normalize: Normalizer, classes: tuple[str, ...], shape: tuple[int, ...],
               config: Config) -> None:  # fmt: skip
    """Write the file whole, with a digest of all that it holds."""
    state = normalize.state()
    tensors = {f"net.{name}": tensor for name, tensor in net.state_dict().items()}
    tensors |= {f"normalize.{name}": tensor for name, tensor in state["arrays"].items()}
    about = {"format": FORMAT, "config": config.to_dict(), "classes": classes, "shape": shape, "steps": state["steps"]}
    # cloned, since safetensors refuses tensors that share memory
    packed = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(about)
    content = to_bytes(packed, {"deepsup": text, "sha256": digest_of(text, packed)})
    write_whole(path, sorted_metadata(content))


def digest_of(text: str, tensors: Mapping[str, Tensor]) -> str:
    """Return a digest of names, types, shapes and values."""
    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def load_model(run: RunFolder) -> Model:
    """Read the model of a finished run, without pickle, without the data, and without importing what it names."""
    about, tensors = read_model(run)
    with faults_named(run.model, RunError, REMEDY):
        return restored(about, tensors, run)


def load_preprocessing(run: RunFolder) -> tuple[Normalizer, tuple[int, ...]]:
    """Read only the fitted normalization of a model and the shape of its images, [C,H,W]."""
    about, tensors = read_model(run)
    with faults_named(run.model, RunError, REMEDY):
        return preprocessing(about, tensors), image_shape(about)


def read_model(run: RunFolder) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return what a model's file says about the net, and its tensors."""
    if not run.exists:
        _ = run.config  # says what is missing
    if not run.model.is_file():
        raise RunError(f"{run.folder} has no model.safetensors yet; let it finish: deepsup train --out DIR --resume")
    try:
        check_tensor_list(run.model)
        with safe_open(run.model, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
        about = decoded(header["deepsup"].encode())
        check(about, ABOUT)
        whole = header.get("sha256") in (None, digest_of(header["deepsup"], tensors))  # older files have none
    except Exception as error:  # of safetensors, of JSON, of torch
        raise RunError(f"{run.model} is not a model that deepsup wrote ({reason(error)}); train it again") from error
    if about["format"] > FORMAT:
        raise RunError(
            f"{run.model} has format {about['format']}; this deepsup reads up to {FORMAT}; install the newer"
        )
    if not whole:
        raise RunError(f"{run.model} is damaged: its checksum differs; copy it again, or train it again")
    return about, tensors


def restored(about: dict[str, Any], tensors: dict[str, Tensor], run: RunFolder) -> Model:
    """Build the net again and give it its weights."""
    # sides are of training only: the net would be run on images of each
    config = Config.recorded({**about["config"], "device": "cpu", "compile": False, "sides": []})
    if ":" in config.network.name and run.network is None:
        raise RunError(
            f"{run.folder} names a network that is not part of deepsup, {config.network.name}; reading a run imports "
            f"no code unless you trust it: give --trust, or in Python Run({str(run.folder)!r}, network=FACTORY)"
        )
    classes, shape = tuple(about["classes"]), image_shape(about)
    weights = part_of(tensors, "net.")
    with torch.random.fork_rng(devices=[]):
        net = build_net(config, len(classes), shape, run.network, most_bytes(weights))
    try:
        net.load_state_dict(weights)
    except RuntimeError as error:
        raise RunError(
            f"the model's weights do not fit its network ({reason(error)}); has the network changed since?"
        ) from error
    return Model(net.eval(), preprocessing(about, tensors), classes, shape, config, run.model)


def most_bytes(weights: Mapping[str, Tensor]) -> int:
    """Return what a net may take that gets these weights: a file of a few bytes must not ask for gigabytes."""
    return 2**24 + 4 * sum(tensor.nbytes for tensor in weights.values())


def image_shape(about: dict[str, Any]) -> tuple[int, ...]:
    """Return the shape of one image of a model, [C,H,W]."""
    shape = tuple(about["shape"])
    if len(shape) != 3 or min(shape) < 1 or math.prod(shape) > MOST_VALUES:
        raise ValueError(f"images of {list(shape)}, expected [C,H,W] of at most {MOST_VALUES:,} values")
    return shape


def preprocessing(about: dict[str, Any], tensors: dict[str, Tensor]) -> Normalizer:
    """Return the fitted normalization of a model."""
    state = {"steps": about["steps"], "arrays": part_of(tensors, "normalize.")}
    return Normalizer.from_state(state, image_shape(about))


def part_of(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose name begins with a prefix, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
