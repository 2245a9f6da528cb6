"""Vectors and images in every layout, and what is refused: shapes, labels, pixels, networks, settings."""

# ruff: noqa: N803 - X is scikit-learn's name

from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from torch import nn

from deepsup import DeeplySupervisedClassifier
from deepsup.errors import ConfigError, DataError, DeepsupError, NetworkError, SupervisionError
from deepsup.trainer.estimator._samples import channels_lie_last, fit_samples

RANDOM = np.random.default_rng(0)
GREY = RANDOM.integers(0, 256, (24, 8, 8), dtype=np.uint8)
COLOUR = RANDOM.integers(0, 256, (24, 8, 10, 3), dtype=np.uint8)
LABELS = np.arange(24) % 3


def fitted(X: np.ndarray, y: Any = LABELS, **settings: Any) -> DeeplySupervisedClassifier:
    return DeeplySupervisedClassifier(**{"epochs": 1, "random_state": 0, **settings}).fit(X, y)


@pytest.mark.parametrize(
    ("X", "shape"),
    [
        (GREY, (1, 8, 8)),
        (COLOUR, (3, 8, 10)),
        (COLOUR.transpose(0, 3, 1, 2), (3, 8, 10)),
        (GREY.reshape(24, 64), (64,)),
        (torch.from_numpy(GREY), (1, 8, 8)),
        (GREY.tolist(), (1, 8, 8)),
        (np.broadcast_to(GREY[:, :, None], (24, 8, 5, 8)), (5, 8, 8)),
    ],
    ids=["grey", "channels last", "channels first", "vectors", "tensor", "lists", "five channels"],
)
def test_what_the_net_sees(X: Any, shape: tuple[int, ...]) -> None:
    settings = {"channels": "first"} if shape[0] == 5 else {}
    if shape[0] == 5:
        X = X.transpose(0, 2, 1, 3)
    classifier = fitted(X, **settings)
    assert classifier.samples_.shape == shape
    assert classifier.predict(X).shape == (24,)
    assert classifier.companion_scores(X)


def test_layouts_agree() -> None:
    """The same images in four layouts give the same scores, bit for bit."""
    last = fitted(COLOUR)
    first = fitted(np.ascontiguousarray(COLOUR.transpose(0, 3, 1, 2)))
    vectors = fitted(COLOUR.reshape(24, -1), image_shape=(8, 10, 3))
    scores = last.decision_function(COLOUR)
    np.testing.assert_array_equal(first.decision_function(COLOUR.transpose(0, 3, 1, 2)), scores)
    np.testing.assert_array_equal(vectors.decision_function(COLOUR.reshape(24, -1)), scores)
    assert vectors.n_features_in_ == 240


def test_scaling_of_images() -> None:
    samples = fit_samples(COLOUR)
    pixels = COLOUR.astype(np.float64)
    for channel in range(3):
        values = pixels[..., channel]
        slow = (values - values.mean()) / values.std()
        np.testing.assert_allclose(samples(COLOUR)[:, channel].numpy(), slow, atol=1e-5)


def test_scaling_of_vectors() -> None:
    """Features of one unit share their scale; features of several units do not; constant ones become 0."""
    pixels = RANDOM.normal(3, 2, (500, 20))
    pixels[:, 4] *= 0.5
    np.testing.assert_allclose(
        fit_samples(pixels)(pixels).numpy(),
        (pixels - pixels.mean(0)) / np.sqrt(((pixels - pixels.mean(0)) ** 2).mean()),
        atol=1e-5,
    )
    units = pixels * 10.0 ** np.arange(-10, 10)
    units[:, 7] = 1e8
    scaled = fit_samples(units)(units).numpy()
    each = np.delete(np.arange(20), 7)
    np.testing.assert_allclose(scaled[:, each].std(0), 1, rtol=1e-4)
    assert (scaled[:, 7] == 0).all()
    np.testing.assert_array_equal(fit_samples(units, scale=False)(units).numpy(), units.astype(np.float32))


def test_units_do_not_matter() -> None:
    X = RANDOM.normal(size=(60, 4))
    y = X[:, 0] + X[:, 1] > 0
    units = X * [1e-6, 1e6, 1, 1e3]
    assert fitted(units, y, epochs=30).score(units, y) > 0.9


def test_where_the_channels_are() -> None:
    assert channels_lie_last((8, 8, 3), "auto")
    assert not channels_lie_last((3, 8, 8), "auto")
    assert not channels_lie_last((64, 8, 8), "auto")
    assert channels_lie_last((8, 8, 64), "auto")
    assert not channels_lie_last((8, 8, 3), "first")
    with pytest.raises(DataError, match=r"\[3, 3, 3\], which may be \[C,H,W\] or \[H,W,C\].*channels='first'"):
        channels_lie_last((3, 3, 3), "auto")


