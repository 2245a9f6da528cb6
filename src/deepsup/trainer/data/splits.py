"""Stratified, seeded hold-outs and subsets, and the SVHN protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from deepsup.errors import DataError
from deepsup.trainer.data.dataset import Dataset, Labels, Part

_Indices = npt.NDArray[np.intp]

SVHN_TRAIN_HELD_OUT = 400
SVHN_EXTRA_HELD_OUT = 200


def subset(part: Part, n: int, seed: int = 0) -> Part:
    """Return ``n`` images, stratified by class, in their original order."""
    return part.take(stratified(part.strata, n, seed))


def stratified(labels: Labels, n: int, seed: int = 0) -> _Indices:
    """Return the sorted indices of ``n`` random images, stratified by class."""
    return _draw(labels, _shares(labels, n), seed)[0]


def per_class(part: Part, n: int, seed: int = 0) -> Part:
    """Return ``n`` images of every class, in their original order."""
    return part.take(_draw(part.strata, _equal_shares(part, n), seed)[0])


def hold_out(data: Dataset, n: int, seed: int = 0) -> Dataset:
    """Move ``n`` training images, stratified by class, into a validation part."""
    if data.validation is not None:
        raise DataError(
            f"{data.name} has a validation part of {len(data.validation):,} images already; leave validation "
            "(--validation) at 0"
        )
    if n >= len(data.train):
        raise DataError(f"cannot hold out {n:,} of {len(data.train):,} training images; expected fewer")
    held, kept = _draw(data.train.strata, _shares(data.train.strata, n), seed)
    return replace(data, train=data.train.take(kept), validation=data.train.take(held))


def a_fifth(part: Part, classes: Sequence[str]) -> tuple[Part, Part]:
    """Return a fixed split of a part into four fifths and one fifth; both have at least one image per class."""
    counts = part.counts(len(classes)) if not part.dense else [len(part)]
    scarce = [name for name, count in zip(classes, counts, strict=False) if count < 2]
    if scarce and part.dense:
        raise DataError("one image only; expected two or more, to train on and to test on; add some")
    if scarce:
        raise DataError(
            f"class {scarce[0]!r} has one image only; expected two or more, to train on and to test on; add some, or "
            "remove the class"
        )
    held, kept = _draw(part.strata, [max(1, count // 5) for count in counts], seed=0)
    return part.take(kept), part.take(held)


def svhn_protocol(data: Dataset, seed: int = 0) -> Dataset:
    """Hold out 400 images per class of SVHN's train and 200 per class of extra; train on the rest, 598,388 images.

    Without ``extra``, hold out 400 per class of train and train on 69,257 images.
    """
    if data.validation is not None:
        raise DataError(
            f"{data.name} has a validation part of {len(data.validation):,} images already; expected SVHN as loaded"
        )
    sources = [(data.train, SVHN_TRAIN_HELD_OUT)]
    if data.extra is not None:
        sources.append((data.extra, SVHN_EXTRA_HELD_OUT))
    held, kept = [], []
    for part, n in sources:
        out, rest = _draw(part.strata, _equal_shares(part, n), seed)
        held.append((part, out))
        kept.append((part, rest))
    return replace(data, train=_join(kept), validation=_join(held), extra=None)


def _join(pieces: list[tuple[Part, _Indices]]) -> Part:
    """Join pieces of parts without copying each piece: extra alone has 1.6 GB."""
    first = pieces[0][0].images
    count = sum(len(indices) for _, indices in pieces)
    # the channels of each pixel together, as the readers do
    images = np.empty((count, *first.shape[2:], first.shape[1]), np.uint8).transpose(0, 3, 1, 2)
    labels, start = np.empty(count, np.int64), 0
    for part, indices in pieces:
        end = start + len(indices)
        images[start:end] = part.images[indices]
        labels[start:end] = part.labels[indices]
        start = end
    return Part(images, labels)


def _equal_shares(part: Part, n: int) -> list[int]:
    if not isinstance(n, int) or n < 1:
        raise DataError(f"cannot take {n} images per class; expected a whole number, 1 or more")
    counts = part.counts(0)
    scarce = [label for label, count in enumerate(counts) if count < n]
    if scarce:
        raise DataError(
            f"cannot take {n:,} images per class: class {scarce[0]} has {counts[scarce[0]]:,}; expected at most that"
        )
    return [n] * len(counts)


def _shares(labels: Labels, n: int) -> list[int]:
    """Split ``n`` over the classes by largest remainder: each share is within one of exact proportion."""
    count = len(labels)
    if not isinstance(n, int) or not 1 <= n <= count:
        raise DataError(f"cannot take {n:,} of {count:,} images; expected a whole number, 1 to {count:,}")
    exact = np.bincount(labels) * n / count
    shares = np.floor(exact).astype(int)
    largest_remainders = np.argsort(shares - exact, kind="stable")[: n - shares.sum()]
    shares[largest_remainders] += 1
    return [int(share) for share in shares]


def _draw(labels: Labels, shares: list[int], seed: int) -> tuple[_Indices, _Indices]:
    """Draw each class's share at random; return the drawn and the remaining indices, both sorted."""
    if seed < 0:
        raise DataError(f"seed {seed}; expected 0 or more")
    rng = np.random.default_rng(seed)
    drawn = np.zeros(len(labels), bool)
    for label, share in enumerate(shares):
        drawn[rng.permutation(np.flatnonzero(labels == label))[:share]] = True
    return np.flatnonzero(drawn), np.flatnonzero(~drawn)
