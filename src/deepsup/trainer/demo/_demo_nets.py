"""A run -> what the page shows of it: a net with a classifier at each layer, over the epochs of which weights are kept.

A run without companions gets linear probes, fitted on its frozen net. N images, C channels, H height, W width.
"""

import copy
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from deepsup.errors import RunError
from deepsup.insight import LayerFeatures, ProbeData, fit_probe
from deepsup.sampling import stratified
from deepsup.supervision import DeeplySupervised
from deepsup.trainer.data import Dataset
from deepsup.trainer.networks import Network
from deepsup.trainer.preprocess import to_tensor
from deepsup.trainer.runs import (
    Model,
    RunFolder,
    check_fits,
    data_of,
    load_exits,
    load_model,
    read_snapshot,
    snapshot_files,
)

logger = logging.getLogger("deepsup")
GRID = 4
"""Side of the grid that a map is averaged to before its probe: the page holds the probes' weights."""
FITTED = 2000
"""Images that a probe is fitted on."""
SURE = 0.9
"""The confidence at which an early exit would leave where none is calibrated."""


@dataclass(eq=False)
class DemoNet:
    """A net with a classifier at each layer, and how the page speaks of it."""

    run: RunFolder
    model: Model
    data: Dataset
    net: DeeplySupervised
    probed: bool
    """Whether the classifiers are probes, fitted after training."""
    limits: dict[str, float | None]
    """Layer -> the confidence above which an image would leave there; None: none leaves."""
    temperatures: dict[str, float] = field(default_factory=dict)
    """What scores are divided by before the softmax, by layer and ``output``; 1 where there is none."""
    calibrated: bool = False
    epochs: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    """Epoch -> the net's weights, the last one among them."""


def demo_net(run: RunFolder, layers: Sequence[str] = ()) -> DemoNet:
    """Read a run; without companions of its own, fit probes at ``layers``, or at those that its network names."""
    model = load_model(run)
    if model.dense:
        raise RunError(f"{run.folder} scores every pixel; expected a run with one label per image")
    weights = model.net.state_dict()
    model.check_finite(*(name for name, weight in weights.items() if not weight.isfinite().all()))
    data = data_of(run, model.config)
    check_fits(run, model, data.name, data.classes, data.test)
    probed = not model.net.taps
    net = with_probes(model, data, at_layers(model, layers)) if probed else model.net
    demo = DemoNet(run, model, data, net, probed, dict.fromkeys(net.taps, SURE))
    if not probed and (run.folder / "exits.json").is_file():
        early, _ = load_exits(run)
        demo.limits, demo.temperatures, demo.calibrated = dict(early.thresholds), dict(early.temperatures), True
    demo.epochs = epochs_of(demo)
    return demo


def at_layers(model: Model, layers: Sequence[str]) -> Any:
    """Return where to probe: the given layers if the net has them all, otherwise those that its network names."""
    trunk = model.net.trunk
    known = {name for name, _ in trunk.named_modules()}
    if layers and known.issuperset(layers):
        return list(layers)
    return list(trunk.taps) if isinstance(trunk, Network) else "auto"


def with_probes(model: Model, data: Dataset, at: Any) -> DeeplySupervised:
    """Return a copy of the net with linear probes at some layers, fitted on training images."""
    train = data.train
    if len(train) > FITTED:
        train = train.take(stratified(train.strata, FITTED))
    images = model.normalize(to_tensor(train.images))
    fit = ProbeData((images,), {}, torch.from_numpy(train.labels))
    trunk: nn.Module = copy.deepcopy(model.net).strip()
    layers = LayerFeatures(trunk, at, GRID, fit, 250)
    with torch.no_grad():
        _, features = layers.collect(fit)
    for name in layers.net.taps:
        probe = fit_probe(name, features[name], fit.labels, model.net.num_classes)
        classifier: Any = layers.net.head(name).classifier
        classifier.slow_down(1.0)  # its parameters are its weights
        classifier.load_state_dict({"weight": probe.weight * probe.scale, "bias": probe.bias})
    return layers.net.eval()


def epochs_of(demo: DemoNet) -> dict[int, dict[str, Tensor]]:
    """Return epoch -> weights; each epoch of a net without companions has probes of its own."""
    last = len(demo.run.metrics)
    epochs = {}
    for epoch, path in snapshot_files(demo.run).items():
        if epoch >= last:
            continue
        other = copy.deepcopy(demo.model.net)
        try:
            other.load_state_dict(read_snapshot(path))
        except RuntimeError as error:
            raise RunError(f"{path} does not fit the net of its run; remove it") from error
        if not all(value.isfinite().all() for value in other.state_dict().values()):
            raise RunError(f"{path} has numbers that are not finite; remove it")
        if demo.probed:
            at = list(demo.net.taps)
            other = with_probes(Model(other.eval(), *rest_of(demo.model)), demo.data, at)
        epochs[epoch] = {name: value.detach().clone() for name, value in other.state_dict().items()}
    return epochs | {last: {name: value.detach().clone() for name, value in demo.net.state_dict().items()}}


def rest_of(model: Model) -> tuple[Any, ...]:
    """Return the fields of a model but its net."""
    return model.normalize, model.classes, model.shape, model.config, model.path
