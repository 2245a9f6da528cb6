"""lambda, G^2, D and a time T in, what the paper prints about E|W_T - W*|^2, and what can be proved, out.

Let e_t = E|W_t - W*|^2, and let G_F bound the gradients of the function that is descended: E|g|^2 <= G_F^2. For
F = P + Q, where g_p and g_q each obey G, that is G_F^2 <= 4 G^2 (|a + b|^2 <= 2|a|^2 + 2|b|^2), and just 4 G^2 where
both always agree. One step is e_{t+1} <= (1 - 2 lambda eta_t) e_t + eta_t^2 G_F^2; all "corrected" ones follow.
"""

from collections.abc import Sequence

import numpy as np

from deepsup.paper.theory.convex import Array
from deepsup.paper.theory.descent import Rate

EULER = 0.578  # as printed; it is 0.5772
SUM_FACTOR = 4.0
"""G_F^2 over G^2 at worst."""


def lemma2(time: int, strength: float, moment: float) -> float:
    """Return the printed bound for the step 1/(lambda t): 12 G^2 / (lambda^2 T)."""
    return 12 * moment / (strength**2 * time)


def corrected_lemma2(time: int, strength: float, moment: float) -> float:
    """Return G_F^2 / (lambda^2 T), twice that at T = 2; ``moment`` is G_F^2.

    e_1 <= G_F^2 / lambda^2, since lambda |u| <= |gradient|. Then e_2 <= G_F^2 / lambda^2 - e_1 and
    e_3 <= G_F^2 / (4 lambda^2); from there (1 - 2/t) / t + 1 / t^2 = (t - 1) / t^2 <= 1 / (t + 1) carries it on.
    """
    return (2 if time == 2 else 1) * moment / (strength**2 * time)


def lemma3(time: int, strength: float, moment: float, squared_radius: float) -> float:
    """Return the printed bound for the step 1/t, T >= 2."""
    start = np.exp(-2 * strength * (np.log(time) + EULER)) * squared_radius
    return float(start + (time - 1) * np.exp(-2 * strength * np.log(time - 1)) * moment)


def corrected_lemma3(time: int, strength: float, moment: float, squared_radius: float) -> float:
    """Return T^(-2 lambda) (D + 4 G_F^2 sum_{s=2}^T s^(2 lambda - 2)); ``moment`` is G_F^2.

    From 1 - x <= e^-x, from 1/(t+1) + ... + 1/(T-1) >= ln(T / (t+1)), and from 1/t^2 <= 4/(t+1)^2. It falls as
    T^(-2 lambda) for lambda < 1/2, as ln(T)/T for lambda = 1/2, and as 1/T beyond.
    """
    s = np.arange(2, time + 1, dtype=float)
    # scaled by T inside the sum: T^(2 lambda) alone may overflow
    shrunk = ((s / time) ** (2 * strength) / s**2).sum()
    return float(time ** (-2 * strength) * squared_radius + 4 * moment * shrunk)


def recursion(times: Sequence[int], strength: float, moment: float, squared_radius: float, rate: Rate) -> Array:
    """Return the one-step inequality run from e_1 = D, at each of the rising ``times``; ``moment`` is G_F^2.

    Where 1 - 2 lambda eta_t is negative, e_t = 0 is the worst case; and no iterate leaves the ball.
    """
    bound, before, sizes = squared_radius, 1, []
    for time in times:
        for t in range(before, time):
            kept = max(0.0, 1 - 2 * strength * rate(t))
            bound = min(squared_radius, kept * bound + rate(t) ** 2 * moment)
        sizes.append(bound)
        before = time
    return np.array(sizes)


def theorem1_known(lambda1: float, lambda2: float) -> float:
    """Return the printed order of error(P) / error(F) for the step 1/(lambda t)."""
    return 1 + (lambda2 / lambda1) ** 2


def corrected_theorem1_known(lambda1: float, lambda2: float, noise_p: float, noise_f: float) -> float:
    """Return error(P) / error(F) of round quadratics in the long run: W_T - W* is a mean of the noise over lambda."""
    return (1 + lambda2 / lambda1) ** 2 * (noise_p / noise_f) ** 2


def theorem1_plain(_lambda1: float, lambda2: float) -> float:
    """Return the printed exponent of T in error(P) / error(F) for the step 1/t."""
    return lambda2


def corrected_theorem1_plain(lambda1: float, lambda2: float) -> float:
    """Return the exponent for quadratics of smallest curvature lambda: errors fall as T^-min(1, 2 lambda)."""
    return min(1.0, 2 * (lambda1 + lambda2)) - min(1.0, 2 * lambda1)
