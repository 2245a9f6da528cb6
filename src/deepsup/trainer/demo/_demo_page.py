"""One or two runs -> the glass box: one HTML page that runs their nets in the browser, layer by layer."""

import base64
import copy
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deepsup.errors import RunError, extras_named
from deepsup.insight import error_percent, measure
from deepsup.io import printable, write_whole
from deepsup.supervision import DeeplySupervised
from deepsup.trainer.data import Part
from deepsup.trainer.demo._browser_graph import BrowserGraph, browser_graph, weights_of
from deepsup.trainer.demo._demo_images import is_ink, measured_on, strip_of, tested_part
from deepsup.trainer.demo._demo_nets import DemoNet, demo_net
from deepsup.trainer.demo._error_feedback import Feedback, feedback_of
from deepsup.trainer.demo._number_packing import (
    FLOAT,
    fewest_bits,
    packed_changes,
    packed_weights,
    restored_weight,
    steps_between,
)
from deepsup.trainer.preprocess import to_tensor
from deepsup.trainer.runs import Preprocess, RunFolder

HERE = Path(__file__).parent
MOST_DIFFERENCE = 7e-4
"""Of a score, between the packed weights and the net's own; the arithmetic of the browser adds less than 1e-4."""
MOST_OF_BARS = 0.02
"""Of the bars of earlier epochs, of which nobody reads a score: the worst bar of a layer, on average over images."""
COARSEST, FINE, FINEST = 8.0, 1 / 4, 1 / 32
"""Factors of the steps in which the weights of earlier epochs are kept; below the second, rounding is plain."""
COMPARED = 200
"""Test images that packed weights are compared on."""
CORRELATED = 500
"""Training images from which the correlations of layers' inputs are taken."""
OF_CONSTANTS = 20
"""Bits of large constants, such as the matrix of a whitening."""
Apart = Callable[[Tensor, Tensor], float]
"""Scores and those that are expected, [layers,N,K] -> how far they are apart."""
NAME = {False: "With companions", True: "Without companions"}


def write_demo(
    run: RunFolder | str | os.PathLike[str],
    twin: RunFolder | str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
) -> Path:
    """Write one self-contained page on which a person draws and sees what each layer answers; return its path.

    run: a finished run. Without companions of its own, its layers get linear probes.
    twin: another run on the same classes and image size, shown beside it: the same net without companions, say.
    out: the file (default: ``demo.html`` in the run's folder).
    """
    folders = [each if isinstance(each, RunFolder) else RunFolder(each) for each in (run, twin) if each is not None]
    nets = [demo_net(folders[0])]
    nets += [demo_net(other, nets[0].net.taps) for other in folders[1:]]
    check_pair(nets)
    path = Path(out) if out is not None else folders[0].folder / "demo.html"
    page = rendered(page_data(nets))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot make the folder {path.parent}: {error.strerror}; give another file, --out") from error
    write_whole(path, page.encode())
    return path


def check_pair(nets: Sequence[DemoNet]) -> None:
    """Refuse two runs that cannot look at the same image."""
    first, *others = nets
    for other in others:
        if (other.model.shape, other.model.classes) != (first.model.shape, first.model.classes):
            raise RunError(
                f"{first.run.folder} takes images {list(first.model.shape)} of {len(first.model.classes)} classes, "
                f"{other.run.folder} {list(other.model.shape)} of {len(other.model.classes)}; expected two runs on the "
                f"same classes and image size; give one of them alone"
            )


def page_data(nets: Sequence[DemoNet]) -> dict[str, Any]:
    """Return all that the page knows, as JSON can hold it."""
    model, data = nets[0].model, nets[0].data
    return {
        "title": printable(f"{model.config.network.name} on {Path(model.config.data.source).name}"),
        "classes": [printable(name) for name in model.classes],
        "shape": list(model.shape),
        "ink": is_ink(data.test.images),
        "nets": [net_data(each, name) for each, name in zip(nets, names_of(nets), strict=True)],
        "images": strip_of(nets),
    }


