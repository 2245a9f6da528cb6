"""What every test starts from: a fixed seed, and a torchvision that imports beside a CPU build of torch."""

import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from deepsup import load_data
from deepsup.trainer.config import Config
from deepsup.trainer.data import subset

# torchvision 0.28 expects two operators of its compiled half, which the CPU build of torch cannot load; declared here,
# never called, they let its models be imported (the library itself needs none of this).
_torchvision_operators = torch.library.Library("torchvision", "DEF")
for _name in ("nms", "qnms"):
    _torchvision_operators.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


# Whoever reaches a Ray cluster can run code on it: those of the tests ask for this token. Ray reads it when it is
# imported, and transformers may import Ray in any test: so it is set before the first one.
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}

# The nets here are small: a second thread gains little, and on a busy machine the first waits for it at every layer.
# The same holds for the processes that tests start, and for studies, which take all cores.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"
os.cpu_count = lambda: 1


@pytest.fixture(autouse=True)
def seed() -> int:
    """Every test starts from the same random state; returns the seed for those that make generators of their own."""
    torch.manual_seed(0)
    return 0


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One Chromium per module, closed after it: a process can start playwright only while no other one runs in it."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium is installed (Debian: apt-get install chromium)")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install 'deepsup[dev]')")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


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
