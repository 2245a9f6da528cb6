"""Cut a trunk into stages at its taps: a model in; out, modules that run one after the other as the model does.

The layers that contain a tap are traced with torch.fx, all others stay as they are. Each stage is a generated module:
it takes the values that cross the cut before it and returns those that cross the next one. B batch, K classes.
"""

import inspect
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx, nn

from deepsup.errors import SupervisionError
from deepsup.supervision import describe, part_of

SHAPE_METHODS = {"size", "dim", "numel", "stride"}
ARITHMETIC = {operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.neg, operator.getitem}


@dataclass(frozen=True, eq=False)
class Stage:
    """The part of a trunk between two cuts."""

    module: nn.Module
    """Takes the values that cross the cut before it; returns the features of its tap and the values that cross its own
    cut, in one tuple; the last stage returns the model's output."""
    tap: str | None
    """The tap at its end; None for the last stage."""


def cut(trunk: nn.Module, taps: Mapping[str, int | str | None]) -> list[Stage]:
    """Return the stages of a trunk in evaluation mode: one up to each tap, in the order of their runs, and the rest.

    taps: name -> the part of the layer's output that its companion selects, or None.
    """
    graph, outputs = traced(trunk, taps)
    places = {node: place for place, node in enumerate(graph.nodes)}
    ordered = sorted(taps, key=lambda tap: places[outputs[tap]])
    derived = rebuilt_nodes(graph)
    stages, begin, entering = [], 0, [node for node in graph.nodes if node.op == "placeholder"]
    for tap in [*ordered, None]:
        end = len(places) if tap is None else places[outputs[tap]] + 1
        crossing = [] if tap is None else crossing_nodes(graph, places, end, derived)
        body = [node for node in graph.nodes if begin <= places[node] < end and node not in derived]
        features = None if tap is None else outputs[tap]
        stages.append(Stage(stage_module(trunk, body, entering, features, crossing, derived), tap))
        begin, entering = end, crossing
    return stages


