"""One or two runs -> the glass box: one HTML page that runs their nets in the browser, layer by layer."""

import base64
import copy
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
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
from deepsup.trainer.demo._number_packing import FLOAT, fewest_bits, packed_weights, restored_weight
from deepsup.trainer.preprocess import to_tensor
from deepsup.trainer.runs import Preprocess, RunFolder

HERE = Path(__file__).parent
MOST_DIFFERENCE = 7e-4
"""Of a score, between the packed weights and the net's own; the arithmetic of the browser adds less than 1e-4."""
MOST_OF_EARLIER = 0.3
"""The same for earlier epochs, of which nobody reads more than the bars."""
COMPARED = 200
"""Test images that packed weights are compared on."""
OF_CONSTANTS = 20
"""Bits of large constants, such as the matrix of a whitening."""
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


def bits_of(each: DemoNet, part: Part, most: float) -> dict[str, int]:
    """Return weight -> the bits with which no score of the trained net differs by more than ``most``."""
    some, state = part.take(np.arange(min(COMPARED, len(part)))), each.net.state_dict()
    expected, other = all_scores(each, each.net, some), copy.deepcopy(each.net)

    def difference(bits: Mapping[str, int]) -> float:
        other.load_state_dict({name: restored_weight(value, bits.get(name, FLOAT)) for name, value in state.items()})
        return float((all_scores(each, other, some) - expected).abs().max())

    return fewest_bits(state, difference, most)


def packed_epochs(each: DemoNet, graph: BrowserGraph, part: Part) -> list[dict[str, Any]]:
    """Return the weights of each epoch, the last one exact enough for the same scores as PyTorch's."""
    exact, other, found = bits_of(each, part, MOST_DIFFERENCE), copy.deepcopy(each.net), []
    rough = bits_of(each, part, MOST_OF_EARLIER) if len(each.epochs) > 1 else {}
    for epoch, state in sorted(each.epochs.items()):
        other.load_state_dict(state)
        named = weights_of(other)
        bits = {f"net.{name}": count for name, count in (exact if epoch == max(each.epochs) else rough).items()}
        bits |= dict.fromkeys(graph.fixed, OF_CONSTANTS)
        entries, text = packed_weights({name: named[name] for name in graph.weights} | graph.fixed, bits)
        found.append({"epoch": epoch, "entries": entries, "text": text})
    return found


def all_scores(each: DemoNet, net: DeeplySupervised, part: Part) -> Tensor:
    """Return the scores of all layers on images, [layers, N, K]."""
    found = measure(net, to_tensor(part.images), torch.from_numpy(part.labels), each.model.normalize)
    return torch.stack([*found.companions.values(), found.scores])


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
