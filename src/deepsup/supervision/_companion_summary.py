"""A supervised net -> a text that says what its companions are, and why."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from deepsup.errors import SupervisionError
from deepsup.supervision._companions import MOST_CLASSES, Head

if TYPE_CHECKING:
    from deepsup.supervision._attach import DeeplySupervised

SHOWN = 6  # so many companions have a line each


def summary_of(net: DeeplySupervised) -> str:
    """Return a line for the model, one per companion, and one on their learning rate and gradient."""
    if net.taps and not net.shapes:
        raise SupervisionError(
            "summary() before the net has run, so the sizes of its companions are unknown; expected a net that has run "
            "once; give example= to supervise, or call the net on a batch"
        )
    trunk, heads = (sum(p.numel() for p in each.parameters()) for each in (net.trunk, net.heads))
    share = f"{heads / max(trunk, 1):.0%}" if heads <= trunk else f"{heads / max(trunk, 1):.1f} times the model's"
    norms = "with norm layers" if net.normalized else "no norm layers"
    many = "companion" if len(net.taps) == 1 else "companions"
    lines = [
        f"{type(net.trunk).__name__}: {trunk:,} parameters, {norms}; {len(net.taps)} {many} with {heads:,} "
        f"parameters ({share}), gone after strip()"
    ]
    shown = net.taps if len(net.taps) <= SHOWN else (*net.taps[: SHOWN - 1], net.taps[-1])
    width = max(map(len, shown), default=0)
    for name in shown:
        shape, weight = "x".join(map(str, net.shapes[name])), net.loss_weights.get(name)
        given = "" if weight is None else f", loss weight {weight:g}"
        lines.append(f"  {name:{width}}  {shape}, {facts_of(name, net)}{given}")
    if len(net.taps) > SHOWN:
        lines.insert(-1, f"  ... {len(net.taps) - SHOWN} more")
    companions = [net.head(name).companion for name in net.taps if isinstance(net.head(name), Head)]
    rates = {f"{each.rate:g}" for each in companions}
    learn = f"the companions learn at {' or '.join(sorted(rates))} times the learning rate; " if rates else ""
    joins = {net.head(name).companion.join for name in net.taps if not net.head(name).companion.detach}
    if joins:
        lines.append(f"  {learn}their gradients join the model's {' or '.join(sorted(JOINS[each] for each in joins))}")
    return "\n".join(lines)


JOINS = {"bounded": "without making them longer (join='bounded')", "sum": "by addition (join='sum')"}


def facts_of(name: str, net: DeeplySupervised) -> str:
    """Say what the companion of a tap is."""
    head = net.head(name)
    watches = ", watches only" if head.companion.detach else ""
    count = sum(p.numel() for p in head.parameters())
    if isinstance(head, Head):
        return f"{pooling(head, name, net)}: {count:,} parameters{watches}"
    tail = getattr(head, "tail", None)
    if tail is None:
        return f"a head of your own: {count:,} parameters{watches}"
    many = f" (more than {MOST_CLASSES:,} classes)" if head.companion.head == "auto" else ""
    return f"through the model's own {tail}{many}: no parameters, {amount(head.memory)} more per sample{watches}"


def amount(size: int) -> str:
    """Return a number of bytes in words.

    >>> amount(2_500_000)
    '2.5 MB'
    """
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


def pooling(head: Head, name: str, net: DeeplySupervised) -> str:
    """Say what happens to the output of a layer, and why."""
    pool: Any = head.companion.pool
    shape = net.shapes[name]
    if head.dense:
        return "scored at every token" if head.tokens else "scored at every position"
    if len(shape) == 1 or pool == "none":
        return "as it is"
    if head.grid is None:
        return {"avg": "averaged", "max": "largest values"}[str(pool)] + " over all positions"
    positions = shape[:-1] if head.layout == "channels_last" else shape[1:]
    size = "x".join(map(str, head.grid))
    if head.grid == tuple(positions):
        return "as it is (the model has no norm layers)" if pool == "auto" and not net.normalized else "as it is"
    wanted = tuple(min(4, each) for each in positions) if net.normalized else tuple(positions)
    why = "" if pool != "auto" else " (to stay small)" if prod(head.grid) < prod(wanted) else " (norm layers)"
    return f"averaged to {size}{why}"
