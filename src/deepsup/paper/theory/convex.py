"""Curvatures and a noise level in, a strongly convex function with known constants and noisy gradients out.

Two of them make P and Q of the paper's analysis; their sum is F. All are written in u = W - W*, so the optimum that the
analysis takes them to share is u = 0. R repetitions, d dimensions.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Convex:
    """1/2 sum_i c_i u_i^2 + bend * sum_i log cosh u_i, and gradients of it with normal noise."""

    curvatures: Array
    """[d], c: all above 0."""
    bend: float = 0.0
    """At least 0; above 0 the function is no quadratic."""
    noise: float = 1.0
    """sigma: E|g - gradient|^2 = sigma^2, the same in all directions."""

    @property
    def strength(self) -> float:
        """A lambda of strong convexity: the largest one for a quadratic, less than the largest for a bent one."""
        return float(self.curvatures.min())

    def value(self, u: Array) -> Array:
        """Return the function at u [..., d]."""
        # log cosh without overflow
        smooth = np.logaddexp(u, -u) - math.log(2)
        value: Array = (0.5 * self.curvatures * u**2 + self.bend * smooth).sum(-1)
        return value

    def gradient(self, u: Array) -> Array:
        """Return the exact gradient at u [..., d]."""
        slope = self.curvatures * u
        return slope + self.bend * np.tanh(u) if self.bend else slope

    def sample(self, u: Array, generator: np.random.Generator) -> Array:
        """Return one unbiased noisy gradient a row of u [R,d]."""
        noise = generator.standard_normal(u.shape)
        noise *= self.noise / math.sqrt(u.shape[-1])
        noise += self.gradient(u)
        return noise

    def second_moment(self, squared_radius: float) -> float:
        """Return a G^2 with E|g|^2 <= G^2 all over the ball |u|^2 <= D; for a quadratic it is the smallest one."""
        steepest = float(self.curvatures.max()) + self.bend  # |tanh u| <= |u|
        return steepest**2 * squared_radius + self.noise**2


def together(p: Convex, q: Convex, correlation: float) -> Convex:
    """Return F = P + Q, whose gradients are g_p + g_q.

    correlation: of their noise; 0 for two independent batches, 1 where one batch moves both alike.
    """
    variance = p.noise**2 + q.noise**2 + 2 * correlation * p.noise * q.noise
    return Convex(p.curvatures + q.curvatures, p.bend + q.bend, math.sqrt(variance))
