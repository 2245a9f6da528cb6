"""Some of the classes of a named set: the same images, labels from 0."""

import numpy as np
import pytest

from deepsup import load_data
from deepsup.errors import DataError
from deepsup.trainer.data import HALVES, KNOWN, Dataset, Part, get

FIRST, LAST = HALVES.values()


def whole() -> Dataset:
    """Three images per class of CIFAR-100, in a random order; each image's pixels are its label."""
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(100), 3))
    images = np.broadcast_to(labels[:, None, None, None], (300, 3, 4, 4)).astype(np.uint8)
    return Dataset("cifar100", KNOWN["cifar100"].classes, Part(images, labels), Part(images[:150], labels[:150]))


def test_the_halves_are_disjoint_and_keep_images_and_order() -> None:
    data = whole()
    for half, start in ((FIRST, 0), (LAST, 50)):
        taken = half.take(data)
        expected = [label for label in data.train.labels if start <= label < start + 50]
        assert taken.train.images[:, 0, 0, 0].tolist() == expected
        assert (taken.train.labels + start).tolist() == expected
        assert taken.classes == data.classes[start : start + 50]
        assert taken.name == half.name
    assert FIRST.classes + LAST.classes == data.classes


def test_the_stated_counts() -> None:
    assert FIRST.counts == LAST.counts == {"train": 25_000, "test": 5_000}
    assert LAST.shape == (3, 32, 32)


def test_loading_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepsup.trainer.data._load.load_known", lambda *_, **__: (whole(), None))
    data = load_data("cifar100-last50")
    assert (len(data.train), data.train.labels.max(), data.classes[0]) == (150, 49, KNOWN["cifar100"].classes[50])


def test_bad_input() -> None:
    with pytest.raises(DataError, match="image_size=16 for cifar100-last50, which has its own"):
        load_data("cifar100-last50", image_size=16)
    with pytest.raises(DataError, match="did you mean 'cifar100-last50'"):
        load_data("cifar100-last5")
    with pytest.raises(DataError, match="cifar100-first50 has no part 'extra'"):
        get("cifar100-first50", extra=True)
