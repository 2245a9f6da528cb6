"""A supervised net -> a traced program with a dynamic batch, its preprocessing inside.

N batch, K classes.
"""

import contextlib
import io
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from deepsup.errors import DeepsupError, ExportError
from deepsup.io import reason
from deepsup.supervision import DeeplySupervised, scores_of


class Graph(nn.Module):
    """What is exported: tensors in; the scores [N,K] out, or with companions a mapping from names to scores."""

    def __init__(
        self,
        net: DeeplySupervised,
        keywords: Sequence[str],
        preprocess: Callable[[Tensor], Tensor] | None,
        companions: dict[str, str] | None,
    ) -> None:
        super().__init__()
        self.keywords = tuple(keywords)
        self.num_classes, self.tokens = net.num_classes, net.tokens
        self.net = net if companions is not None else net.strip()
        self.preprocess = preprocess
        self.companions = companions

    def call_of(self, inputs: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        """Return the arguments of the model for the inputs of the file."""
        if self.preprocess is not None:
            return (self.preprocess(*inputs),), {}
        count = len(inputs) - len(self.keywords)
        return inputs[:count], dict(zip(self.keywords, inputs[count:], strict=True))

    def forward(self, *inputs: Tensor) -> Tensor | dict[str, Tensor]:
        """Inputs as the example has them -> scores [N,K], or output name -> scores [N,K]."""
        args, kwargs = self.call_of(inputs)
        out = self.net(*args, **kwargs)
        if self.companions is None:
            return scores_of(out, self.net, self.num_classes, self.tokens)
        named = {self.companions[tap]: scores for tap, scores in out.companions.items()}
        return {"scores": out.scores, **named}


@dataclass(frozen=True, eq=False)
class Program:
    """A graph, the example that it is traced with, and the names of its inputs and outputs."""

    graph: Graph
    example: tuple[Tensor, ...]
    batched: tuple[bool, ...]
    """Which inputs have the batch as their first dimension."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def trunk(self) -> nn.Module:
        """The plain model."""
        net = self.graph.net
        return net.trunk if isinstance(net, DeeplySupervised) else net

    @property
    def dense(self) -> bool:
        """Whether the model scores every position."""
        return self(*self.batch(1))[0].ndim > 2

    @torch.no_grad()
    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        """Return the outputs in the order of their names."""
        out = self.graph(*inputs)
        return [out] if isinstance(out, Tensor) else list(out.values())

    def batch(self, size: int) -> tuple[Tensor, ...]:
        """Return the example with so many samples, repeated from its first one on."""
        count = next(len(each) for each, batched in zip(self.example, self.batched, strict=True) if batched)
        rows = torch.arange(size) % count
        return tuple(each[rows] if batched else each for each, batched in zip(self.example, self.batched, strict=True))

    def shapes(self) -> dict[str, str]:
        """Return the type and the shape of each input, as a card and a person write them."""
        pairs = zip(self.inputs, self.example, self.batched, strict=True)
        return {
            name: f"{str(each.dtype).removeprefix('torch.')} "
            f"[{','.join(map(str, ['N', *each.shape[1:]] if batched else each.shape))}]"
            for name, each, batched in pairs
        }

    def traced(self) -> Any:
        """Return torch's exported program; an operation that cannot be traced is named with its layer."""
        size = torch.export.Dim("batch")
        shapes = tuple({0: size} if batched else {} for batched in self.batched)
        # two, since torch takes a batch of one for a constant; zeros, since a .pt2 keeps its example
        example = tuple(torch.zeros_like(each) for each in self.batch(2))
        try:
            with quiet(), torch.no_grad():
                program = torch.export.export(self.graph, example, dynamic_shapes={"inputs": shapes}, strict=False)
        except DeepsupError:
            raise
        except Exception as error:  # torch raises many classes that have no common root
            raise ExportError(self._untraceable(error)) from error
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)  # it names files of this machine
        return program

    def random_layer(self) -> str | None:
        """Return the first layer that answers the same input differently in a second call, if there is one."""
        names = {layer: name for name, layer in self.trunk.named_modules()}
        calls: list[tuple[nn.Module, list[Tensor], list[Tensor]]] = []

        def note(layer: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            calls.append((layer, tensors_in((args, kwargs)), tensors_in(output)))

        handles = [layer.register_forward_hook(note, with_kwargs=True) for layer in names]
        for seed in range(2):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                self(*self.batch(2))
        for handle in handles:
            handle.remove()
        half = len(calls) // 2
        for (layer, given, answer), (_, given_again, answer_again) in zip(calls[:half], calls[half:], strict=True):
            if all(map(torch.equal, given, given_again)) and not all(map(torch.equal, answer, answer_again)):
                return described(f"net.{names[layer]}", type(layer).__name__)
        return None

    def _untraceable(self, error: Exception) -> str:
        if "Constraints violated" in str(error):
            fixed = re.search(r"constant \((\d+)\)", str(error))
            return (
                f"the model works for one batch size only ({fixed[1] if fixed else 'it depends on the size'}); "
                f"expected a forward for any batch, e.g. x.flatten(1) in place of x.view(2, -1)"
            )
        return (
            f"torch cannot trace {self._layer_of(error)}: {reason(error)}; expected a forward without branches on the "
            f"values of tensors; rewrite that layer, or export the weights alone: --to safetensors"
        )

    def _layer_of(self, error: Exception) -> str:
        """Return the innermost layer that the error came through."""
        names = {layer: name for name, layer in self.graph.named_modules()}
        place, frame = "the model", error.__traceback__
        while frame is not None:
            layer = frame.tb_frame.f_locals.get("self")
            if isinstance(layer, nn.Module) and names.get(layer):
                place = described(names[layer], type(layer).__name__)
            frame = frame.tb_next
        return place


def layer_of_node(node: Any) -> str:
    """Return the layer that an operation sits in: its name in the user's model, and its class."""
    path, kind = list(node.meta.get("nn_module_stack", {"": ("", "")}).values())[-1]
    kind = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
    return described(path, kind.rpartition(".")[2])


def described(path: str, kind: str) -> str:
    """Return a layer in words.

    >>> described("net.trunk.layer1.0", "BasicBlock")
    "layer 'layer1.0' (BasicBlock)"
    """
    head = re.match(r"net\.heads\.([^.]+)", path)
    if head:
        return f"the companion at {head[1].replace('/', '.')!r}"
    name = re.sub(r"^net(\.trunk)?\.?", "", path)
    if name.startswith("preprocess") or not path:
        return "the preprocessing"
    return f"layer {name!r} ({kind})" if name else f"the model ({kind})"


def tensors_in(value: Any) -> list[Tensor]:
    """Return the tensors of nested arguments or outputs, in order; copied, since a later layer may change them."""
    return [each.clone() for each in tree_leaves(value) if isinstance(each, Tensor)]


def operator(node: Any) -> str:
    """Return the name of an operation, e.g. ``aten.linalg_eigvalsh``."""
    return str(node.target).removesuffix(".default")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the notes of the exporters to themselves: they are not about the user's model."""
    loggers = [logging.getLogger(name) for name in ("torch", "torch.onnx", "torch.export", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
