"""Wrap any ``nn.Module`` in a net that also returns the scores of a companion at each tapped layer.

B batch, K classes.
"""

from collections.abc import Iterable, Mapping
from numbers import Integral
from threading import RLock
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from deepsup.errors import SupervisionError, nearest
from deepsup.supervision.auto import choose_taps
from deepsup.supervision.companions import Companion, Head
from deepsup.supervision.layout import layout_of
from deepsup.supervision.taps import Tap, one_tensor, part_of
from deepsup.supervision.trace import Call, Trace, fast_encoders, scores_of, shares_memory, trace

SIZING = RLock()  # one net at a time: sizing traces the model and changes its mode and hooks meanwhile
SCORING_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


class DeepOutput(NamedTuple):
    """The output of a supervised net, in training and in evaluation mode."""

    scores: Tensor
    """[B,K], the model's own output."""
    companions: dict[str, Tensor]
    """Tap name -> [B,K], the companion's scores."""


class DeeplySupervised(nn.Module):
    """A model with companions: ``net(images)`` returns its scores and those of every companion. See ``supervise``.

    trunk: the original model. heads: the companions. taps: the names of the tapped layers, in the given order.
    """

    def __init__(self, trunk: nn.Module, companions: Mapping[str, Companion], num_classes: int) -> None:
        super().__init__()
        self.trunk = trunk
        self.num_classes = num_classes
        self.heads = nn.Module()  # a plain container: a ModuleDict would refuse layers called "keys" or "values"
        like = next((p for p in trunk.parameters() if p.is_floating_point()), torch.empty(0))
        for name, companion in companions.items():
            self.heads.add_module(key(name), Head(name, companion, num_classes).to(like.device, like.dtype))
        self.heads.train(trunk.training)
        self.training = trunk.training  # not self.train(): it would change the mode of every layer of the trunk
        self._output_layer: str | None = None
        self._sized = False
        self._refused = ""  # why a tap is invalid, once a first forward pass has found out
        self._taps = {name: Tap(name, companion.select) for name, companion in companions.items()}
        self._fast_encoders = encoders_around(trunk, companions)
        for encoder in self._fast_encoders:
            encoder.use_nested_tensor = False
        self._handles = [trunk.get_submodule(name).register_forward_hook(tap) for name, tap in self._taps.items()]

    @property
    def taps(self) -> tuple[str, ...]:
        """The names of the tapped layers."""
        return tuple(self._taps)

    def head(self, name: str) -> Head:
        """Return the companion at the tap ``name``."""
        if name not in self._taps:
            raise SupervisionError(f"no companion at {name!r}; {nearest(name, self._taps)}")
        head: Head = getattr(self.heads, key(name))
        return head

    @property
    def output_layer(self) -> nn.Module:
        """The layer with the paper's w_out: the last linear or convolution layer with K outputs."""
        if self._output_layer is None:
            raise SupervisionError(
                f"{type(self.trunk).__name__} has no linear or convolution layer with {self.num_classes} outputs, or "
                f"has not run yet, so w_out is unknown; expected a net that ends in such a layer; call it once before, "
                f"or leave the |w|^2 terms out, Objective(..., norms=False)"
            )
        return self.trunk.get_submodule(self._output_layer)

    def forward(self, *args: Any, **kwargs: Any) -> DeepOutput:
        """Run the model; return its scores [B,K] and those of each companion [B,K]."""
        if self._refused:
            raise SupervisionError(self._refused)
        if not self._sized:
            self.size(args, kwargs)
        around = {name: tap.listen() for name, tap in self._taps.items()}
        try:
            output = self.trunk(*args, **kwargs)
        finally:
            caught = {name: tap.stop(around[name]) for name, tap in self._taps.items()}
        scores = scores_of(output, self.trunk, self.num_classes)
        features = {name: tap.check(caught[name], scores.shape[0]) for name, tap in self._taps.items()}
        for name in features:
            self.check_gradient(name, features[name])
        return DeepOutput(scores, {name: self.head(name)(features[name]) for name in features})

    @torch.compiler.disable  # type: ignore[untyped-decorator] # torch leaves it untyped
    def size(self, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None) -> None:
        """Run the model once on a batch, check every tap, and set the input sizes of the companions.

        A batch that the model cannot run on changes nothing. An invalid tap is permanent: the model is restored, and
        later calls raise the same reason.
        """
        with SIZING, torch.inference_mode(False):  # otherwise the companions' weights could not be trained
            if self._sized:  # by another thread, while this one waited
                return
            seen = trace(self.trunk, args, kwargs or {}, self.num_classes)
            try:
                calls = {name: checked_call(tap, self.trunk, seen) for name, tap in self._taps.items()}
                for name, (call, features) in calls.items():
                    if self.head(name).needs_layout(features):
                        self.head(name).layout = layout_of(call, features, seen)
            except SupervisionError as error:
                self._refused = str(error)
                self.strip()
                raise
            for name, (call, features) in calls.items():
                self._taps[name].clone = call.changed_in_place
                self.head(name).size(features)
            self._output_layer = last_scoring_layer(seen, self.num_classes)
            self._sized = True

    def check_gradient(self, name: str, features: Tensor) -> None:
        """Raise an error if the features have no gradient: the companion could not train the layer."""
        if torch.compiler.is_compiling() or features.requires_grad or not torch.is_grad_enabled():
            return
        if any(parameter.requires_grad for parameter in self.trunk.get_submodule(name).parameters()):
            raise SupervisionError(
                f"the output of layer {name!r} has no gradient although the layer is trained (it runs without one, "
                f"e.g. inside a reentrant checkpoint); expected a gradient; use checkpoint(..., use_reentrant=False) "
                f"or tap a layer outside"
            )

    def strip(self) -> nn.Module:
        """Remove the companions and return the original model: same object, trained weights, no hooks left.

        The net has no companions afterwards; use ``copy.deepcopy(net).strip()`` to keep them.
        """
        for handle in self._handles:
            handle.remove()
        for encoder in self._fast_encoders:
            encoder.use_nested_tensor = True
        self._fast_encoders = []
        self._handles, self._taps, self.heads = [], {}, nn.Module().train(self.training)
        return self.trunk


