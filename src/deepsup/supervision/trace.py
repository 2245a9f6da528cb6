"""Record every layer call of one forward pass, in order, without changing the model."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn

from deepsup.errors import SupervisionError
from deepsup.supervision.taps import describe, version_of


@dataclass(frozen=True, eq=False)
class Call:
    """One call of one layer: its name, the layer, and its output (kept only as long as the trace)."""

    name: str
    layer: nn.Module
    output: Any
    version: object

    @property
    def changed_in_place(self) -> bool:
        """Whether a later layer wrote into this one's output."""
        return version_of(self.output) != self.version


@dataclass(frozen=True)
class Trace:
    """A forward pass: the layers, their calls in the order in which they ended, and the scores [B,K]."""

    layers: dict[str, nn.Module]
    calls: list[Call]
    inputs: tuple[Any, ...]
    scores: Tensor

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
    layers = {name: layer for name, layer in model.named_modules() if name}
    names = {layer: name for name, layer in layers.items()}
    thread = get_ident()

    def note(layer: nn.Module, _args: Any, output: Any) -> None:
        if get_ident() == thread:
            calls.append(Call(names[layer], layer, output, version_of(output)))

    handles = [layer.register_forward_hook(note) for layer in names]
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
    return Trace(layers, calls, (*args, *kwargs.values()), scores_of(output, model, num_classes))


def scores_of(output: Any, model: nn.Module, num_classes: int) -> Tensor:
    """Return the scores [B,K] of a model's output: the tensor itself, or its key or attribute ``logits``."""
    scores = output
    if not isinstance(output, Tensor):
        scores = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if not isinstance(scores, Tensor):
        raise SupervisionError(
            f"{type(model).__name__} returns {describe(output)}; expected scores [B,{num_classes}], or a mapping or an "
            f"object with them as 'logits'; wrap the model in a module whose forward returns the scores"
        )
    if scores.ndim != 2 or scores.shape[1] != num_classes:
        remedy = f"build the model with {num_classes} classes or pass its own number"
        raise SupervisionError(
            f"{type(model).__name__} returns scores of shape {list(scores.shape)}, num_classes is {num_classes}; "
            f"expected [B,{num_classes}]; {'let it return scores[:, None]' if scores.ndim == 1 else remedy}"
        )
    return scores


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
