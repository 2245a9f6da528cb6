"""The real sets, where DEEPSUP_DATA has them: counts by part and class, shapes, channel means as published."""

import os

import numpy as np
import pytest

from deepsup import load_data
from deepsup.trainer.data import KNOWN, channel_means, check, is_present, svhn_protocol

REAL = os.environ.get("DEEPSUP_DATA")

MNIST_TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
SVHN_TRAIN = [4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659]
SVHN_TEST = [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595]
PUBLISHED = {
    "mnist": ((1, 28, 28), MNIST_TRAIN, MNIST_TEST, (0.1307,), 4),
    "fashion-mnist": ((1, 28, 28), [6000] * 10, [1000] * 10, (0.2860,), 4),
    "cifar10": ((3, 32, 32), [5000] * 10, [1000] * 10, (0.49140, 0.48216, 0.44653), 5),
    "cifar100": ((3, 32, 32), [500] * 100, [100] * 100, (0.50708, 0.48655, 0.44092), 5),
    "svhn": ((3, 32, 32), SVHN_TRAIN, SVHN_TEST, (0.43768, 0.44377, 0.47280), 5),
}


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The name of a set that is there."""
    name: str = request.param
    if REAL:
        monkeypatch.setenv("DEEPSUP_DATA", REAL)
    if not REAL or not is_present(KNOWN[name]):
        pytest.skip(f"needs {name} under DEEPSUP_DATA")
    return name


@pytest.mark.parametrize("real", sorted(PUBLISHED), indirect=True)
def test_it_is_what_was_published(real):
    shape, train, test, means, digits = PUBLISHED[real]
    data = load_data(real, download=False)
    assert data.shape == shape
    assert data.train.counts(len(data.classes)) == train
    assert data.test.counts(len(data.classes)) == test
    assert [round(mean, digits) for mean in channel_means(data.train.images)] == list(means)


@pytest.mark.parametrize("real", ["cifar10"], indirect=True)
def test_cifar10_is_exact_and_in_its_order(real):
    data = load_data(real, download=False)
    names = [data.classes[label] for label in data.train.labels[:5]]
    assert names == ["frog", "truck", "truck", "deer", "automobile"]
    # mean and deviation to the digits that Keras and torchvision users quote
    for channel, published in enumerate([0.24703223, 0.24348513, 0.26158784]):
        counts = np.bincount(data.train.images[:, channel].ravel(), minlength=256)
        mean = np.average(np.arange(256), weights=counts)
        variance = np.average((np.arange(256) - mean) ** 2, weights=counts)
        assert abs(variance**0.5 / 255 - published) < 5e-8


@pytest.mark.parametrize("real", ["mnist", "cifar10"], indirect=True)
def test_check_says_exact(real):
    report = check(real)
    assert report.exact
    assert report.notes == []


@pytest.mark.parametrize("real", ["svhn"], indirect=True)
def test_svhn_protocol_without_extra(real):
    split = svhn_protocol(load_data(real, download=False))
    assert split.validation is not None
    assert (len(split.train), len(split.validation), len(split.test)) == (69_257, 4_000, 26_032)
