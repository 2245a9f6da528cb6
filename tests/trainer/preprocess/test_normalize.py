"""Each normalisation against the slow explicit way in float64, and against others' implementations."""

import io
import json
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.ndimage
import torch
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler
from sklearn.preprocessing import normalize as to_unit_norm

from deepsup.errors import DataError
from deepsup.trainer.data import Dataset, Part
from deepsup.trainer.preprocess import GCN, LCN, NORMALIZATIONS, ZCA, Normalizer, fit, to_tensor

RNG = np.random.default_rng(0)


def smooth_images(n: int, channels: int = 3, side: int = 8) -> np.ndarray:
    """Images whose neighbours are alike, as in photographs."""
    noise = RNG.normal(size=(n, channels, side, side)).cumsum(2).cumsum(3)
    noise -= noise.min((1, 2, 3), keepdims=True)
    return (255 * noise / noise.max((1, 2, 3), keepdims=True)).astype(np.uint8)


def make(n: int = 300, channels: int = 3, side: int = 8) -> Dataset:
    parts = [Part(smooth_images(m, channels, side), np.arange(m) % 2) for m in (n, 20, 20)]
    return Dataset("smooth", ("a", "b"), parts[0], parts[1], parts[2])


@pytest.fixture(autouse=True)
def data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DEEPSUP_DATA", str(tmp_path / "root"))
    return tmp_path / "root"


def applied(recipe: object, data: Dataset, images: np.ndarray) -> np.ndarray:
    out = fit(recipe, data)(to_tensor(images))
    assert out.dtype == torch.float32
    assert out.is_contiguous(memory_format=torch.channels_last)
    return out.numpy().astype(np.float64)


def slow_gcn(image: np.ndarray, scale: float, by: str, sqrt_bias: float, min_divisor: float) -> np.ndarray:
    values = [float(v) / 255 for v in image.flatten()]
    mean = sum(values) / len(values)
    centred = [v - mean for v in values]
    squares = sum(v * v for v in centred)
    if by == "deviation":
        squares /= len(values) - 1
    divisor = (sqrt_bias + squares) ** 0.5 / scale
    if divisor < min_divisor:
        divisor = 1.0
    return np.array([v / divisor for v in centred]).reshape(image.shape)


@pytest.mark.parametrize("by", ["norm", "deviation"])
@pytest.mark.parametrize(("scale", "sqrt_bias", "min_divisor"), [(55.0, 0.0, 1e-8), (1.0, 10.0, 1e-8), (2.0, 0.0, 5.0)])
def test_gcn(by, scale, sqrt_bias, min_divisor):
    data = make()
    images = data.test.images[:6].copy()
    images[0] = 77  # one colour
    expected = [slow_gcn(image, scale, by, sqrt_bias, min_divisor) for image in images]
    step = GCN(scale, by, sqrt_bias, min_divisor)
    np.testing.assert_allclose(applied([step], data, images), expected, rtol=2e-5, atol=2e-6 * scale)


def test_gcn_by_norm_as_scikit_learn_does_it():
    images = make().test.images
    rows = images.reshape(len(images), -1) / 255
    expected = 55 * to_unit_norm(rows - rows.mean(1, keepdims=True))
    got = applied("gcn", make(), images).reshape(len(images), -1)
    np.testing.assert_allclose(got, expected, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 55, rtol=1e-6)


def test_gcn_leaves_an_image_of_one_colour_at_zero():
    images = np.arange(256, dtype=np.uint8).repeat(3 * 32 * 32).reshape(256, 3, 32, 32)
    data = make()
    assert (applied("gcn", data, images) == 0).all()
    assert (applied("gcn-lcn", data, images) == 0).all()


def slow_whitening(rows: np.ndarray, bias: float) -> tuple[np.ndarray, np.ndarray]:
    mean = rows.mean(0)
    covariance = np.zeros((rows.shape[1],) * 2)
    for row in rows:
        covariance += np.outer(row - mean, row - mean)
    covariance /= len(rows)
    values, vectors = np.linalg.eigh(covariance + bias * np.eye(len(covariance)))
    return mean, sum(np.outer(v, v) / np.sqrt(value) for value, v in zip(values, vectors.T, strict=True))


def test_zca():
    data = make(channels=2, side=5)
    rows = data.train.images.reshape(len(data.train), -1) / 255
    mean, matrix = slow_whitening(rows, 0.1)
    test = data.test.images.reshape(len(data.test), -1) / 255
    got = applied([ZCA(0.1)], data, data.test.images).reshape(len(test), -1)
    np.testing.assert_allclose(got, (test - mean) @ matrix, atol=1e-5)


