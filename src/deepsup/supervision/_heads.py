"""Companions without weights of their own, and companions that a user builds: the other kinds of ``Head``.

B batch, L tokens, K classes.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from deepsup.errors import SupervisionError
from deepsup.supervision._companions import Companion, Head
from deepsup.supervision._layer_layouts import Layout
from deepsup.supervision._tail import Tail, find_tail, fitting, tail_by_name
from deepsup.supervision._taps import describe
from deepsup.supervision._trace import Call, Trace, undisturbed


class OtherHead(nn.Module):
    """What both kinds share: nothing is pooled, so there is no layout to find."""

    def __init__(self, tap: str, companion: Companion, num_classes: int) -> None:
        super().__init__()
        self.tap, self.companion, self.num_classes = tap, companion, num_classes
        self.layout: Layout | None = None
        self.grid: tuple[int, ...] | None = None
        self.dense = self.tokens = False
        self.memory = 0  # bytes that one sample keeps until the backward pass, once it is known

    def build(self, call: Call, features: Tensor, model: nn.Module, seen: Trace) -> None:
        """Make the companion for the output of a layer, and check that it gives scores."""
        raise NotImplementedError

    @property
    def classifier(self) -> Any:
        """The layer with the paper's w_m."""
        raise NotImplementedError

    def maps(self, features: Tensor) -> Tensor:
        """Return features as they are, [B,C, ...]."""
        return features

    def trained_parameters(self) -> list[nn.Parameter]:
        """Return the parameters that belong to the companion alone."""
        return list(self.parameters())


def head_for(tap: str, companion: Companion, num_classes: int, model: nn.Module) -> Head | OtherHead:
    """Return the companion of a tap, without its sizes."""
    kind = companion.kind_of_head(num_classes)
    if kind == "linear":
        return Head(tap, companion, num_classes)
    return OwnHead(tap, companion, num_classes) if kind == "own" else OutputHead(tap, companion, num_classes, model)


class OutputHead(OtherHead):
    """A companion that is the model's own last layers: no weights of its own; ``strip`` leaves nothing."""

    def __init__(self, tap: str, companion: Companion, num_classes: int, model: nn.Module) -> None:
        super().__init__(tap, companion, num_classes)
        self._model = (model,)  # not registered: its weights are the trunk's
        self.tail = Tail(())

    def build(self, call: Call, features: Tensor, model: nn.Module, seen: Trace) -> None:
        """Find the tail; measure what it keeps for the backward pass."""
        source = ""
        if isinstance(self.companion.head, tuple):
            self.tail = tail_by_name(self.companion.head, model)
        else:
            self.tail, last = find_tail(call, self.companion.select, model, seen)
            source = last.name
        fitting(self.tail, source, self.tap, model, features, seen.scores)
        self.memory = kept_bytes(lambda: self.tail.run(model, features), model) // len(features)

    @property
    def classifier(self) -> Any:
        """The model's last layer, which is its w_out too."""
        return self._model[0].get_submodule(self.tail.layers[-1])

    def forward(self, features: Tensor) -> Tensor:
        """Features [B, ...] -> scores like the model's."""
        norms = self.batch_norms()
        for norm in norms:
            norm.track_running_stats = False  # it norms by the batch, and takes no note of it: strip leaves nothing
        try:
            with torch.set_grad_enabled(torch.is_grad_enabled() and not self.companion.detach):
                return self.tail.run(self._model[0], features)
        finally:
            for norm in norms:
                norm.track_running_stats = True

    def batch_norms(self) -> list[Any]:
        """Return the model's last layers that take note of their batches in training."""
        layers = [each for name in self.tail.layers for each in self._model[0].get_submodule(name).modules()]
        return [each for each in layers if isinstance(each, _BatchNorm) and each.training and each.track_running_stats]

    def extra_repr(self) -> str:
        """Name the layers."""
        return str(self.tail)


class OwnHead(OtherHead):
    """A companion that the user's own factory made: any module from the layer's output to scores."""

    def build(self, call: Call, features: Tensor, model: nn.Module, seen: Trace) -> None:  # noqa: ARG002
        """Call the factory with the shape of one sample's features and the number of classes."""
        factory: Any = self.companion.head
        try:
            made = factory(tuple(features.shape[1:]), self.num_classes)
        except Exception as error:
            raise SupervisionError(
                f"head of {self.tap!r} fails ({type(error).__name__}: {' '.join(str(error).split())[:200]}); expected "
                f"a callable that makes a module of the shape of one sample's features, {tuple(features.shape[1:])}, "
                f"and the number of classes: head=lambda shape, classes: ..."
            ) from error
        if not isinstance(made, nn.Module):
            raise SupervisionError(
                f"head of {self.tap!r} made a {type(made).__name__}; expected a module: head is called with the shape "
                f"of one sample's features, {tuple(features.shape[1:])}, and the number of classes"
            )
        self.module = made.to(features.device, features.dtype if features.is_floating_point() else None)
        self.module.train(self.training)
        try:
            with undisturbed(self.module):
                scores = self.module(features)
        except Exception as error:
            raise SupervisionError(
                f"head of {self.tap!r} fails on features {list(features.shape)}: {' '.join(str(error).split())[:200]}; "
                f"expected a module that takes them"
            ) from error
        fits = isinstance(scores, Tensor) and scores.is_floating_point() and scores.ndim == seen.scores.ndim
        if fits and seen.dense:
            fits = scores.shape[:2] == seen.scores.shape[:2]
        if not fits or (not seen.dense and scores.shape != seen.scores.shape):
            raise SupervisionError(
                f"head of {self.tap!r} returns {describe(scores)} for features {list(features.shape)}; expected scores "
                f"like the model's, {list(seen.scores.shape)}"
            )

    @property
    def classifier(self) -> Any:
        """The last layer of the module that has weights."""
        layers = [each for each in self.modules() if isinstance(getattr(each, "weight", None), Tensor)]
        if not layers:
            raise SupervisionError(f"head of {self.tap!r} has no layer with weights; use Objective(..., norms=False)")
        return layers[-1]

    def forward(self, features: Tensor) -> Tensor:
        """Features [B, ...] -> scores."""
        weight = next(self.parameters(), None)
        if weight is not None and not torch.is_autocast_enabled(features.device.type):
            features = features.to(weight.dtype)
        scores: Tensor = self.module(features)
        return scores


def kept_bytes(run: Callable[[], Tensor], model: nn.Module) -> int:
    """Return how many bytes a computation of scores and their loss keep until the backward pass, without weights.

    That is what autograd keeps, and the scores themselves, which the net's output has.
    """
    weights = {each.untyped_storage().data_ptr() for each in model.parameters()}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with undisturbed(model), torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        scores = run()
        loss = (scores if scores.dtype == torch.float64 else scores.float()).log_softmax(-1)
        note(scores)
        del loss
    return sum(kept.values())
