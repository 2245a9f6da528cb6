"""What a network may bring to its training is called by the loop: before the first step, in it, and after it."""

from pathlib import Path

import pytest
import torch

from deepsup import Config, train
from deepsup.trainer.training import Callback, Training

NETWORK = """
import torch
from torch import nn

class Noted(nn.Module):
    calls = []

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def fit_images(self, images):
        self.calls.append(("fit", tuple(images.shape), images.dtype))

    def training_penalty(self):
        self.calls.append("penalty")
        return 3 * self.weight

    def after_training_step(self):
        self.calls.append("after")

    def forward(self, x):
        return x

def net(num_classes=10, **shape):
    return nn.Sequential(nn.Flatten(), Noted(), nn.Linear(784, num_classes))
"""


class Keep(Callback):
    def ended(self, training: Training) -> None:
        self.layer = training.net.trunk[1]


def test_the_loop_calls_what_a_network_brings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "brought.py").write_text(NETWORK)
    config = Config(
        network="brought.py:net", taps=("none",), train_size=20, batch_size=10, epochs=1, lr=0.5, momentum=0.0,
        weight_decay=0.0, anneal="step", tensorboard=False, test=False,
    )  # fmt: skip
    train(config, tmp_path / "run", callbacks=[keep := Keep()])
    assert keep.layer.calls == [("fit", (20, 1, 28, 28), torch.float32), *["penalty", "after"] * 2]
    assert keep.layer.weight.item() == 1 - 2 * 0.5 * 3, "only the penalty has a gradient there"