def test_zca_as_scikit_learn_does_it():
    """Without a bias, whitening by principal components and turning back is the same thing."""
    data = make(n=500, channels=1, side=4)
    rows = data.train.images.reshape(len(data.train), -1) / 255
    pca = PCA(whiten=True).fit(rows)
    # scikit-learn divides the covariance by N-1
    expected = pca.transform(rows) @ pca.components_ * np.sqrt(len(rows) / (len(rows) - 1))
    got = applied([ZCA(0.0)], data, data.train.images).reshape(len(rows), -1)
    np.testing.assert_allclose(got, expected, atol=2e-3)


@pytest.mark.parametrize("bias", [0.0, 0.1])
def test_the_covariance_after_zca_is_the_identity_up_to_its_bias(bias):
    data = make(n=500, channels=1, side=4)
    rows = data.train.images.reshape(len(data.train), -1) / 255
    values, vectors = np.linalg.eigh(np.cov(rows.T, bias=True))
    expected = (vectors * (values / (values + bias))) @ vectors.T
    got = applied([ZCA(bias)], data, data.train.images).reshape(len(rows), -1)
    np.testing.assert_allclose(np.cov(got.T, bias=True), expected, atol=2e-3)
    np.testing.assert_allclose(got.mean(0), 0, atol=1e-3)
    if bias == 0:
        np.testing.assert_allclose(np.cov(got.T, bias=True), np.eye(rows.shape[1]), atol=2e-3)


def test_gcn_zca_is_gcn_then_zca():
    data = make(channels=1, side=5)
    rows = np.array([slow_gcn(image, 55, "norm", 0, 1e-8).flatten() for image in data.train.images])
    mean, matrix = slow_whitening(rows, 0.1)
    test = np.array([slow_gcn(image, 55, "norm", 0, 1e-8).flatten() for image in data.test.images])
    got = applied("gcn-zca", data, data.test.images).reshape(len(test), -1)
    np.testing.assert_allclose(got, (test - mean) @ matrix, atol=2e-4)


def slow_lcn(image: np.ndarray, size: int = 7, sigma: float = 2.0, threshold: float = 1e-4) -> np.ndarray:
    half, (channels, height, width) = size // 2, image.shape
    window = [
        [np.exp(-(i * i + j * j) / (2 * sigma**2)) for j in range(-half, half + 1)] for i in range(-half, half + 1)
    ]
    total = sum(map(sum, window))
    out = np.zeros(image.shape)
    for c in range(channels):
        mean, square = np.zeros((height, width)), np.zeros((height, width))
        for y in range(height):
            for x in range(width):
                for i in range(-half, half + 1):
                    for j in range(-half, half + 1):
                        if 0 <= y + i < height and 0 <= x + j < width:
                            weight = window[i + half][j + half] / total
                            mean[y, x] += weight * image[c, y + i, x + j]
                            square[y, x] += weight * image[c, y + i, x + j] ** 2
        divisor = np.sqrt(square)
        out[c] = (image[c] - mean) / np.maximum(np.maximum(divisor, divisor.mean()), threshold)
    return out


def test_lcn():
    data = make(side=9)
    expected = [slow_lcn(image / 255) for image in data.test.images[:3]]
    np.testing.assert_allclose(applied([LCN()], data, data.test.images[:3]), expected, atol=1e-5)


def test_the_recipe_for_svhn():
    data = make(side=9)
    expected = [slow_lcn(slow_gcn(image, 1.0, "norm", 0, 1e-8)) for image in data.test.images[:3]]
    np.testing.assert_allclose(applied("gcn-lcn", data, data.test.images[:3]), expected, atol=1e-4)


def test_lcn_does_every_channel():
    """The public code once normalised the first channel only: a channel must come out the same wherever it stands."""
    data = make()
    images = data.test.images
    turned = applied([LCN()], data, np.roll(images, 1, axis=1))
    np.testing.assert_allclose(np.roll(turned, -1, axis=1), applied([LCN()], data, images), atol=1e-6)


def test_the_window_of_lcn_as_scipy_has_it():
    x = torch.rand(2, 3, 12, 12, dtype=torch.float64)
    # a radius of 3 is 1.5 deviations of 2
    expected = scipy.ndimage.gaussian_filter(x.numpy(), (0, 0, 2, 2), mode="constant", truncate=1.5)
    np.testing.assert_allclose(LCN()._blur(x).numpy(), expected, atol=1e-12)


