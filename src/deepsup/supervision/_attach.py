"""Wrap any ``nn.Module`` in a net that also returns the scores of a companion at each tapped layer.

B batch, K classes. A dense model scores every position: [B,K,L], [B,K,H,W] or [B,K,D,H,W], or every token: [B,L,K].
"""

import copy
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from deepsup.errors import RunError, SupervisionError, nearest
from deepsup.io import file_named
from deepsup.supervision._companion_files import load_heads, save_heads
from deepsup.supervision._companion_summary import summary_of
from deepsup.supervision._companions import Companion
from deepsup.supervision._fusion import FUSE, Fusion
from deepsup.supervision._gradient import Shares
from deepsup.supervision._heads import head_for
from deepsup.supervision._inspection import check_model, encoders_around
from deepsup.supervision._names import exact_names
from deepsup.supervision._packing import REMEDY, SHAPE, packed, restored, unpacked
from deepsup.supervision._pretrained import (
    SETTINGS,
    WEIGHTS,
    local_folder,
    make_folder,
    push,
    read_pretrained,
    write_pretrained,
)
from deepsup.supervision._prune import Pruned
from deepsup.supervision._scores import ScoreLayout, scores_of
from deepsup.supervision._sizing import note_inputs, size_companions
from deepsup.supervision._tail import Tail
from deepsup.supervision._taps import Captures, place_of, tap_on
from deepsup.supervision._trace import Trace, trace

SIZING = RLock()  # one net at a time: sizing traces the model and changes its mode and hooks meanwhile


class DeepOutput(NamedTuple):
    """The output of a supervised net, in training and in evaluation mode."""

    scores: Tensor
    """[B,K], [B,K, ...] or, of tokens, [B,L,K]: the model's own output."""
    companions: dict[str, Tensor]
    """Tap name -> [B,K] or, in the tap's resolution, [B,K, ...]: the companion's scores; ``fuse``: the fused ones."""
    raw: Any = None
    """All that the model returned, if the objective has an ``output_loss``."""