class TapTracer(fx.Tracer):
    """Traces the layers that contain a tap; calls all others. Remembers the node of every tapped output."""

    def __init__(self, taps: Mapping[str, int | str | None]) -> None:
        super().__init__()
        self.taps = taps
        self.tap_nodes: dict[str, fx.Node] = {}
        self.inside: list[str] = []

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:  # noqa: ARG002 - torch's interface
        """Whether a layer is called as it is: no tap is inside it."""
        return not any(tap.startswith(f"{module_qualified_name}.") for tap in self.taps)

    def call_module(self, m: nn.Module, forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Trace a call of a layer."""
        name = self.path_of_module(m)
        self.inside.append(name)
        output = super().call_module(m, forward, args, kwargs)
        self.inside.pop()
        if name in self.taps:
            select = self.taps[name]
            part = output if select is None else self.create_proxy("call_function", part_of, (name, output, select), {})
            self.tap_nodes[name] = part.node
        return output


def traced(trunk: nn.Module, taps: Mapping[str, int | str | None]) -> tuple[fx.Graph, dict[str, fx.Node]]:
    """Return the graph of a trunk and the node of each tap; name the layer whose forward cannot be traced."""
    tracer, defaults = TapTracer(taps), defaults_of(trunk)
    try:
        graph = tracer.trace(trunk, defaults)
    except Exception as error:  # whatever a forward does with a value that is not a tensor
        where = tracer.inside[-1] if tracer.inside else ""
        layer = f"layer {where!r} ({type(trunk.get_submodule(where)).__name__})" if where else type(trunk).__name__
        why = " ".join(str(error).split())[:160]
        raise SupervisionError(
            f"the model cannot be cut into stages: the forward of {layer}, which contains the taps, depends on values "
            f"that torch.fx cannot follow ({why}); expected a forward of layers and tensor operations; put the layers "
            f"of {where or 'the model'} that hold taps into an nn.Sequential, or tap layers outside it"
        ) from error
    missing = [tap for tap in taps if tap not in tracer.tap_nodes]
    if missing:
        raise SupervisionError(
            f"the model cannot be cut at {missing[0]!r}: the layer is not called where the model's forward is traced; "
            f"expected a layer that runs once in evaluation mode; use taps without it"
        )
    without_defaults(graph, defaults)
    return graph, tracer.tap_nodes


def without_defaults(graph: fx.Graph, defaults: Mapping[str, Any]) -> None:
    """Remove the arguments that keep their defaults, and the checks that they do, which torch.fx adds."""
    for node in [node for node in graph.nodes if node.op == "placeholder"][1:]:
        if any(re.fullmatch(rf"{re.escape(name)}_\d+", str(node.target)) for name in defaults):
            erase(graph, node)


def erase(graph: fx.Graph, node: fx.Node) -> None:
    """Remove a node and all that depends on it."""
    for user in list(node.users):
        erase(graph, user)
    graph.erase_node(node)


def defaults_of(trunk: nn.Module) -> dict[str, Any]:
    """Return the arguments of forward that keep their defaults: all but the first that have one."""
    parameters = list(inspect.signature(trunk.forward).parameters.values())
    return {each.name: each.default for each in parameters[1:] if each.default is not inspect.Parameter.empty}


def rebuilt_nodes(graph: fx.Graph) -> set[fx.Node]:
    """Return the nodes that each stage computes for itself: parameters, constants, and shapes.

    What does not depend on the inputs has no batch to compact, and a shape changes with the batch.
    """
    shapes: set[fx.Node] = set()
    for node in graph.nodes:
        inputs = node.all_input_nodes
        constant = node.op not in ("placeholder", "output", "call_module") and all(each in shapes for each in inputs)
        if node.op == "get_attr" or (constant and not in_place(node)) or is_shape(node, shapes):
            shapes.add(node)
    return shapes


def is_shape(node: fx.Node, shapes: set[fx.Node]) -> bool:
    """Whether a node reads the shape of a tensor, or computes with what others have read."""
    if node.op == "call_method":
        return node.target in SHAPE_METHODS
    if node.op != "call_function":
        return False
    if node.target is getattr:
        return node.args[1] in ("shape", "ndim", "device", "dtype")
    return node.target in ARITHMETIC and all(each in shapes for each in node.all_input_nodes)


def in_place(node: fx.Node) -> bool:
    """Whether a node writes into its input, so that it must not run twice."""
    return node.op == "call_method" and str(node.target).endswith("_") and not str(node.target).endswith("__")


def crossing_nodes(graph: fx.Graph, places: dict[fx.Node, int], end: int, derived: set[fx.Node]) -> list[fx.Node]:
    """Return the nodes before the place ``end`` whose values are needed at or after it."""
    needed: dict[fx.Node, None] = {}
    for node in graph.nodes:
        if places[node] >= end and node not in derived:
            for value in roots(node.all_input_nodes, derived):
                if places[value] < end:
                    needed[value] = None
    return sorted(needed, key=places.__getitem__)


def roots(nodes: Sequence[fx.Node], derived: set[fx.Node]) -> Iterator[fx.Node]:
    """Yield the nodes that are not rebuilt, on which some nodes depend."""
    for node in nodes:
        if node in derived:
            yield from roots(node.all_input_nodes, derived)
        else:
            yield node


def stage_module(
    trunk: nn.Module,
    body: Sequence[fx.Node],
    entering: Sequence[fx.Node],
    features: fx.Node | None,
    crossing: Sequence[fx.Node],
    derived: set[fx.Node],
) -> nn.Module:
    """Return a generated module that runs the nodes of one stage."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()

    def copied(node: fx.Node) -> fx.Node:
        if node not in copies:
            assert node in derived, f"{node} is used in a stage that it does not reach"
            copies[node] = graph.node_copy(node, copied)
        return copies[node]

    for node in entering:
        copies[node] = graph.placeholder(node.name)
    for node in body:
        if node.op != "placeholder":
            copies[node] = graph.node_copy(node, copied)
    if features is not None:
        graph.output((copied(features), *(copied(node) for node in crossing)))
    return fx.GraphModule(trunk, graph)


def compacted(values: Sequence[Any], keep: Tensor, tap: str, batch: int) -> list[Tensor]:
    """Return the rows ``keep`` of the values that cross a cut; each must have the batch first."""
    for value in values:
        if not isinstance(value, Tensor) or value.ndim == 0 or len(value) != batch:
            raise SupervisionError(
                f"the model cannot be cut at {tap!r}: {describe(value)} for a batch of {batch} is used after it; "
                f"expected only tensors with the batch first; tap another layer"
            )
    return [value[keep] for value in values]