class Wide(nn.Module):
    """Takes images of 28x28 only."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(784, 16)
        self.scores = nn.Linear(16, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.scores(torch.relu(self.hidden(images.flatten(1))))


def deep(num_classes: int, depth: int) -> nn.Module:
    raise AssertionError(f"called for {num_classes} classes with depth {depth}")


NAN = np.where(np.arange(64).reshape(8, 8) == 5, np.nan, GREY)


@pytest.mark.parametrize(
    ("kind", "match", "X", "y", "settings"),
    [
        (DataError, "y has one class, 1; expected samples of at least two", GREY, np.ones(24, int), {}),
        (ValueError, "Input X contains NaN", NAN, LABELS, {}),
        (TypeError, "Sparse data was passed", csr_matrix(GREY.reshape(24, 64)), LABELS, {}),
        (NetworkError, "no network is called 'fsat'; did you mean 'fast'", GREY, LABELS, {"network": "fsat"}),
        (NetworkError, "no network is called 'x'", GREY.reshape(24, 64), LABELS, {"network": "x"}),
        (NetworkError, r"'fast' takes images, X has vectors of 64.*image_shape=\(H, W\)", GREY.reshape(24, 64), LABELS,
         {"network": "fast"}),
        (NetworkError, "image_size 8 is too small for cnn: .* need at least", GREY, LABELS, {"network": "cnn"}),
        (NetworkError, "takes square images, X has images of 28x30", np.zeros((24, 28, 30)), LABELS,
         {"network": "cnn"}),
        (NetworkError, "network is a int; expected", GREY, LABELS, {"network": 3}),
        (NetworkError, r"network\(\) returns a int", GREY, LABELS, {"network": lambda: 3}),
        (NetworkError, "network cannot be called with num_classes", GREY, LABELS,
         {"network": deep}),
        (DataError, r"Wide does not take samples of shape \[1, 8, 8\]: .*2x64 and 784x16", GREY, LABELS,
         {"network": Wide()}),
        (SupervisionError, r"scores of shape \[2, 3\], num_classes is 4", np.zeros((24, 28, 28)), np.arange(24) % 4,
         {"network": Wide}),
        (SupervisionError, "no layer 'relu9' in Perceptron; did you mean", GREY.reshape(24, 64), LABELS,
         {"at": ["relu9"]}),
        (DataError, r"image_shape=\(8, 9\) has 72 values, X has samples of shape \[64\]", GREY.reshape(24, 64), LABELS,
         {"image_shape": (8, 9)}),
        (DataError, r"image_shape=\(4, 16\) has 64 values, X has samples of shape \[8, 8\]", GREY, LABELS,
         {"image_shape": (4, 16)}),
        (DataError, "image_shape=64; expected", GREY.reshape(24, 64), LABELS, {"image_shape": 64}),
        (DataError, "channels='middle'; expected", COLOUR, LABELS, {"channels": "middle"}),
        (DataError, "expected vectors", np.zeros((24, 2, 2, 2, 2)), LABELS, {}),
        (ConfigError, "epochs", GREY, LABELS, {"epochs": 0}),
        (ConfigError, "batch_size=", GREY, LABELS, {"batch_size": "big"}),
        (ConfigError, "patience=0", GREY, LABELS, {"early_stopping": True, "patience": 0}),
        (DataError, "early_stopping cannot hold out validation_fraction=0.01 of 24", GREY, LABELS,
         {"early_stopping": True, "validation_fraction": 0.01}),
        (ValueError, "Unknown label type: continuous", GREY, np.linspace(0, 1, 24), {}),
        (ConfigError, "device='gpu'", GREY, LABELS, {"device": "gpu"}),
    ],
)  # fmt: skip
def test_what_is_refused(kind: type[Exception], match: str, X: Any, y: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(kind, match=match) as caught:
        fitted(X, y, **settings)
    if isinstance(caught.value, DeepsupError):
        assert "\n" not in str(caught.value)


def test_other_samples_than_it_was_fitted_on() -> None:
    images, vectors = fitted(GREY), fitted(GREY.reshape(24, 64))
    with pytest.raises(DataError, match=r"shape \[7, 7\], the classifier was fitted on samples of shape \[8, 8\]"):
        images.predict(GREY[:, :7, :7])
    with pytest.raises(DataError, match=r"shape \[64\], the classifier was fitted on samples of shape \[8, 8\]"):
        images.predict(GREY.reshape(24, 64))
    with pytest.raises(DataError, match=r"shape \[8, 8\], the classifier was fitted on samples of shape \[64\]"):
        vectors.predict(GREY)
    with pytest.raises(ValueError, match="X has 63 features, but DeeplySupervisedClassifier is expecting 64"):
        vectors.predict(GREY.reshape(24, 64)[:, 1:])
    with pytest.raises(ValueError, match="Input X contains NaN"):
        images.predict(NAN)


def test_batches_of_one_sample_are_avoided() -> None:
    """33 samples in batches of 32 would leave one alone, of which BatchNorm has no variance."""
    X, y = RANDOM.normal(size=(33, 5)), np.arange(33) % 2
    assert fitted(X, y, batch_size=32).n_iter_ == 1
    assert fitted(X, y, batch_size=1).n_iter_ == 1
