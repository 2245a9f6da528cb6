"""Record every layer call of one forward pass, in order, without changing the model."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn

from deepsup.errors import SupervisionError
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

    @property
    def dense(self) -> bool:
        """Whether the model scores every position, [B,K,L], [B,K,H,W] or [B,K,D,H,W]."""
        return self.scores.ndim > 2

    @property
    def hidden_calls(self) -> list[Call]:
        """The calls that ended before the scores existed; only these may be tapped."""
        for index, call in enumerate(self.calls):
            if shares_memory(call.output, self.scores):
                return self.calls[:index]
        return self.calls


def trace(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], num_classes: int) -> Trace:
    """Run ``model`` once on a batch, in evaluation mode and without gradients, and record every layer call.

    The trace keeps the outputs of all layers, so that no memory is reused and tensors can be identified by their
    storage.
    """
    calls: list[Call] = []
    begun: list[nn.Module] = []
    layers = {name: layer for name, layer in model.named_modules() if name}
    names = {layer: name for name, layer in layers.items()}
    thread = get_ident()

    def begin(layer: nn.Module, _args: Any) -> None:
        if get_ident() == thread:
            begun.append(layer)

    def note(layer: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if get_ident() == thread:
            calls.append(Call(names[layer], layer, output, version_of(output), len(begun), next(iter(args), None)))

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
    return Trace(layers, begun, calls, (*args, *kwargs.values()), scores_of(output, model, num_classes))


def scores_of(output: Any, model: nn.Module, num_classes: int) -> Tensor:
    """Return the scores [B,K] or [B,K, ...] of a model's output.

    The output is the scores, a list of nothing else, or has them under the key or attribute ``logits`` or ``out``.
    """
    scores = output
    if isinstance(output, list | tuple) and len(output) == 1:
        scores = output[0]
    elif isinstance(output, Mapping):
        scores = output.get("logits", output.get("out"))
    elif not isinstance(output, Tensor):
        scores = getattr(output, "logits", None)
    if not isinstance(scores, Tensor):
        raise SupervisionError(
            f"{type(model).__name__} returns {describe(output)}; expected scores [B,{num_classes}] or, for dense "
            f"targets, [B,{num_classes},H,W], or a mapping or an object with them as 'logits'; "
            f"{remedy_for_several(output)}"
        )
    if not 2 <= scores.ndim <= 5 or scores.shape[1] != num_classes or scores.shape[2:].numel() == 1 < scores.ndim - 1:
        raise SupervisionError(
            f"{type(model).__name__} returns scores of shape {list(scores.shape)}, num_classes is {num_classes}; "
            f"expected [B,{num_classes}{',H,W] or the like' if scores.ndim > 2 else ']'}; "
            f"{remedy_for_shape(scores, num_classes)}"
        )
    return scores


def remedy_for_several(output: Any) -> str:
    """Return what to do about a model that returns something else than scores."""
    if isinstance(output, list | tuple) and sum(isinstance(part, Tensor) and part.ndim > 2 for part in output) > 1:
        return "build the model without its own deep supervision: companions do that"
    return "wrap the model in a module whose forward returns the scores"


def remedy_for_shape(scores: Tensor, num_classes: int) -> str:
    """Return what to do about scores of the wrong shape."""
    if scores.ndim == 1:
        return "let it return scores[:, None]"
    if scores.ndim > 2 and scores.shape[1] == num_classes:
        return "let it return scores.flatten(1)"
    if num_classes in scores.shape[2:]:
        place = scores.shape.index(num_classes, 2)
        return f"let it return scores.movedim({place}, 1)" + (
            ", or build it without its own deep supervision" if scores.ndim > 3 else ""
        )
    return f"build the model with {num_classes} classes or pass its own number"


def shares_memory(output: Any, scores: Tensor) -> bool:
    """Whether a layer's output is the scores themselves or a view of them."""
    return (
        isinstance(output, Tensor) and output.untyped_storage().data_ptr() == scores.untyped_storage().data_ptr() != 0
    )


def fast_encoders(model: nn.Module) -> list[nn.TransformerEncoder]:
    """Return the encoders that use nested tensors for padded batches in evaluation; layers with hooks fail on them."""
    encoders = (module for module in model.modules() if isinstance(module, nn.TransformerEncoder))
    return [encoder for encoder in encoders if encoder.use_nested_tensor]


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Run in evaluation mode, without gradients or nested tensors; restore modes and random state afterwards."""
    encoders = fast_encoders(model)
    modes = {layer: layer.training for layer in model.modules()}
    cuda = sorted({p.device.index for p in model.parameters() if p.device.type == "cuda"})
    model.eval()
    for encoder in encoders:
        encoder.use_nested_tensor = False
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=cuda):
            yield
    finally:
        for layer, mode in modes.items():
            layer.training = mode
        for encoder in encoders:
            encoder.use_nested_tensor = True
