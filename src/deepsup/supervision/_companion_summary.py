"""A supervised net -> a text that says what its companions are, and why."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from deepsup.errors import SupervisionError

if TYPE_CHECKING:
    from deepsup.supervision._attach import DeeplySupervised
    from deepsup.supervision._companions import Head


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
    lines = [
        f"{type(net.trunk).__name__}: {trunk:,} parameters, {norms}; {len(net.taps)} companions with {heads:,} "
        f"parameters ({share}), gone after strip()"
    ]
    width = max(map(len, net.taps), default=0)
    for name in net.taps:
        head, shape = net.head(name), "x".join(map(str, net.shapes[name]))
        count = sum(p.numel() for p in head.parameters())
        lines.append(f"  {name:{width}}  {shape}, {pooling(head, net)}: {count:,} parameters")
    rates = {f"{net.head(name).companion.rate:g}" for name in net.taps}
    if rates:
        lines.append(
            f"  the companions learn at {' or '.join(sorted(rates))} times the learning rate; their gradients join the "
            f"model's {' or '.join(sorted({JOINS[net.head(name).companion.join] for name in net.taps}))}"
        )
    return "\n".join(lines)


JOINS = {"bounded": "without making them longer (join='bounded')", "sum": "by addition (join='sum')"}


def pooling(head: Head, net: DeeplySupervised) -> str:
    """Say what happens to the output of a layer, and why."""
    pool, shape = head.companion.pool, net.shapes[head.tap]
    if head.dense:
        return "scored at every position"
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