def supervise(
    model: nn.Module,
    at: str | Iterable[str] | Mapping[str, Companion] = "auto",
    *,
    num_classes: int,
    example: Any = None,
    companion: Companion = Companion(),  # noqa: B008 - frozen
) -> DeeplySupervised:
    """Attach a companion, a small classifier, to hidden layers of any model.

    model: any ``nn.Module`` that returns scores [B,K]; it only gets forward hooks (and an
        ``nn.TransformerEncoder`` stops using nested tensors), which ``strip`` undoes.
    at: names from ``model.named_modules()``; or ``"auto"``, the last layer of each spatial resolution except the
        output's; or a mapping from names to companions.
    num_classes: K.
    example: a batch (a tensor, or a tuple or mapping of arguments) to find the input sizes of the companions.
        Without it they are found in the first forward pass; ``"auto"`` needs it.
    companion: how features become scores, for all taps; a mapping ``at`` overrides it.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> net = supervise(model, at=["1"], num_classes=3, example=torch.zeros(1, 4))
    >>> net(torch.zeros(5, 4)).companions["1"].shape
    torch.Size([5, 3])
    """
    check_model(model, num_classes)
    if isinstance(at, str) and at == "auto":
        if example is None:
            raise SupervisionError(
                "at='auto' without example=; expected a batch to run the model on once; give example=images[:1] or "
                "name the layers"
            )
        at = choose_taps(model, trace(model, *as_call(example), num_classes))
    net = DeeplySupervised(model, named_companions(model, at, companion), int(num_classes))
    if example is not None:
        try:
            net.size(*as_call(example))
        except BaseException:
            net.strip()
            raise
    return net


