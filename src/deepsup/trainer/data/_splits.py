"""Stratified, seeded hold-outs and subsets, and the SVHN protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from deepsup.errors import DataError
from deepsup.sampling import Indices, draw, proportional, stratified
from deepsup.trainer.data._dataset import Dataset, Part

SVHN_TRAIN_HELD_OUT = 400
SVHN_EXTRA_HELD_OUT = 200


def subset(part: Part, n: int, seed: int = 0) -> Part:
    """Return ``n`` images, stratified by class, in their original order."""
    return part.take(stratified(part.strata, n, seed))


def per_class(part: Part, n: int, seed: int = 0) -> Part:
    """Return ``n`` images of every class, in their original order."""
    return part.take(draw(part.strata, _equal_shares(part, n), seed)[0])


def hold_out(data: Dataset, n: int, seed: int = 0) -> Dataset:
    """Move ``n`` training images, stratified by class, into a validation part."""
    if data.validation is not None:
        raise DataError(
            f"{data.name} has a validation part of {len(data.validation):,} images already; leave validation "
            "(--validation) at 0"
        )
    if n >= len(data.train):
        raise DataError(f"cannot hold out {n:,} of {len(data.train):,} training images; expected fewer")
    validated, trained = draw(data.train.strata, proportional(data.train.strata, n), seed)
    return replace(data, train=data.train.take(trained), validation=data.train.take(validated))


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
    fifth, rest = draw(part.strata, [max(1, count // 5) for count in counts], seed=0)
    return part.take(rest), part.take(fifth)


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
    validated, trained = [], []
    for part, n in sources:
        out, rest = draw(part.strata, _equal_shares(part, n), seed)
        validated.append((part, out))
        trained.append((part, rest))
    return replace(data, train=_join(trained), validation=_join(validated), extra=None)


def _join(pieces: list[tuple[Part, Indices]]) -> Part:
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
