"""Trained runs whose pages the tests open, and the browser that opens them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepsup.trainer.config import Config
from deepsup.trainer.recipes import quick
from deepsup.trainer.runs._train import train


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Train the net of the main job for some epochs, with or without companions."""

    def make(epochs: int, **settings: Any) -> Path:
        folder = tmp_path_factory.mktemp("demo") / "run"
        config = quick().replace(epochs=epochs, lr=0.03, tensorboard=False, gradient_every=0, **settings)
        train(config, folder)
        return folder

    return make


@pytest.fixture(scope="session")
def pair(trained: Callable[..., Path]) -> tuple[Path, Path]:
    """The main job's net with companions, and its twin without; of both, three epochs can be shown."""
    return trained(12, snapshots=3), trained(12, snapshots=3, taps=("none",))


@pytest.fixture(scope="session")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 images of 16x16 in colour, of four classes, as an .npz: a bright patch in one of four corners."""
    draw = np.random.default_rng(0)
    labels = np.arange(400) % 4
    images = draw.integers(0, 120, (400, 16, 16, 3))
    for image, label in zip(images, labels, strict=True):
        image[8 * (label // 2) :, 8 * (label % 2) :][:8, :8] += draw.integers(20, 120, 3)
    path = tmp_path_factory.mktemp("colours") / "corners.npz"
    arrays = {"x_train": images[:200], "y_train": labels[:200], "x_test": images[200:], "y_test": labels[200:]}
    np.savez(path, **{name: each.astype(np.uint8) for name, each in arrays.items()})
    return path


@pytest.fixture(scope="session")
def own_resnet(colours: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a network of the user's own, on colour images."""
    folder = tmp_path_factory.mktemp("own") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        config = Config(
            data=str(colours), network="demo_resnet:OwnResNet", taps=("stem", "layer1", "layer2"), epochs=4,
            batch_size=20, lr=0.05, tensorboard=False,
        )  # fmt: skip
        train(config, folder)
    return folder