def as_call(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call: a tensor is one argument, a tuple several, a mapping keyword arguments."""
    if isinstance(example, Mapping):
        return (), dict(example)
    return (tuple(example), {}) if isinstance(example, tuple | list) else ((example,), {})


def key(name: str) -> str:
    """Return the name under which a tap's companion is registered: module names cannot contain dots."""
    return name.replace(".", "/")


def check_model(model: nn.Module, num_classes: int) -> None:
    """Raise an error if the model cannot be supervised."""
    if not isinstance(model, nn.Module):
        raise SupervisionError(f"model is a {type(model).__name__}; expected a torch.nn.Module")
    if isinstance(model, DeeplySupervised):
        raise SupervisionError("model is supervised already; expected a plain model; call its strip() first")
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel | torch.jit.ScriptModule) or hasattr(
        model, "_orig_mod"
    ):
        raise SupervisionError(
            f"model is a {type(model).__name__}; expected the model inside it; supervise first, then compile or "
            f"distribute the supervised net"
        )
    if not isinstance(num_classes, Integral) or isinstance(num_classes, bool) or num_classes < 1:
        raise SupervisionError(f"num_classes={num_classes!r}; expected a whole number of at least 1")


def named_companions(
    model: nn.Module, at: str | Iterable[str] | Mapping[str, Companion], companion: Companion
) -> dict[str, Companion]:
    """Return tap name -> companion; every name must be a layer of the model."""
    if not isinstance(at, Iterable):
        raise SupervisionError(f"at={at!r}; expected layer names, 'auto', or a mapping from names to companions")
    if not isinstance(at, Mapping):
        names = [at] if isinstance(at, str) else list(at)
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise SupervisionError(f"at names {repeated[0]!r} more than once; expected each layer once")
        at = dict.fromkeys(names, companion)
    layers = [name for name, _ in model.named_modules(remove_duplicate=False) if name]
    for name, each in at.items():
        if name not in layers:
            raise SupervisionError(f"no layer {name!r} in {type(model).__name__}; {nearest(str(name), layers)}")
        if not isinstance(each, Companion):
            raise SupervisionError(f"at[{name!r}] is {each!r}; expected a Companion, e.g. Companion(pool='avg')")
    return dict(at)


def checked_call(tap: Tap, trunk: nn.Module, seen: Trace) -> tuple[Call, Tensor]:
    """Return the only call of a tapped layer and its features; raise an error if it cannot be tapped."""
    layer = trunk.get_submodule(tap.name)
    calls = [call for call in seen.calls if call.layer is layer]
    parts = [part_of(tap.name, call.output, tap.select) for call in calls]
    features = one_tensor(tap.name, parts, seen.scores.shape[0])
    hidden = any(call is calls[0] for call in seen.hidden_calls)
    if not hidden or shares_memory(features, seen.scores):
        raise SupervisionError(
            f"layer {tap.name!r} returns the output itself or runs after it, so it is not a hidden layer; expected one "
            f"before the output; the output already has its own loss"
        )
    return calls[0], features


def encoders_around(trunk: nn.Module, names: Iterable[str]) -> list[nn.TransformerEncoder]:
    """Return the encoders with a tapped layer inside that use nested tensors for padding masks."""
    tapped = {trunk.get_submodule(name) for name in names}
    return [encoder for encoder in fast_encoders(trunk) if not tapped.isdisjoint([*encoder.modules()][1:])]


def last_scoring_layer(seen: Trace, num_classes: int) -> str | None:
    """Return the name of the last layer called that has weights, if it maps features to K scores."""
    for call in reversed(seen.calls):
        if isinstance(call.layer, SCORING_LAYERS):
            return call.name if call.layer.weight.shape[0] == num_classes else None
        if any(True for _ in call.layer.parameters(recurse=False)):
            return None
    return None