def test_standardize():
    data = make()
    scaler = StandardScaler().fit(data.train.images.transpose(0, 2, 3, 1).reshape(-1, 3) / 255)
    images = data.test.images
    expected = scaler.transform(images.transpose(0, 2, 3, 1).reshape(-1, 3) / 255)
    got = applied("standardize", data, images).transpose(0, 2, 3, 1).reshape(-1, 3)
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_standardize_of_a_channel_that_never_varies():
    data = make()
    data.train.images[:, 1] = 9
    assert np.isfinite(applied("standardize", data, data.test.images)).all()


def test_none_is_0_to_1():
    data = make()
    np.testing.assert_allclose(applied("none", data, data.test.images), data.test.images / 255, atol=1e-7)


def same(one: Normalizer, two: Normalizer) -> bool:
    pairs = zip(one.arrays, two.arrays, strict=True)
    return one.steps == two.steps and all(torch.equal(a[name], b[name]) for a, b in pairs for name in a)


@pytest.mark.parametrize("recipe", sorted(NORMALIZATIONS))
def test_nothing_of_validation_or_test_leaks_into_a_fit(recipe):
    data = make(channels=1, side=5)
    poison = Part(np.full_like(data.test.images, 255), data.test.labels)
    poisoned = replace(data, test=poison, validation=poison, extra=poison)
    assert same(fit(recipe, data, cache=False), fit(recipe, poisoned, cache=False))


@pytest.mark.parametrize("recipe", ["standardize", "gcn-zca"])
def test_the_leak_test_can_fail(recipe):
    """The same poison in the training part does change the fit."""
    data = make(channels=1, side=5)
    joined = np.concatenate([data.train.images, np.arange(500, dtype=np.uint16).astype(np.uint8).reshape(20, 1, 5, 5)])
    leaking = replace(data, train=Part(joined, np.arange(len(joined)) % 2))
    assert not same(fit(recipe, data, cache=False), fit(recipe, leaking, cache=False))


@pytest.mark.parametrize("recipe", sorted(NORMALIZATIONS))
def test_a_stored_state_applies_the_same_bit_for_bit(recipe):
    data = make(channels=1, side=5)
    fitted = fit(recipe, data)
    state = fitted.state()
    json.dumps(state["steps"])
    packed = io.BytesIO()
    torch.save(state, packed)
    packed.seek(0)
    restored = Normalizer.from_state(torch.load(packed, weights_only=True), (1, 5, 5))
    assert same(fitted, restored)
    images = to_tensor(data.test.images)
    assert torch.equal(fitted(images), restored(images))


@pytest.mark.parametrize("recipe", sorted(NORMALIZATIONS))
def test_applying_leaves_the_images_alone_and_all_at_once_is_the_same(recipe):
    data = make(channels=3, side=5)
    before = data.train.images.copy()
    fitted = fit(recipe, data)
    whole = fitted.apply_all(data.train.images)
    np.testing.assert_array_equal(data.train.images, before)
    torch.testing.assert_close(whole[:7], fitted(to_tensor(data.train.images[:7])), atol=1e-4, rtol=1e-4)


def count_fits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    original = ZCA.fit

    def counted(self: ZCA, stream: object) -> dict[str, torch.Tensor]:
        calls.append(1)
        return original(self, stream)

    monkeypatch.setattr(ZCA, "fit", counted)
    return calls


def test_an_expensive_fit_is_kept_by_content(monkeypatch, data_root):
    calls = count_fits(monkeypatch)
    data = make(channels=1, side=5)
    first = fit("gcn-zca", data)
    assert same(first, fit("gcn-zca", data))
    # the same images in another memory order are the same content
    other_order = Part(np.asfortranarray(data.train.images), data.train.labels)
    assert same(first, fit("gcn-zca", replace(data, train=other_order)))
    assert len(calls) == 1
    fit([GCN(), ZCA(0.2)], data)
    fit([GCN(10.0), ZCA()], data)
    fit([ZCA()], data)
    changed = data.train.images.copy()
    changed[3, 0, 0, 0] ^= 1
    fit("gcn-zca", replace(data, train=Part(changed, data.train.labels)))
    assert len(calls) == 5
    assert len(list((data_root / "fits").iterdir())) == 5


def npz(**arrays: np.ndarray) -> bytes:
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    return packed.getvalue()


@pytest.mark.parametrize(
    "damage", [b"", b"PK\x03\x04 not really", npz(matrix=np.eye(25, dtype=np.float32)), npz(mean=np.zeros(25))]
)
def test_a_damaged_fit_is_made_again(monkeypatch, data_root, damage, caplog):
    calls = count_fits(monkeypatch)
    data = make(channels=1, side=5)
    first = fit("gcn-zca", data)
    (path,) = (data_root / "fits").iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage)
    assert same(first, fit("gcn-zca", data))
    assert "is damaged" in caplog.text
    assert path.read_bytes() == whole
    assert len(calls) == 2