class DeeplySupervised(nn.Module):
    """A model with companions: ``net(images)`` returns its scores and those of every companion. See ``supervise``.

    trunk: the original model. heads: the companions. taps: the names of the tapped layers, in the given order.
    """

    def __init__(
        self, trunk: nn.Module, companions: Mapping[str, Companion], num_classes: int, fuse: bool = False
    ) -> None:
        super().__init__()
        self.trunk = trunk
        self.num_classes = num_classes
        self.heads = nn.Module()  # a plain container: a ModuleDict would refuse layers called "keys" or "values"
        like = next((p for p in trunk.parameters() if p.is_floating_point()), torch.empty(0))
        for name, companion in companions.items():
            if hasattr(self.heads, key_of(name, companion)):
                check_shared(name, companion, getattr(self.heads, key_of(name, companion)).companion)
            else:
                head = head_for(name, companion, num_classes, trunk)
                self.heads.add_module(key_of(name, companion), head.to(like.device, like.dtype))
        if fuse:
            self.heads.add_module(FUSE, Fusion(1 + len(companions), num_classes).to(like.device, like.dtype))
        self.fuse = fuse
        self.heads.train(trunk.training)
        self.training = trunk.training  # not self.train(): it would change the mode of every layer of the trunk
        self._output_layer: str | None = None
        self._sized = False
        self._paused = 0  # how many blocks of paused() are open
        self.keeps_raw = False  # whether the output has all that the model returned
        self.inputs: tuple[tuple[torch.Size, torch.dtype], ...] = ()
        """Shape and type of each input that the net was sized with, if they were positional tensors."""
        self.normalized = False  # whether the model has norm layers, once it has run
        self.dense = False  # whether the model scores every position, once it has run
        self.tokens = False  # whether these are the tokens of a sequence, with scores [B,L,K]
        self.layout: ScoreLayout = "auto"
        self._keys = {name: key_of(name, companion) for name, companion in companions.items()}
        self.full_size = False  # whether a dense model's scores have the size of its input
        self.shapes: dict[str, tuple[int, ...]] = {}  # tap -> the shape of its output for one sample, once it is known
        self.sizes: dict[str, tuple[int, ...]] = {}  # tap -> the size of its map, once a dense model has run
        self.loss_weights: dict[str, float] = {}
        """Companion -> its weight in the loss, if an objective gives other ones than the default."""
        self._depth: list[str] = []  # the taps from the first layer to the last, once the net has run
        self._later: dict[str, tuple[str, ...]] = {}  # tap -> the modules that run after it
        self._refused = ""  # why a tap is invalid, once a first forward pass has found out
        self._taps = {
            name: tap_on(name, trunk, companion.select, companion.join == "bounded" and not companion.detach)
            for name, companion in companions.items()
        }
        self._fast_encoders = encoders_around(trunk, companions)
        for encoder in self._fast_encoders:
            encoder.use_nested_tensor = False
        self._handles = [self.layer_of(name).register_forward_hook(tap) for name, tap in self._taps.items()]
        # a net that is dropped leaves the model as strip() does
        weakref.finalize(self, release, self._handles, self._fast_encoders).atexit = False

    @property
    def taps(self) -> tuple[str, ...]:
        """The names of the tapped layers."""
        return tuple(self._taps)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of all companions' outputs: the taps, and ``fuse`` if there is one."""
        return (*self._taps, FUSE) if self.fuse else self.taps

    def layer_of(self, name: str) -> nn.Module:
        """Return the tapped layer."""
        return self.trunk.get_submodule(place_of(name).layer)

    @property
    def order(self) -> tuple[str, ...]:
        """The names of all companions' outputs from the first layer to the last, once the net has run."""
        return (*(self._depth or self._taps), *((FUSE,) if self.fuse else ()))

    def classifier(self, name: str) -> nn.Linear:
        """Return the layer with the paper's w_m of one of the ``outputs``."""
        head: Any = getattr(self.heads, FUSE) if self.fuse and name == FUSE else self.head(name)
        layer: nn.Linear = head.classifier
        return layer

    def head(self, name: str) -> Any:
        """Return the companion at the tap ``name``, a module."""
        if name not in self._taps:
            raise SupervisionError(f"no companion at {name!r}; {nearest(name, self._taps)}")
        return getattr(self.heads, self._keys[name])

    def companion_parameters(self, name: str) -> list[nn.Parameter]:
        """Return the parameters that one of the ``outputs`` has for itself."""
        if self.fuse and name == FUSE:
            return list(getattr(self.heads, FUSE).parameters())
        parameters: list[nn.Parameter] = self.head(name).trained_parameters()
        return parameters

    def gives_sequence(self, name: str) -> bool:
        """Whether a tapped layer returns a sequence [B,N,D], once the net has run."""
        if self.tokens:
            return name in self._taps
        return len(self.shapes.get(name, ())) == 2 and not self.dense and self.head(name).layout == "channels_last"

    def note_shares(self, on: bool) -> Shares:
        """Let the next forward and backward pass take note of the companions' shares of the gradient, or stop that.

        Return what gets them: tap -> share, after the backward pass.
        """
        shares = Shares()
        for tap in self._taps.values():
            tap.shares = shares if on else None
        return shares

    def rate_of(self, parameter: str) -> float:
        """Return the ``rate`` of the companion that has a parameter, by its name within ``heads``."""
        tap = next((name for name in self._taps if parameter.startswith(f"{self._keys[name]}.")), None)
        return 1.0 if tap is None else self.head(tap).companion.rate

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
        """Run the model; return its scores [B,K] or [B,K, ...] and those of each companion."""
        if self._refused:
            raise SupervisionError(self._refused)
        if not self._sized:
            self.size(args, kwargs)
        output, caught = self.run(args, kwargs)
        scores = scores_of(output, self.trunk, self.num_classes, self.tokens)
        raw = output if self.keeps_raw else None
        if self._paused:
            return DeepOutput(scores, {}, raw)
        features = {name: tap.check(caught[name], scores.shape[0]) for name, tap in self._taps.items()}
        for name in features:
            self.check_gradient(name, features[name], self._taps[name].joins_late(caught[name]))
            if self.head(name).companion.detach:
                features[name] = features[name].detach()
        companions = {name: self.head(name)(features[name]) for name in features}
        if self.fuse:
            companions[FUSE] = getattr(self.heads, FUSE)(scores, companions)
        return DeepOutput(scores, companions, raw)

    def run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, dict[str, Captures]]:
        """Run the model; return its output and what the taps caught, unless they are paused."""
        if self._paused:
            return self.trunk(*args, **kwargs), {}
        around = {name: tap.listen() for name, tap in self._taps.items()}
        try:
            output = self.trunk(*args, **kwargs)
        finally:
            caught = {name: tap.stop(around[name]) for name, tap in self._taps.items()}
        return output, caught

    def features(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """Run the model; return tap name -> what its companion gets: the tapped layer's output, before any pooling."""
        if self._refused:
            raise SupervisionError(self._refused)
        if not self._sized:
            self.size(args, kwargs)
        output, caught = self.run(args, kwargs)
        batch = scores_of(output, self.trunk, self.num_classes, self.tokens).shape[0]
        return {name: tap.check(caught[name], batch) for name, tap in self._taps.items() if caught}

    @contextmanager
    def paused(self) -> Iterator[Self]:
        """Run the bare model: within the block the output has no companions, and no layer is tapped."""
        self._paused += 1
        try:
            yield self
        finally:
            self._paused -= 1

    def size(self, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None) -> None:
        """Run the model once on a batch, check every tap, and set the input sizes of the companions.

        A batch that the model cannot run on changes nothing. An invalid tap is permanent: the model is restored, and
        later calls raise the same reason.
        """
        # torch.compiler.disable imports the compiler, which takes a second: only for nets that are compiled
        run: Any = self._size
        if "torch._dynamo" in sys.modules:
            run = torch.compiler.disable(run)  # type: ignore[no-untyped-call] # torch leaves it untyped
        run(args, kwargs)

    def _size(self, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> None:
        with SIZING, torch.inference_mode(False):  # otherwise the companions' weights could not be trained
            if self._sized:  # by another thread, while this one waited
                return
            self.size_from(trace(self.trunk, args, kwargs or {}, self.num_classes, self.layout))
            note_inputs(self, args, kwargs or {})

    def size_from(self, seen: Trace) -> None:
        """Set the sizes of the companions by a traced forward pass; if a tap is invalid, restore the model."""
        try:
            size_companions(self, seen)
        except SupervisionError as error:
            self._refused = str(error)
            self.strip()
            raise
        self._sized = True

    def check_gradient(self, name: str, features: Tensor, joins_late: bool) -> None:
        """Raise an error if the features have no gradient, or get one later: the companion could not train the layer.

        joins_late: whether they had none when the layer ran. A reentrant checkpoint gives them one afterwards, which
            the tap has no part in.
        """
        if torch.compiler.is_compiling() or not torch.is_grad_enabled() or self.head(name).companion.detach:
            return
        if features.requires_grad and not joins_late:
            return
        if features.requires_grad or any(parameter.requires_grad for parameter in self.layer_of(name).parameters()):
            raise SupervisionError(
                f"the output of layer {name!r} has no gradient although the layer is trained (it runs without one, "
                f"e.g. inside a reentrant checkpoint); expected a gradient; use checkpoint(..., use_reentrant=False) "
                f"or tap a layer outside"
            )

    def __repr__(self) -> str:
        """Name the model and the layers with companions; ``net.trunk`` prints the model, ``net.summary()`` the rest."""
        many, shown = len(self.taps), ", ".join(self.taps[:6]) + (", ..." if len(self.taps) > 6 else "")
        at = f"{many} companion{'' if many == 1 else 's'} at {shown}" if many else "no companions"
        return f"DeeplySupervised({type(self.trunk).__name__}, {at})"

    def summary(self) -> str:
        """Return a text on the companions: their layers, what they get of them and why, and their parameters."""
        return summary_of(self)

    def strip(self, keep: str | None = None) -> nn.Module:
        """Remove the companions and return the original model: same object, trained weights, no hooks left.

        The net has no companions afterwards; use ``copy.deepcopy(net).strip()`` to keep them.

        keep: a tap. Then return a new, smaller model that ends there: a copy of the layers up to the tap, followed by
            its companion, whose scores it returns, equal to the bit. The net itself stays as it is.
        """
        if keep is not None:
            return self.pruned(keep)
        release(self._handles, self._fast_encoders)
        self._taps, self.heads, self.fuse = {}, nn.Module().train(self.training), False
        return self.trunk

    def pruned(self, keep: str) -> Pruned:
        """Return a copy of the model that ends at a tap and returns the scores of its companion."""
        self.head(keep)
        if not self._sized:
            raise SupervisionError(
                f"strip(keep={keep!r}) before the net has run, so which layers follow is unknown; expected a net that "
                f"has run once; give example= to supervise, or call the net on a batch"
            )
        twin = copy.deepcopy(self)
        head, tap = twin.head(keep), twin._taps[keep]
        kept = getattr(head, "tail", Tail(())).layers
        later = [name for name in twin._later[keep] if not any(f"{each}.".startswith(f"{name}.") for each in kept)]
        trunk = twin.strip()
        for encoder in encoders_around(trunk, [keep]):
            encoder.use_nested_tensor = False
        return Pruned(trunk, head, tap, later)

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write weights, companions and a model card to a folder, from which ``from_pretrained`` loads them."""
        write_pretrained(make_folder(folder), *packed(self))

    @classmethod
    def from_pretrained(
        cls, folder: str | os.PathLike[str], model: nn.Module | Callable[[], nn.Module] | None = None, **hub: Any
    ) -> "DeeplySupervised":
        """Load a net that ``save_pretrained`` wrote, in evaluation mode. No code of the folder is run.

        folder: a folder, or owner/name on the Hugging Face Hub; ``hub`` are options such as ``revision`` and ``token``.
        model: your own model, which gets the weights, or its class or factory; not needed for a network of deepsup.
        """
        place = local_folder(folder, (SETTINGS, WEIGHTS), **hub)
        settings, tensors = read_pretrained(place, SHAPE, REMEDY)
        with file_named(place / SETTINGS, RunError), torch.random.fork_rng(devices=[]):
            trunk, companions = unpacked(settings, tensors, model)
            check_model(trunk, settings["num_classes"])
            net = cls(trunk, exact_names(trunk, companions), settings["num_classes"])
            return restored(net, settings, tensors)

    def save_companions(self, path: str | os.PathLike[str]) -> None:
        """Write the companions' weights alone to a safetensors file."""
        save_heads(self, Path(path))

    def load_companions(self, path: str | os.PathLike[str]) -> None:
        """Read the weights that ``save_companions`` wrote, into companions of the same sizes."""
        load_heads(self, Path(path))

    def push_to_hub(
        self, repo_id: str, *, private: bool = False, token: str | None = None, message: str = "Upload with deepsup"
    ) -> str:
        """Save and upload the net to the Hugging Face Hub as ``owner/name``; return its URL."""
        return push(self.save_pretrained, repo_id, private=private, token=token, message=message)


def release(hooks: list[RemovableHandle], encoders: list[nn.TransformerEncoder]) -> None:
    """Remove the hooks of a net from its model, and give its encoders their fast path back."""
    for hook in hooks:
        hook.remove()
    for encoder in encoders:
        encoder.use_nested_tensor = True
    hooks.clear()
    encoders.clear()


def check_shared(name: str, companion: Companion, first: Companion) -> None:
    """Raise an error for a shared companion that is given twice, with different settings."""
    other = [each.name for each in fields(companion) if getattr(companion, each.name) != getattr(first, each.name)]
    if other:
        raise SupervisionError(
            f"{name!r} and an earlier call of {place_of(name).layer!r} share one companion, and differ in "
            f"{', '.join(other)}; expected the same settings; give both the same Companion, or shared=False"
        )


def key_of(name: str, companion: Companion) -> str:
    """Return the name under which a tap's companion is registered: module names cannot contain dots."""
    return (place_of(name).layer if companion.shared else name).replace(".", "/")
