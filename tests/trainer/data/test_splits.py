"""Splits: stratified and seeded, nothing twice, nothing lost."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from publishers import Small

from deepsup import load_data
from deepsup.errors import DataError
from deepsup.trainer.data import Dataset, Part, hold_out, per_class, subset, svhn_protocol


def numbered(counts: list[int]) -> Part:
    """A part whose images carry their own number, with so many of each class, mixed."""
    labels = np.random.default_rng(1).permutation(np.repeat(np.arange(len(counts)), counts))
    numbers = np.arange(len(labels), dtype=np.uint32).view(np.uint8).reshape(-1, 1, 2, 2)
    return Part(numbers, labels.astype(np.int64))


def numbers(part: Part) -> list[int]:
    return [int(n) for n in np.ascontiguousarray(part.images).reshape(-1, 4).view(np.uint32)[:, 0]]


def dataset(counts: list[int], **parts: Part) -> Dataset:
    whole = numbered(counts)
    return Dataset("numbered", tuple(map(str, range(len(counts)))), whole, whole, **parts)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=2, max_size=6), st.data())
def test_a_hold_out_loses_nothing_and_keeps_proportions(counts, data):
    whole = dataset(counts)
    n = data.draw(st.integers(1, len(whole.train) - 1))
    split = hold_out(whole, n, seed=data.draw(st.integers(0, 5)))
    assert split.validation is not None
    assert len(split.validation) == n
    assert sorted(numbers(split.train) + numbers(split.validation)) == numbers(whole.train)
    for held, count in zip(split.validation.counts(len(counts)), counts, strict=True):
        assert abs(held - count * n / len(whole.train)) < 1
    for part in (split.train, split.validation):
        assert numbers(part) == sorted(numbers(part)), "the original order"
        assert all(whole.train.labels[i] == label for i, label in zip(numbers(part), part.labels, strict=True))


def test_seeds():
    whole = dataset([50, 50])
    one, again, other = (hold_out(whole, 20, seed=seed).validation for seed in (1, 1, 2))
    assert numbers(one) == numbers(again) != numbers(other)


def test_n_per_class_and_subsets():
    part = numbered([5, 9, 7])
    assert per_class(part, 5).counts(3) == [5, 5, 5]
    assert subset(part, 21).counts(3) == [5, 9, 7]
    assert sum(subset(part, 10).counts(3)) == 10


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: per_class(numbered([5, 9]), 6), "class 0 has 5"),
        (lambda: per_class(numbered([5, 9]), 0), "expected a whole number, 1 or more"),
        (lambda: subset(numbered([5, 9]), 15), "expected a whole number, 1 to 14"),
        (lambda: subset(numbered([5, 9]), 0), "expected a whole number, 1 to 14"),
        (lambda: subset(numbered([5, 9]), 3.0), "expected a whole number"),
        (lambda: per_class(numbered([5, 9]), 0.5), "expected a whole number"),
        (lambda: subset(numbered([5, 9]), 3, seed=-1), "seed -1"),
        (lambda: hold_out(dataset([5, 9]), 14), "cannot hold out 14 of 14"),
        (lambda: hold_out(hold_out(dataset([5, 9]), 3), 3), "has a validation part of 3 images already"),
        (lambda: svhn_protocol(dataset([500, 399])), "class 1 has 399"),
    ],
)
def test_what_cannot_be_split(call, word):
    with pytest.raises(DataError, match=word):
        call()


def test_svhn_protocol_with_extra():
    train, extra = numbered([450, 401]), numbered([200, 333])
    extra.images[:, 0, 1, 1] = 1  # so that no number occurs twice
    split = svhn_protocol(Dataset("svhn", ("0", "1"), train, train, extra=extra))
    assert split.validation is not None
    assert split.validation.counts(2) == [600, 600]
    assert split.train.counts(2) == [50, 1 + 133]
    assert split.extra is None
    assert sorted(numbers(split.train) + numbers(split.validation)) == sorted(numbers(train) + numbers(extra))


def test_svhn_protocol_without_extra():
    train = numbered([450, 401])
    split = svhn_protocol(Dataset("svhn", ("0", "1"), train, train))
    assert split.validation is not None
    assert (split.validation.counts(2), split.train.counts(2)) == ([400, 400], [50, 1])


def test_svhn_extra_is_loaded_when_asked(small: type[Small], data_root):
    small("svhn").write(data_root)
    assert load_data("svhn", download=False).extra is None
    assert len(load_data("svhn", extra=True, download=False).extra) == 10