def names_of(nets: Sequence[DemoNet]) -> list[str]:
    """Return what tells the nets apart: their companions, or else their folders."""
    if len({each.probed for each in nets}) < len(nets):
        return [printable(each.run.name) for each in nets]
    return [NAME[each.probed] for each in nets]


def net_data(each: DemoNet, name: str) -> dict[str, Any]:
    """Return one net: its graph, its weights and what the page says of its layers."""
    preprocess = Preprocess(each.model.normalize, each.model.shape)
    graph = browser_graph(each.net, preprocess)
    part = tested_part(each.data.test)
    errors = layer_errors(each, part)
    layers = [
        {
            "name": layer.name, "scores": layer.scores, "maps": layer.maps, "features": layer.features,
            "weight": layer.weight, "limit": each.limits.get(layer.name),
            "temperature": each.temperatures.get(layer.name, 1.0), "error": errors[layer.name],
        }
        for layer in graph.layers
    ]  # fmt: skip
    output = {"name": "output", "scores": "scores", "temperature": each.temperatures.get("output", 1.0)}
    return {
        "name": name,
        "run": each.run.name,
        "probed": each.probed,
        "calibrated": each.calibrated,
        "layers": [*layers, {**output, "error": errors["output"]}],
        "graph": graph.graph,
        "epochs": packed_epochs(each, graph, part),
    }


def layer_errors(each: DemoNet, part: Part) -> dict[str, float]:
    """Return layer -> test error in percent: what the run measured, or, of probes, on the images of the strip."""
    result = each.run.result
    if not each.probed and result["error"] is not None:
        return {**result["companions"], "output": result["error"]}
    measured = measured_on(each, part)
    scores = {**measured.companions, "output": measured.scores}
    return {name: error_percent(value, measured.labels) for name, value in scores.items()}


def bits_of(
    each: DemoNet, state: Mapping[str, Tensor], part: Part, apart: Apart, most: float, feedback: Feedback
) -> dict[str, int]:
    """Return weight -> the fewest bits with which the scores of a net with these weights are no further apart."""
    other = copy.deepcopy(each.net)

    @cache
    def restored(name: str, bits: int) -> Tensor:
        return restored_weight(state[name], bits, feedback.get(f"net.{name}", ()))

    def scores(bits: Mapping[str, int]) -> Tensor:
        other.load_state_dict({name: restored(name, bits.get(name, FLOAT)) for name in state})
        return all_scores(each, other, part)

    expected = scores({})
    return fewest_bits(state, lambda bits: apart(scores(bits), expected), most)


