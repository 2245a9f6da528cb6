"""Draw samples at random, so many of each class, always the same ones for one seed. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from deepsup.errors import DataError

Indices = npt.NDArray[np.intp]
Labels = npt.NDArray[Any]
"""[N], class numbers."""


def stratified(labels: Labels, n: int, seed: int = 0) -> Indices:
    """Return the sorted indices of ``n`` random samples, stratified by class."""
    return draw(labels, proportional(labels, n), seed)[0]


def proportional(labels: Labels, n: int) -> list[int]:
    """Split ``n`` over the classes by largest remainder: each share is within one of exact proportion."""
    count = len(labels)
    if not isinstance(n, int) or not 1 <= n <= count:
        raise DataError(f"cannot take {n:,} of {count:,} images; expected a whole number, 1 to {count:,}")
    exact = np.bincount(labels) * n / count
    shares = np.floor(exact).astype(int)
    largest_remainders = np.argsort(shares - exact, kind="stable")[: n - shares.sum()]
    shares[largest_remainders] += 1
    return [int(share) for share in shares]


def draw(labels: Labels, shares: Sequence[int], seed: int) -> tuple[Indices, Indices]:
    """Draw each class's share at random; return the drawn and the remaining indices, both sorted."""
    if seed < 0:
        raise DataError(f"seed {seed}; expected 0 or more")
    rng = np.random.default_rng(seed)
    drawn = np.zeros(len(labels), bool)
    for label, share in enumerate(shares):
        drawn[rng.permutation(np.flatnonzero(labels == label))[:share]] = True
    return np.flatnonzero(drawn), np.flatnonzero(~drawn)
