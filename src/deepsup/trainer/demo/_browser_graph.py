"""A supervised net -> a graph of operators for the browser, and the names of the weights that it takes.

N batch, C channels, H height, W width, K classes, D features of a companion.
"""

import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from deepsup.errors import ExportError
from deepsup.exporting import Graph, Program, check_onnx, noise, onnx_model
from deepsup.supervision import DeeplySupervised, SlowLinear
from deepsup.trainer.runs import Preprocess

LARGEST_CONSTANT = 4096
"""Values of a constant that is no weight; larger ones are packed as weights are."""


@dataclass(frozen=True, eq=False)
class WatchedLayer:
    """A tapped layer: where its companion's scores, its output and the features of its companion are in the graph."""

    name: str
    scores: str
    maps: str
    """[1,C,H,W], or another shape for layers without maps."""
    features: str
    """What the companion's first layer gets, channel by channel: [1,D] or [1,C,...]."""
    weight: str | None
    """[K,D], the weights of a linear companion; None for one with hidden layers."""


@dataclass(frozen=True, eq=False)
class BrowserGraph:
    """A graph for one image, as plain values, and what it computes beside the scores of the output."""

    graph: dict[str, Any]
    layers: tuple[WatchedLayer, ...]
    weights: tuple[str, ...]
    """Names as in ``weights_of``."""
    fixed: dict[str, Tensor]
    """Large constants, such as the matrix of a whitening."""


class Watched(Graph):
    """Returns, beside the scores of output and companions, what each companion gets and the map that it is taken from.

    ``maps`` and ``features`` are the names of these outputs, in the order of the taps.
    """

    net: DeeplySupervised
    maps: tuple[str, ...] = ()
    features: tuple[str, ...] = ()

    def forward(self, *inputs: Tensor) -> dict[str, Tensor]:
        """Images [N,C,H,W] uint8 -> output name -> tensor."""
        caught: dict[str, Tensor] = {}

        def catch(name: str) -> Callable[[Any, Any], None]:
            # cloned: a later layer may change it in place
            return lambda _layer, given: caught.__setitem__(name, given[0].clone())

        handles = []
        for tap, maps, features in zip(self.net.taps, self.maps, self.features, strict=True):
            head = self.net.head(tap)
            handles += [
                head.register_forward_pre_hook(catch(maps)),
                head.first.register_forward_pre_hook(catch(features)),
            ]
        try:
            scores = super().forward(*inputs)
        finally:
            for handle in handles:
                handle.remove()
        assert isinstance(scores, dict)
        return scores | {name: caught[name] for name in (*self.maps, *self.features)}


class RowsTogether(Preprocess):
    """The preprocessing of a run, with the memory of each channel in one piece: so are the features of companions."""

    def __call__(self, images: Any) -> Tensor:
        """[N,C,H,W] uint8 -> float32."""
        return super().__call__(images).contiguous()


def browser_graph(net: DeeplySupervised, preprocess: Preprocess) -> BrowserGraph:
    """Return the graph of a net with its companions and its preprocessing; refuse operators that the page lacks."""
    check_onnx()
    count = len(net.taps)
    maps, features = ([f"{what}_{index}" for index in range(count)] for what in ("maps", "features"))
    scores = [f"companion_{index}" for index in range(count)]
    net = copy.deepcopy(net)
    for layer in net.modules():
        if isinstance(layer, SlowLinear):
            layer.slow_down(1.0)  # its parameters are its weights
    net = net.to(memory_format=torch.contiguous_format).eval()  # type: ignore[call-overload] # torch's stubs lack it
    fused = {name: f"fused_{name}" for name in net.outputs if name not in net.taps}
    graph = Watched(
        net, (), RowsTogether(preprocess.normalize, preprocess.shape), dict(zip(net.taps, scores, strict=True)) | fused
    )
    graph.maps, graph.features = tuple(maps), tuple(features)
    names = ("scores", *(graph.companions or {}).values(), *maps, *features)
    program = Program(graph.eval(), (noise(preprocess.shape),), (True,), ("images",), names)
    model = for_one_image(onnx_model(program, {}, optimize=False), set(weights_of(net)))
    layers = tuple(
        WatchedLayer(*each, None if net.head(each[0]).companion.hidden else weight_name(net, each[0]))
        for each in zip(net.taps, scores, maps, features, strict=True)
    )
    return plain(model, layers, program)


