"""Inspect a finished run: what every layer of its net knows, or how each layer classifies one image file.

N images, C channels, H W map, K classes.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from deepsup.errors import RunError, nearest
from deepsup.insight import (
    Measurement,
    agreement,
    feature_maps,
    first_convolution,
    layer_outputs,
    probe_layer,
)
from deepsup.supervision import supervise
from deepsup.trainer.data import Dataset, Part, read_image_files
from deepsup.trainer.preprocess import to_tensor
from deepsup.trainer.runs._evaluate import check_fits, named
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.runs._insight_files import write_insight
from deepsup.trainer.runs._model import Model, load_model
from deepsup.trainer.runs._run_data import data_of
from deepsup.trainer.training import build_network, taps_of

FILTERS = 60
SHOWN_CLASSES = 10


def inspect(run: RunFolder, layer: str | None = None) -> dict[str, Any]:
    """Measure what every layer knows, write it to the run folder, and return it.

    layer: the layer whose feature maps are kept (default: the first convolution).

    Linear probes are fitted on the training images at the run's taps; for a net without companions, at the taps that
    its network would have.
    """
    model = load_model(run)
    check_labels_only(run, model)
    data = data_of(run, model.config)
    check_fits(run, model, data.name, data.classes, data.test)
    train, test = tensors(data.train), tensors(data.test)
    measured = model.measure(data.test.images, test[1])
    probes, arrays, probed = {}, scores_by_layer(measured), {}
    for tap in hidden_layers(run, model):
        probes[tap], probed[tap] = probe_layer(model.net.trunk, tap, train, test, len(model.classes), model.normalize)
        arrays[f"scores/probe/{tap}"] = probed[tap].numpy()
    maps, pictures = maps_of(model, one_each(data), layer)
    first_right = agreement({**probed, "output": measured.scores}, measured.labels)
    more = {"probes": probes, "probe_agreement": first_right, "maps": maps}
    return write_insight(run, measured, data.test.images, data.classes, more, arrays | pictures)


def check_labels_only(run: RunFolder, model: Model) -> None:
    """Refuse a run with a score per pixel: probes and mistakes are of whole images."""
    if model.dense:
        raise RunError(
            f"{run.folder} scores every pixel; expected a run with one label per image; deepsup evaluate and deepsup "
            f"report show the side outputs of this one"
        )


def inspect_image(
    run: RunFolder, file: str | os.PathLike[str], layer: str | None = None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return how each layer classifies one image file, and its feature maps; without companions, by probes."""
    model = load_model(run)
    check_labels_only(run, model)
    image = read_image_files([Path(file)], model.shape)
    pixels, labels = to_tensor(image), torch.zeros(1, dtype=torch.long)
    measured = model.measure(image, labels)
    scores, judged = dict(measured.companions), "companion"
    if not scores:
        judged, train = "linear probe", tensors(data_of(run, model.config).train)
        for tap in hidden_layers(run, model):
            fitted = probe_layer(model.net.trunk, tap, train, (pixels, labels), len(model.classes), model.normalize)
            scores[tap] = fitted[1]
    answers: dict[str, dict[str, Any]] = {}
    for name, each in {**scores, "output": measured.scores}.items():
        label, confidence = named(each[0], model.classes)
        by = "output" if name == "output" else judged
        answers[name] = {"label": label, "confidence": confidence, "judged_by": by}
    maps, arrays = maps_of(model, (Part(image, labels.numpy()), [str(answers["output"]["label"])]), layer)
    return {"file": str(file), "layers": answers, "maps": maps}, arrays


def hidden_layers(run: RunFolder, model: Model) -> tuple[str, ...]:
    """Return the taps of a net, or those that its network would have."""
    if model.net.taps:
        return model.net.taps
    config, classes = model.config.replace(at=("network",)), len(model.classes)
    twin = build_network(config, classes, model.shape, run.network)
    return supervise(twin, taps_of(config, twin), num_classes=classes, example=torch.zeros(2, *model.shape)).taps


def maps_of(
    model: Model, shown: tuple[Part, list[str]], layer: str | None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the feature maps of a layer and the filters of the first convolution; empty without a convolution."""
    trunk, (part, labels) = model.net.trunk, shown
    first = first_convolution(trunk)
    name = checked_layer(trunk, layer) if layer is not None else first
    if name is None:
        return {}, {}
    output = layer_outputs(trunk, [name], to_tensor(part.images), model.normalize).get(name)
    if output is None or output.ndim != 4:
        given = "nothing" if output is None else f"a tensor {list(output.shape)}"
        raise RunError(f"layer {name!r} returns {given}; expected maps [B,C,H,W]; give a convolution, --layer")
    maps = feature_maps(output)
    arrays = {
        "images": np.ascontiguousarray(part.images),
        "maps": in_few_bytes(maps.strongest),
        "merged": in_few_bytes(maps.merged),
    }
    if first is not None:
        weight = trunk.get_submodule(first).weight
        assert isinstance(weight, Tensor)
        arrays["filters"] = weight.detach()[:FILTERS].float().contiguous().numpy()
    return {"layer": name, "channels": maps.channels, "labels": labels}, arrays


def in_few_bytes(maps: Tensor) -> np.ndarray:
    """Return maps in half precision, or in single precision if they are too large for it."""
    fits = maps.abs().max() <= torch.finfo(torch.float16).max
    return (maps.half() if fits else maps.float()).numpy()


def checked_layer(trunk: nn.Module, layer: str) -> str:
    """Return the name of a layer; raise an error with the nearest name if it does not exist."""
    known = [name for name, _ in trunk.named_modules() if name]
    if layer not in known:
        raise RunError(f"no layer {layer!r} in {type(trunk).__name__}; {nearest(layer, known)}")
    return layer


def one_each(data: Dataset) -> tuple[Part, list[str]]:
    """Return the first test image of each of the first classes that have one, and their names."""
    firsts = [
        int(np.argmax(data.test.labels == label)) for label in range(len(data.classes)) if label in data.test.labels
    ]
    part = data.test.take(np.array(firsts[:SHOWN_CLASSES], dtype=np.intp))
    return part, [data.classes[label] for label in part.labels]


def tensors(part: Part) -> tuple[Tensor, Tensor]:
    """Return images and labels as tensors."""
    return to_tensor(part.images), torch.from_numpy(part.labels)


def scores_by_layer(measured: Measurement) -> dict[str, np.ndarray]:
    """Return the labels, and the scores of output and companions, under the names they are exported with."""
    scores = {f"scores/companion/{tap}": each.numpy() for tap, each in measured.companions.items()}
    return {"labels": measured.labels.numpy(), "scores/output": measured.scores.numpy(), **scores}
