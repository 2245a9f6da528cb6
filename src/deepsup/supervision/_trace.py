"""Record every layer call of one forward pass, in order, without changing the model."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn

from deepsup.errors import SupervisionError
from deepsup.supervision._scores import ScoreLayout, any_tensor, scores_and_kind, shares_memory
from deepsup.supervision._taps import describe, version_of


@dataclass(frozen=True, eq=False)
class Call:
    """One call of one layer: its name, the layer, and its output (kept only as long as the trace)."""

    name: str
    layer: nn.Module
    output: Any
    version: object
    begun: int
    """How many calls had begun when this one ended."""
    given: Any = None
    """Its first positional argument."""
    start: int = 0
    """How many calls had begun before this one."""

    @property
    def changed_in_place(self) -> bool:
        """Whether a later layer wrote into this one's output."""
        return version_of(self.output) != self.version


@dataclass(frozen=True)
class Trace:
    """A forward pass: the layers, their calls in the order in which they ended, and the scores [B,K, ...]."""

    layers: dict[str, nn.Module]
    begun: list[nn.Module]
    """The layers in the order in which their calls began."""
    calls: list[Call]
    inputs: tuple[Any, ...]
    scores: Tensor
    tokens: bool = False
    """Whether the model scores every token, [B,L,K]."""

    @property
    def dense(self) -> bool:
        """Whether the model scores every position of a map, [B,K,L], [B,K,H,W] or [B,K,D,H,W]."""
        return self.scores.ndim > 2 and not self.tokens

    @property
    def hidden_calls(self) -> list[Call]:
        """The calls that ended before the scores existed; only these may be tapped."""
        for index, call in enumerate(self.calls):
            if shares_memory(call.output, self.scores):
                return self.calls[:index]
        return self.calls


def trace(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    num_classes: int | None,
    layout: ScoreLayout = "auto",
) -> Trace:
    """Run ``model`` once on a batch, in evaluation mode and without gradients, and record every layer call.

    The trace keeps the outputs of all layers, so that no memory is reused and tensors can be identified by their
    storage.

    num_classes: None for any number; the scores are then the first tensor of the output.
    """
    calls: list[Call] = []
    begun: list[nn.Module] = []
    starts: list[int] = []
    layers = {name: layer for name, layer in model.named_modules() if name}
    names = {layer: name for name, layer in layers.items()}
    thread = get_ident()

    def begin(layer: nn.Module, _args: Any) -> None:
        if get_ident() == thread:
            starts.append(len(begun))
            begun.append(layer)

    def note(layer: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if get_ident() == thread:
            given = next(iter(args), None)
            calls.append(Call(names[layer], layer, output, version_of(output), len(begun), given, starts.pop()))

    handles = [layer.register_forward_hook(note) for layer in names]
    handles += [layer.register_forward_pre_hook(begin) for layer in names]
    try:
        with undisturbed(model):
            output = model(*args, **kwargs)
    except Exception as error:
        given = ", ".join(map(describe, (*args, *kwargs.values())))
        raise SupervisionError(
            f"{type(model).__name__} fails on the example ({given}): {error}; "
            f"expected a batch the model can run on; give one as example="
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    inputs = (*args, *kwargs.values())
    if num_classes is None:
        return Trace(layers, begun, calls, inputs, any_tensor(output, model))
    makers = [(each.layer, each.output) for each in calls]
    scores, tokens = scores_and_kind(output, model, num_classes, layout, makers)
    return Trace(layers, begun, calls, inputs, scores, tokens)


def fast_encoders(model: nn.Module) -> list[nn.TransformerEncoder]:
    """Return the encoders that use nested tensors for padded batches in evaluation; layers with hooks fail on them."""
    encoders = (module for module in model.modules() if isinstance(module, nn.TransformerEncoder))
    return [encoder for encoder in encoders if encoder.use_nested_tensor]


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Run in evaluation mode, without gradients or nested tensors; restore modes and random state afterwards.

    Layers that are compiled (``layer.compile()``) run uncompiled meanwhile.
    """
    encoders = fast_encoders(model)
    modes = {layer: layer.training for layer in model.modules()}
    cuda = sorted({p.device.index for p in model.parameters() if p.device.type == "cuda"})
    model.eval()
    for encoder in encoders:
        encoder.use_nested_tensor = False
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=cuda), uncompiled():
            yield
    finally:
        for layer, mode in modes.items():
            layer.training = mode
        for encoder in encoders:
            encoder.use_nested_tensor = True


def uncompiled() -> AbstractContextManager[Any]:
    """Let compiled layers run as they are written: their hooks would be compiled, call by call."""
    if "torch._dynamo" not in sys.modules:  # the import takes a second, and then nothing is compiled
        return nullcontext()
    stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance
