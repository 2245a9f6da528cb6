"""Settings of an objective that depend on its net: the supervised net itself, and one setting per companion."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from deepsup.errors import ObjectiveError, nearest
from deepsup.objective._presets import finest_first
from deepsup.supervision import DeeplySupervised

ALPHA, ALPHA_OF_SEQUENCES = 0.5, 0.1


def supervised(net: object) -> DeeplySupervised:
    """Return the supervised net inside the wrappers of DDP and torch.compile."""
    inner: Any = net
    while not isinstance(inner, DeeplySupervised):
        around, inner = inner, getattr(inner, "module", None)  # not with "or": a compiled net has no truth value
        inner = getattr(around, "_orig_mod", None) if inner is None else inner
        if inner is None:
            raise ObjectiveError(
                f"net is a {type(net).__name__} without companions; expected what supervise(model, ...) returns"
            )
    return inner


def default_alpha(net: DeeplySupervised) -> dict[str, float]:
    """Return companion -> alpha: less for sequences [B,N,D], which gain less as their layers add up (dev/LOG.md)."""
    return {name: ALPHA_OF_SEQUENCES if net.gives_sequence(name) else ALPHA for name in net.outputs}


def per_tap(what: str, given: Any, taps: tuple[str, ...]) -> dict[str, Any]:
    """Return tap name -> setting: one for all, one per tap in their order, or a mapping that names each tap."""
    if isinstance(given, list | tuple):
        if len(given) != len(taps):
            raise ObjectiveError(f"{what} has {len(given)} values for {len(taps)} taps ({', '.join(taps)})")
        return dict(zip(taps, given, strict=True))
    if not isinstance(given, Mapping):
        return dict.fromkeys(taps, given)
    for name in given:
        if name not in taps:
            raise ObjectiveError(f"{what} names {name!r}, which is not tapped; {nearest(str(name), taps)}")
    missing = [name for name in taps if name not in given]
    if missing:
        raise ObjectiveError(f"{what} has no value for {', '.join(missing)}; expected one for each tap, or one number")
    return dict(given)


def by_resolution(net: nn.Module, weights: Callable[[int], list[float]]) -> dict[str, float]:
    """Return companion -> its weight relative to the output's, of weights that go by resolution."""
    inner = supervised(net)
    names = finest_first(inner.outputs, inner.sizes)
    first, *others = weights(1 + len(names))
    return dict(zip(names, [each / first for each in others], strict=True))