def packed_epochs(each: DemoNet, graph: BrowserGraph, part: Part) -> list[dict[str, Any]]:
    """Return the weights of each epoch: the last ones exact enough for the scores of PyTorch, earlier ones as changes.

    Each epoch has the changes from the one after it as the browser knows that, so that nothing adds up.
    """
    part, order = part.take(np.arange(min(COMPARED, len(part)))), sorted(each.epochs)
    named = {epoch: weights_named(each, epoch, graph) for epoch in order}
    feedback = feedback_at(each, order[-1])
    exact = bits_of(each, each.epochs[order[-1]], part, largest_difference, MOST_DIFFERENCE, feedback)
    bits = {f"net.{name}": count for name, count in exact.items()} | dict.fromkeys(graph.fixed, OF_CONSTANTS)
    entries, text = packed_weights(named[order[-1]] | graph.fixed, bits, feedback)
    packs = [{"epoch": order[-1], "entries": entries, "text": text}]
    if len(order) > 1:
        apart, middle_epoch = bars_apart(each), order[len(order) // 2]
        feedback_there = feedback_at(each, middle_epoch)
        middle = bits_of(each, each.epochs[middle_epoch], part, apart, MOST_OF_BARS, feedback_there)
        bits_of_changes = {f"net.{name}": count for name, count in middle.items()}
        later = {
            name: restored_weight(value, bits.get(name, FLOAT), feedback.get(name, ()))
            for name, value in named[order[-1]].items()
        }
        factor = COARSEST
        for epoch in reversed(order[:-1]):
            expected = all_scores(each, with_weights(each, epoch, {}), part)
            feedback = feedback_at(each, epoch)
            factor = min(2 * factor, COARSEST)
            while True:
                steps = steps_between(named[epoch], later, bits_of_changes, factor)
                entries, text, restored = packed_changes(named[epoch], later, steps, feedback if factor >= FINE else {})
                scores = all_scores(each, with_weights(each, epoch, restored), part)
                if factor <= FINEST or apart(scores, expected) <= MOST_OF_BARS:
                    break
                factor /= 2**0.5
            packs.insert(0, {"epoch": epoch, "entries": entries, "text": text})
            later = restored
    return packs


def feedback_at(each: DemoNet, epoch: int) -> Feedback:
    """Return how the rounding errors of weights make up for each other, by the graph's names, from training images."""
    images = each.data.train.images[:CORRELATED]
    feedback = feedback_of(with_weights(each, epoch, {}), each.model.normalize(to_tensor(images)))
    return {f"net.{name}": blocks for name, blocks in feedback.items()}


def weights_named(each: DemoNet, epoch: int, graph: BrowserGraph) -> dict[str, Tensor]:
    """Return the weights of an epoch by the names that the graph gives them."""
    named = weights_of(with_weights(each, epoch, {}))
    return {name: named[name] for name in graph.weights}


def with_weights(each: DemoNet, epoch: int, named: Mapping[str, Tensor]) -> DeeplySupervised:
    """Return a net with the weights of an epoch, and in their place those that are given by the graph's names."""
    other = copy.deepcopy(each.net)
    other.load_state_dict(each.epochs[epoch] | {name.removeprefix("net."): value for name, value in named.items()})
    return other


def largest_difference(scores: Tensor, expected: Tensor) -> float:
    """Return by how much scores differ at most."""
    return float((scores - expected).abs().max())


def bars_apart(each: DemoNet) -> Apart:
    """Return what measures how far bars are apart: the worst bar, averaged over images, in the worst layer."""
    names = (*each.net.taps, "output")
    temperatures = torch.tensor([each.temperatures.get(name, 1.0) for name in names])[:, None, None]

    def apart(scores: Tensor, expected: Tensor) -> float:
        first, second = ((each / temperatures).softmax(2) for each in (scores, expected))
        return float((first - second).abs().amax(2).mean(1).max())

    return apart


def all_scores(each: DemoNet, net: DeeplySupervised, part: Part) -> Tensor:
    """Return the scores of all layers on images, [layers, N, K]."""
    measurement = measure(net, to_tensor(part.images), torch.from_numpy(part.labels), each.model.normalize)
    return torch.stack([*measurement.companions.values(), measurement.scores])


def rendered(data: Mapping[str, Any]) -> str:
    """Return the page; nothing in it can be taken for markup, and the browser runs no other script than ours."""
    with extras_named("the page"):
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    script = "\n".join(
        (HERE / name).read_text(encoding="utf-8") for name in ("interpreter.js", "drawing.js", "page.js")
    )
    style = (HERE / "demo.css").read_text(encoding="utf-8")
    environment = Environment(
        loader=PackageLoader("deepsup.trainer.demo", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("demo.html.j2").render(
        title=data["title"], ink=data["ink"], nets=data["nets"], script=Markup(script), style=Markup(style),
        digests={"script": digest(script), "style": digest(style)}, data=Markup(as_script(data)),
    )  # fmt: skip


def digest(text: str) -> str:
    """Return what a Content-Security-Policy names a text by."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def as_script(data: Mapping[str, Any]) -> str:
    """Return JSON that can stand between script tags, whatever names are in it."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
