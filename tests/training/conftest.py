"""A small data set out of the embedded digits, so that a whole run takes a second."""

from pathlib import Path

import numpy as np
import pytest

from deepsup import load_data
from deepsup.config import Config
from deepsup.data import subset


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """240 digits to train on and 100 to test on, as an .npz."""
    data = load_data()
    train, test = subset(data.train, 240), subset(data.test, 100)
    path = tmp_path_factory.mktemp("digits") / "digits.npz"
    np.savez(path, x_train=train.images[:, 0], y_train=train.labels, x_test=test.images[:, 0], y_test=test.labels)
    return path


@pytest.fixture
def small(digits: Path) -> Config:
    """A run of 24 steps with dropout, companions and shuffling."""
    return Config(data=str(digits), epochs=3, batch_size=30, lr=0.01, checkpoint_steps=3, tensorboard=False)
