"""What a companion does to gradients: how far its own weights move, and how it joins the gradient of its layer."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed


class Slowed(torch.autograd.Function):
    """v -> w = rate v; the gradient of w goes to v unchanged, so that every optimizer moves w at ``rate`` its pace.

    A plain product would multiply the gradient too: w would move at rate^2 under SGD and at rate under Adam.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(v: Tensor, rate: float) -> Tensor:
        """Return w."""
        return v * rate

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        """Keep nothing; torch.func needs this."""

    @staticmethod
    def backward(_ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Hand the gradient of w to v."""
        return gradient, None


class Joined(torch.autograd.Function):
    """Features -> the same features twice: for the layers above, and for the companion.

    Backward, the gradients of the two are added, and the sum is shortened to the length of the longer one if it is to
    be ``bounded`` (L2 norms over the batch). Then the layers below never get a longer gradient than from the layers
    above or from the companion alone.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(features: Tensor, join: "Join") -> tuple[Tensor, Tensor]:
        """Return the features twice; not as views, which could not be changed in place later."""
        return features.clone() if join.copy else features.detach(), features.detach()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, "Join"], output: tuple[Tensor, Tensor]) -> None:  # noqa: ARG004
        """Keep how to join."""
        ctx.join = inputs[1]

    @staticmethod
    def backward(ctx: Any, above: Tensor, companion: Tensor) -> tuple[Tensor, None]:
        """Add the gradients."""
        join: Join = ctx.join
        if join.shares is not None:
            join.shares.note(join.tap, above, companion)
        return (bounded_sum(above, companion) if join.bounded else above + companion), None


class Shares:
    """Of the gradient that reaches each tapped layer's output, the share that comes from companions.

    At a tap the companion's own share is |g_m| / (|g_m| + |g|), with g_m its gradient and g that of the layers above;
    of g, companions further up gave their share already. A backward pass meets the last tap first.
    """

    def __init__(self) -> None:
        self.by_tap: dict[str, Tensor] = {}
        self._above: Tensor | float = 0.0

    @torch.no_grad()
    def note(self, tap: str, above: Tensor, companion: Tensor) -> None:
        """Take the two gradients that meet at a tap."""
        upper, own = lengths(above, companion)
        whole = upper + own
        share = torch.where(whole > 0, (own + self._above * upper) / torch.where(whole > 0, whole, 1.0), 0.0)
        self.by_tap[tap] = self._above = share


class Join(NamedTuple):
    """How a companion's gradient joins that of the layers above."""

    tap: str
    bounded: bool
    copy: bool
    """Whether a later layer changes the features in place."""
    shares: Shares | None
    """What takes note of the gradients, if anything does."""


def slowed(v: Tensor, rate: float) -> Tensor:
    """Return w = rate v, at whose gradient v moves."""
    if rate == 1:
        return v
    if not (torch.is_grad_enabled() and v.requires_grad):
        return v * rate
    w: Tensor = Slowed.apply(v, rate)  # type: ignore[no-untyped-call] # torch leaves it untyped
    return w


def joined(features: Tensor, join: Join) -> tuple[Tensor, Tensor]:
    """Return features for the layers above and for the companion, whose gradients are joined."""
    both: tuple[Tensor, Tensor] = Joined.apply(features, join)  # type: ignore[no-untyped-call] # torch leaves it untyped
    return both


def bounded_sum(a: Tensor, b: Tensor) -> Tensor:
    """Return a + b, not longer than the longer of the two.

    >>> bounded_sum(torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0]))
    tensor([2.4000, 3.2000])
    """
    total = a + b
    one, other, both = lengths(a, b, total)
    longest = torch.maximum(one, other)
    factor = torch.where(both > longest, longest / both, torch.ones_like(both)).to(total.dtype)
    # in place, since memory is what this costs; but a gradient of the gradient needs the sum
    return total * factor if torch.is_grad_enabled() else total.mul_(factor)


def lengths(*gradients: Tensor) -> tuple[Tensor, ...]:
    """Return L2 norms over the batch; in distributed training over that of all processes, so that they agree.

    In at least single precision: in half precision squares could overflow.
    """
    exact = torch.promote_types(gradients[0].dtype, torch.float32)
    norms = torch.stack([torch.linalg.vector_norm(each, dtype=exact) for each in gradients])
    if distributed.is_available() and distributed.is_initialized():
        squares = norms.square()
        distributed.all_reduce(squares)
        norms = squares.sqrt()
    return norms.unbind()
