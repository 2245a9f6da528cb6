"""Check a model, its taps and a traced forward pass before companions are attached."""

from collections.abc import Iterable, Mapping
from numbers import Integral

import torch
from torch import Tensor, nn

from deepsup.errors import SupervisionError
from deepsup.supervision._companions import GRID, Companion
from deepsup.supervision._fusion import FUSE
from deepsup.supervision._scores import shares_memory
from deepsup.supervision._taps import Tap, one_tensor, part_of, place_of, times
from deepsup.supervision._trace import Call, Trace, fast_encoders

SCORING_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def check_model(model: nn.Module, num_classes: int) -> None:
    """Raise an error if the model cannot be supervised."""
    if not isinstance(model, nn.Module):
        raise SupervisionError(f"model is a {type(model).__name__}; expected a torch.nn.Module")
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel | torch.jit.ScriptModule) or hasattr(
        model, "_orig_mod"
    ):
        raise SupervisionError(
            f"model is a {type(model).__name__}; expected the model inside it; supervise first, then compile or "
            f"distribute the supervised net"
        )
    if not isinstance(num_classes, Integral) or isinstance(num_classes, bool) or num_classes < 1:
        raise SupervisionError(f"num_classes={num_classes!r}; expected a whole number of at least 1")


def checked_call(tap: Tap, trunk: nn.Module, seen: Trace) -> tuple[Call, Tensor]:
    """Return the only call of a tapped layer and its features; raise an error if it cannot be tapped."""
    place = place_of(tap.name)
    layer = trunk.get_submodule(place.layer)
    calls = [call for call in seen.calls if call.layer is layer]
    if tap.call:
        if len(calls) < tap.call:
            raise SupervisionError(
                f"layer {place.layer!r} ran {times(len(calls))}, the tap is {tap.name!r}; expected a call that there "
                f"is; give at=['{place.layer}#*'] for all"
            )
        tap.calls, calls = len(calls), [calls[tap.call - 1]]
    parts = [part_of(tap.name, call.output, tap.select) for call in calls]
    features = tap.at_step(one_tensor(tap.name, parts, seen.scores.shape[0], tap.batch_at))
    hidden = any(call is calls[0] for call in seen.hidden_calls)
    if not hidden or shares_memory(features, seen.scores):
        raise SupervisionError(
            f"layer {tap.name!r} returns the output itself or runs after it, so it is not a hidden layer; expected one "
            f"before the output; the output already has its own loss"
        )
    if seen.tokens and (features.ndim != 3 or features.shape[:2] != seen.scores.shape[:2]):
        raise SupervisionError(
            f"layer {tap.name!r} returns {list(features.shape)} in a model that scores every token, "
            f"{list(seen.scores.shape)}; expected one vector per scored token, [B,L,D]; tap a layer that returns them"
        )
    if seen.dense and features.ndim != seen.scores.ndim:
        raise SupervisionError(
            f"layer {tap.name!r} returns {list(features.shape)} in a model that scores every position, "
            f"{list(seen.scores.shape)}; expected a map with as many dimensions; tap a layer that returns one"
        )
    return calls[0], features


def check_dense(seen: Trace, trunk: nn.Module, companions: Mapping[str, Companion], fuse: bool) -> None:
    """Raise an error for settings that fit only a model with one set of scores per image, or only a dense one."""
    if fuse and not seen.dense:
        raise SupervisionError(
            f"fuse=True for {type(trunk).__name__}, which returns scores {list(seen.scores.shape)}; expected a dense "
            f"model, [B,K,H,W]; leave fuse= out"
        )
    if fuse and FUSE in companions:
        raise SupervisionError(f"fuse=True and a tap called {FUSE!r}; expected another layer; tap one inside it")
    for name, companion in companions.items() if seen.dense else ():
        if companion.pool not in ("none", "auto", GRID):
            raise SupervisionError(
                f"pool={companion.pool!r} at {name!r} in a model that scores every position, "
                f"{list(seen.scores.shape)}; expected a companion that keeps positions; leave pool= out"
            )


def encoders_around(trunk: nn.Module, names: Iterable[str]) -> list[nn.TransformerEncoder]:
    """Return the encoders with a tapped layer inside that use nested tensors for padding masks."""
    tapped = {trunk.get_submodule(place_of(name).layer) for name in names}
    return [encoder for encoder in fast_encoders(trunk) if not tapped.isdisjoint([*encoder.modules()][1:])]


def norm_layers(seen: Trace) -> list[str]:
    """Return the names of the norm layers that ran: BatchNorm, LayerNorm, RMSNorm and the like, by their type's name.

    Local response normalization does not keep the scale of a signal and is none.
    """
    kinds = {call.name: type(call.layer).__name__ for call in seen.calls}
    return [name for name, kind in kinds.items() if "norm" in kind.lower() and "Response" not in kind]


def last_scoring_layer(seen: Trace, num_classes: int) -> str | None:
    """Return the name of the last layer called that has weights, if it maps features to K scores."""
    for call in reversed(seen.calls):
        if isinstance(call.layer, SCORING_LAYERS):
            return call.name if call.layer.weight.shape[0] == num_classes else None
        if any(True for _ in call.layer.parameters(recurse=False)):
            return None
    return None
