"""A convex function and a step rule in, the squared distance of SGD's iterates to the optimum out, many runs at once.

    W_{t+1} = Pi(W_t - eta_t g_t),   Pi the projection onto the ball of squared radius D around W*.

R repetitions, d dimensions, u = W - W*.
"""

from collections.abc import Callable, Sequence

import numpy as np

from deepsup.paper.theory.convex import Array, Convex

Rate = Callable[[int], float]


def known_strength(strength: float) -> Rate:
    """Return the first step rule: 1 / (lambda t)."""
    return lambda t: 1 / (strength * t)


def plain(t: int) -> float:
    """Return the second step rule: 1 / t, for a lambda that is not known."""
    return 1 / t


def descend(
    function: Convex,
    rate: Rate,
    times: Sequence[int],
    repetitions: int,
    generator: np.random.Generator,
    *,
    start: float = 1.0,
    squared_radius: float = 1.0,
    target: Array | float = 0.0,
) -> Array:
    """Return [len(times), R]: |W_T - W*|^2 at each of the rising ``times``; W_1 is the start.

    start: |W_1 - W*|^2, along the first axis. target: measure from this u instead of the optimum.
    """
    u = np.zeros((repetitions, len(function.curvatures)))
    u[:, 0] = np.sqrt(start)
    errors = np.empty((len(times), repetitions))
    before = 1
    for row, time in enumerate(times):
        for t in range(before, time):
            u = project(u - rate(t) * function.sample(u, generator), squared_radius)
        errors[row] = ((u - target) ** 2).sum(1)
        before = time
    return errors


def project(u: Array, squared_radius: float) -> Array:
    """Return the nearest points of the ball |u|^2 <= D to the rows of u [R,d]."""
    squares = np.einsum("rd,rd->r", u, u)
    outside = squares > squared_radius
    if outside.any():
        u[outside] *= np.sqrt(squared_radius / squares[outside])[:, None]
    return u
