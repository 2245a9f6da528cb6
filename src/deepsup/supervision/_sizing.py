"""A traced forward pass -> the sizes of a net's companions, and what the net knows of its model.

B batch, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from deepsup.errors import SupervisionError
from deepsup.supervision._companions import Companion, Head, largest_grid
from deepsup.supervision._inspection import check_dense, checked_call, last_scoring_layer, norm_layers
from deepsup.supervision._layout import layout_of
from deepsup.supervision._prune import later_layers
from deepsup.supervision._taps import part_of, place_of

if TYPE_CHECKING:
    from deepsup.supervision._attach import DeeplySupervised
    from deepsup.supervision._trace import Call, Trace


def every_call(companions: Mapping[str, Companion], model: nn.Module, seen: Trace | None) -> dict[str, Companion]:
    """Return tap name -> companion, with one tap per call of each layer that runs several times.

    ``name#*`` stands for all calls, or for all time steps of a recurrent layer.
    """
    taps: dict[str, Companion] = {}
    for name, companion in companions.items():
        layer = name.removesuffix("#*")
        if seen is None and layer != name:
            raise SupervisionError(f"at={name!r} without example=; expected a batch to count on; give example=")
        count = number_of(layer, companion, model, seen, steps=layer != name) if seen is not None else 1
        names = [f"{layer}#{call}" for call in range(1, count + 1)] if count > 1 or layer != name else [name]
        for each in names:
            if each in taps:
                raise SupervisionError(f"at names {each!r} more than once; expected each layer once")
            taps[each] = companion
    return taps


def number_of(name: str, companion: Companion, model: nn.Module, seen: Trace, steps: bool) -> int:
    """Return how often a layer runs before the scores exist, or how many time steps a recurrent layer has."""
    place = place_of(name)
    if place.call:
        return 1
    layer = model.get_submodule(place.layer)
    calls = [call for call in seen.hidden_calls if call.layer is layer]
    if steps and len(calls) == 1 and isinstance(layer, nn.RNNBase):
        output = part_of(name, calls[0].output, 0 if companion.select is None else companion.select)
        return int(output.shape[1 if layer.batch_first else 0]) if isinstance(output, Tensor) else 1
    return max(1, len(calls))


def size_companions(net: DeeplySupervised, seen: Trace) -> None:
    """Check every tap of a net, and give its companions their sizes; raise an error if a tap is invalid."""
    given = {name: net.head(name).companion for name in net.taps}
    check_dense(seen, net.trunk, given, net.fuse)
    calls = {name: checked_call(tap, net.trunk, seen) for name, tap in net._taps.items()}
    heads = heads_of(net, calls)
    for head, name in heads.items():
        call, features = calls[name]
        head.dense, head.tokens = seen.dense or seen.tokens, seen.tokens
        if not isinstance(head, Head):
            head.build(call, features, net.trunk, seen)
        elif seen.tokens:
            head.layout = "channels_last"
        elif head.needs_layout(features):
            head.layout = layout_of(call, features, seen)
    net.normalized = bool(norm_layers(seen))
    linear = [(head, calls[name][1]) for head, name in heads.items() if isinstance(head, Head)]
    side = largest_grid(linear, sum(p.numel() for p in net.trunk.parameters()), net.normalized)
    for head, features in linear:
        head.size(features, side)
    for name, (call, features) in calls.items():
        net._taps[name].clone = call.changed_in_place
        net.shapes[name] = tuple(features.shape[1:])
        if seen.dense:
            net.sizes[name] = tuple(net.head(name).maps(features).shape[2:])
        net._later[name] = later_layers(net.trunk, call, seen)
    net._depth = sorted(calls, key=lambda name: seen.calls.index(calls[name][0]))
    net._output_layer = last_scoring_layer(seen, net.num_classes)
    net.dense, net.tokens = seen.dense or seen.tokens, seen.tokens
    net.full_size = any(isinstance(x, Tensor) and x.shape[2:] == seen.scores.shape[2:] for x in seen.inputs)


def heads_of(net: DeeplySupervised, calls: Mapping[str, tuple[Call, Tensor]]) -> dict[Any, str]:
    """Return each companion with the name of its first tap; its other taps must give features of the same shape."""
    firsts: dict[Any, str] = {}
    for name, (_, features) in calls.items():
        first = firsts.setdefault(net.head(name), name)
        like = calls[first][1]
        if like.shape[1:] != features.shape[1:]:
            raise SupervisionError(
                f"{first!r} returns {list(like.shape)} and {name!r} {list(features.shape)}, with one companion for "
                f"both; expected one shape; use Companion(shared=False)"
            )
    return firsts


def note_inputs(net: DeeplySupervised, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Keep shape and type of the inputs, if they are positional tensors."""
    if not kwargs and all(isinstance(each, Tensor) for each in args):
        net.inputs = tuple((each.shape, each.dtype) for each in args)