def test_a_fit_that_cannot_be_kept_is_still_a_fit(monkeypatch, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DEEPSUP_DATA", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING):
        fit("gcn-zca", make(channels=1, side=5))
    assert "the fit is not cached" in caplog.text


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: fit("gcn-zac", make()), "no recipe 'gcn-zac'; did you mean 'gcn-zca'"),
        (lambda: GCN(scale=0), "expected a scale above 0"),
        (lambda: GCN(by="l1"), "GCN by 'l1'; expected 'norm' or 'deviation'"),
        (lambda: ZCA(bias=-1), "expected a bias of 0 or more"),
        (lambda: LCN(size=4), "expected an odd size"),
        (lambda: fit([ZCA(0.0)], make(n=10)), "expected a bias above 0"),
        (lambda: fit([ZCA()], make(n=4, side=80)), "needs a matrix of 3 GB"),
        (lambda: fit("none", make())(torch.zeros(1, 3, 8, 8)), r"torch.float32 .*; expected uint8"),
        (lambda: LCN().shapes((1, 8, 4097)), "LCN of images of .*; expected sides of at most 4,096"),
        (lambda: LCN(size=2**40 + 1), "expected an odd size up to 4,096"),
        (lambda: LCN(size=7.0), "lcn: size is '7.0'; expected a whole number"),
        (lambda: LCN(sigma=1e15), "expected a sigma from 1e-6 to 1e6"),
        (lambda: LCN(sigma=1e-200), "expected a sigma from 1e-6 to 1e6"),
        (lambda: GCN(scale=float("nan")), "gcn: scale is 'nan'; expected a number"),
        (lambda: GCN(scale=10**400), "gcn: scale is '1000"),
        (lambda: GCN(scale=True), "gcn: scale is 'True'; expected a number"),
        (lambda: GCN(by=1), "gcn: by is '1'; expected a word"),
        (lambda: ZCA(bias=float("inf")), "zca: bias is 'inf'; expected a number"),
    ],
)
def test_what_cannot_be_fitted(call, word):
    with pytest.raises(DataError, match=word):
        call()


def spoiled(recipe: str, **arrays: torch.Tensor | None) -> dict:
    """Return the state of a fit on images [1,5,5] with other arrays; None: without it."""
    state = fit(recipe, make(channels=1, side=5), cache=False).state()
    kept = {key: value for key, value in {**state["arrays"], **arrays}.items() if value is not None}
    return {"steps": state["steps"], "arrays": kept}


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ({}, "KeyError: 'steps'"),
        ({"steps": [{"step": "gcm"}], "arrays": {}}, "KeyError: 'gcm'"),
        ({"steps": [{"step": "standardize"}], "arrays": {}}, "standardize has no arrays, expected {'mean'"),
        (spoiled("standardize", **{"0.mean": None}), "expected {'mean'"),
        (spoiled("standardize", **{"0.mean": torch.zeros(3)}), "expected {'mean'"),
        (spoiled("standardize", **{"0.mean": torch.zeros(1, dtype=torch.int64)}), "mean of standardize is torch.int64"),
        (spoiled("standardize", **{"0.more": torch.zeros(1)}), "expected {'mean'"),
        (spoiled("standardize", **{"7.mean": torch.zeros(1)}), "IndexError"),
        (spoiled("gcn-zca", **{"1.matrix": None}), "'matrix': (25, 25)"),
        (spoiled("gcn-zca", **{"1.matrix": torch.zeros(25)}), "'matrix': (25, 25)"),
        (spoiled("gcn", **{"0.mean": torch.zeros(1)}), "expected none"),
        ({"steps": [{"step": "lcn", "size": 2**40 + 1}], "arrays": {}}, "expected an odd size"),
        ({"steps": [{"step": "gcn", "scale": "x"}], "arrays": {}}, "expected a number"),
    ],
)
def test_a_state_that_is_not_whole(state, word):
    with pytest.raises(DataError, match="not the state of a normalizer") as caught:
        Normalizer.from_state(state, (1, 5, 5))
    assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_state_for_images_of_any_size():
    state = spoiled("gcn-zca")
    assert same(Normalizer.from_state(state), Normalizer.from_state(state, (1, 5, 5)))
    with pytest.raises(DataError, match="zca has no arrays"):
        Normalizer.from_state({**state, "arrays": {}})
