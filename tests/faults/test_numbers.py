"""Numbers at the edge: NaN, infinite and constant images, classes with one image, 2 and 1,000 classes."""

from pathlib import Path

import numpy as np
import pytest
import torch

from deepsup import Config, Objective, load_data, supervise, train
from deepsup.errors import DataError
from deepsup.trainer.preprocess import NORMALIZATIONS, fit

SIDE = 8


def saved(folder: Path, images: np.ndarray, labels: np.ndarray) -> Path:
    path = folder / "data.npz"
    np.savez(path, images=images, labels=labels)
    return path


def noise(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, SIDE, SIDE), dtype=np.uint8)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
def test_pixels_that_are_no_numbers_are_refused(tmp_path: Path, value: float) -> None:
    images = noise(20).astype(np.float32)
    images[3, 2, 1] = value
    with pytest.raises(DataError, match=r"data\.npz.*(float32|pixel)") as raised:
        load_data(saved(tmp_path, images, np.arange(20) % 2))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("recipe", NORMALIZATIONS)
@pytest.mark.parametrize("value", [0, 128, 255])
def test_images_of_one_color_stay_finite(tmp_path: Path, recipe: str, value: int) -> None:
    images = np.full((20, SIDE, SIDE), value, np.uint8)
    data = load_data(saved(tmp_path, images, np.arange(20) % 2))
    out = fit(recipe, data, cache=False)(torch.from_numpy(data.train.images))
    assert out.isfinite().all()
    if recipe != "none":
        assert out.abs().max() < 1e-3, "contrast was made out of nothing"


@pytest.mark.parametrize("recipe", NORMALIZATIONS)
def test_one_image_of_one_color_among_others_stays_finite(tmp_path: Path, recipe: str) -> None:
    images = noise(20)
    images[4] = 77
    data = load_data(saved(tmp_path, images, np.arange(20) % 2))
    for part in (data.train, data.test):
        assert fit(recipe, data, cache=False)(torch.from_numpy(part.images)).isfinite().all()


@pytest.mark.parametrize("normalize", ["standardize", "gcn-zca", "gcn-lcn"])
def test_a_net_trains_on_images_of_one_color(tmp_path: Path, normalize: str) -> None:
    path = saved(tmp_path, np.full((20, SIDE, SIDE), 9, np.uint8), np.arange(20) % 2)
    net = {"network": "plain", "network_options": {"depth": 6, "widths": [4, 4, 4]}}
    run = train(
        Config(data=str(path), epochs=2, batch_size=8, tensorboard=False, normalize=normalize, **net), tmp_path / "run"
    )
    assert run.result["error"] == 50.0, "nothing can be learned: one class of two is always right"
    assert all(np.isfinite(value) for value in run.result["companions"].values())


def test_a_class_with_one_image(tmp_path: Path) -> None:
    labels = np.zeros(30, np.int64)
    labels[7] = 1
    path = saved(tmp_path, noise(30), labels)
    with pytest.raises(DataError) as raised:
        load_data(path)
    assert "\n" not in str(raised.value)
    np.savez(path, x_train=noise(30), y_train=labels, x_test=noise(10), y_test=np.arange(10) % 2)
    net = {"network": "plain", "network_options": {"depth": 6, "widths": [4, 4, 4]}}
    run = train(Config(data=str(path), epochs=2, batch_size=10, tensorboard=False, **net), tmp_path / "run")
    assert 0 <= run.result["error"] <= 100


@pytest.mark.parametrize("classes", [2, 1000])
@pytest.mark.parametrize("loss", ["softmax", "squared_hinge", "hinge", "squared_hinge_ovr", "hinge_ovr"])
def test_two_and_a_thousand_classes(classes: int, loss: str) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, 8), torch.nn.ReLU(), torch.nn.Linear(8, classes)
    )
    x, labels = torch.randn(4, 1, SIDE, SIDE), torch.tensor([0, 1, classes - 1, 0])
    net = supervise(model, at=["2"], num_classes=classes, example=x)
    found = Objective(net, loss=loss)(net(x), labels, progress=0.0)
    found.total.backward()
    assert found.total.isfinite()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in net.parameters())