def weights_of(net: DeeplySupervised) -> dict[str, Tensor]:
    """Return the weights by the names that the graph gives them."""
    return {f"net.{name}": value.detach().float() for name, value in net.state_dict().items()}


def weight_name(net: DeeplySupervised, tap: str) -> str:
    weight = net.head(tap).classifier
    prefix = next(name for name, module in net.named_modules() if module is weight)
    return f"net.{prefix}.weight"


def for_one_image(model: Any, weights: set[str]) -> Any:
    """Return the ONNX model for one image: what depends on shapes alone is computed, the weights are inputs."""
    import onnx
    from onnxscript import optimizer

    graph = model.graph
    graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    del graph.value_info[:]
    for output in graph.output:
        output.type.tensor_type.ClearField("shape")
    ours = [each for each in graph.initializer if each.name in weights]
    kept = [each for each in graph.initializer if each.name not in weights]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    graph.input.extend(onnx.helper.make_tensor_value_info(each.name, each.data_type, each.dims) for each in ours)
    return optimizer.optimize(model)


@cache
def operators() -> frozenset[str]:
    """Return the operators that ``interpreter.js`` computes."""
    script = (Path(__file__).parent / "interpreter.js").read_text(encoding="utf-8")
    listed = script.split("const OPERATORS = {")[1].split("\n};")[0]
    return frozenset(re.findall(r"^  ([A-Z]\w*):", listed, re.MULTILINE))


def plain(model: Any, layers: tuple[WatchedLayer, ...], program: Program) -> BrowserGraph:
    """Return an ONNX model as plain values."""
    import onnx

    unknown = [missing for node in model.graph.node if (missing := missing_form(node.op_type, attributes(node)))]
    if unknown:
        raise ExportError(
            f"the page has no operator {unknown[0]}, which {type(program.trunk).__name__} uses; expected one of: "
            f"{', '.join(sorted(operators()))}; replace it in the network"
        )
    constants, fixed = {}, {}
    for each in model.graph.initializer:
        values = onnx.numpy_helper.to_array(each)
        if values.size > LARGEST_CONSTANT:
            fixed[each.name] = torch.tensor(values, dtype=torch.float32)
        else:
            # torch slices to the largest integer; a float holds it closely enough
            constants[each.name] = {"shape": list(values.shape), "values": values.astype(float).ravel().tolist()}
    nodes = [
        {"op": node.op_type, "in": list(node.input), "out": list(node.output), "at": attributes(node)}
        for node in model.graph.node
    ]
    shape = [1, *program.example[0].shape[1:]]
    graph = {"input": "images", "shape": shape, "nodes": nodes, "constants": constants}
    used = {name for node in nodes for name in node["in"]}
    weights = tuple(each.name for each in model.graph.input if each.name in used and each.name != "images")
    return BrowserGraph(graph, layers, weights, {name: each for name, each in fixed.items() if name in used})


def missing_form(operator: str, at: Mapping[str, Any]) -> str | None:
    """Return what the page lacks: an operator, or a form of one that it has.

    >>> missing_form("Pad", {"mode": "reflect"}), missing_form("Sin", {}), missing_form("Conv", {"group": 2})
    ('Pad with mode=reflect', 'Sin', None)
    """
    if operator not in operators():
        return operator
    if at.get("mode", "constant") != "constant":
        return f"{operator} with mode={at['mode']}"
    if at.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return f"{operator} with auto_pad={at['auto_pad']}"
    if at.get("batch_dims"):
        return f"{operator} with batch_dims={at['batch_dims']}"
    kernel = at.get("kernel_shape", [])
    if len(kernel) > 2 and (operator == "Conv" or any(side != 1 for side in kernel[1:])):
        return f"{operator} over {len(kernel)} axes"
    return None


def attributes(node: Any) -> dict[str, Any]:
    """Return the attributes of a node as JSON can hold them."""
    import onnx

    values: dict[str, Any] = {"outputs": len(node.output)} if node.op_type == "Split" else {}
    for each in node.attribute:
        value = onnx.helper.get_attribute_value(each)
        if isinstance(value, onnx.TensorProto):
            array = onnx.numpy_helper.to_array(value)
            value = {"shape": list(array.shape), "data": array.astype(float).ravel().tolist()}
        values[each.name] = value.decode() if isinstance(value, bytes) else list(value) if is_list(value) else value
    return values


def is_list(value: Any) -> bool:
    """Whether a value is one of protobuf's lists."""
    return not isinstance(value, str | bytes | int | float | dict)
