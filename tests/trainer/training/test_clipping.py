"""A gradient that is too long is shortened to clip_norm, all weights together; beside the same thing by hand."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from deepsup import Config, train
from deepsup.errors import ConfigError
from deepsup.trainer.training import Callback, Training

LR = 0.5
STEP = Config(
    train_size=40, batch_size=40, epochs=1, lr=LR, companion_lr=1.0, momentum=0.0, weight_decay=0.0, anneal="step",
    tensorboard=False, test=False, network_options={"drop": 0.0},
)  # fmt: skip


class Weights(Callback):
    """The weights before and after each step."""

    def __init__(self) -> None:
        self.seen: list[Tensor] = []

    def started(self, training: Training) -> None:
        self.step_ended(training)

    def step_ended(self, training: Training) -> None:
        self.seen.append(torch.cat([each.detach().flatten().clone() for each in training.net.parameters()]))

    @property
    def gradient(self) -> Tensor:
        """The first step's, as SGD without momentum took it."""
        return (self.seen[0] - self.seen[1]) / LR


def gradient(config: Config, folder: Path) -> Tensor:
    train(config, folder, callbacks=[weights := Weights()])
    return weights.gradient


@pytest.mark.parametrize("amp", ["off", "on"])
@pytest.mark.parametrize("taps", [("network",), ("none",)])
def test_a_longer_gradient_keeps_its_direction(taps: tuple[str, ...], amp: str, tmp_path: Path) -> None:
    config = STEP.replace(taps=taps, amp=amp)
    whole = gradient(config, tmp_path / "whole")
    for clip in (whole.norm().item() / 7, 0.01):
        short = gradient(config.replace(clip_norm=clip), tmp_path / f"{clip}")
        torch.testing.assert_close(short, whole * clip / whole.norm(), atol=1e-6, rtol=1e-3)
    as_it_was = gradient(config.replace(clip_norm=2 * whole.norm().item()), tmp_path / "long")
    assert torch.equal(as_it_was, whole)


def test_the_companions_count_in_the_norm_and_are_shortened_too(tmp_path: Path) -> None:
    train(STEP.replace(clip_norm=0.1), tmp_path / "run", callbacks=[weights := Weights()])
    assert weights.gradient.norm().item() == pytest.approx(0.1, rel=1e-3)


def test_what_is_recorded_is_the_gradient_before_it_is_shortened(tmp_path: Path) -> None:
    norms = [
        train(STEP.replace(clip_norm=clip, gradient_every=1), tmp_path / f"{clip}").metrics[0]["gradient_norms"]
        for clip in (0.0, 0.01)
    ]
    assert norms[0] == norms[1]


def test_a_clipped_training_goes_on_to_the_bit(tmp_path: Path) -> None:
    config = STEP.replace(batch_size=10, epochs=2, clip_norm=0.3, momentum=0.9, lr=0.05)
    train(config, tmp_path / "whole", callbacks=[whole := Weights()])
    train(config.replace(limit_steps=3), tmp_path / "part")
    train(config, tmp_path / "part", resume=True, callbacks=[part := Weights()])
    assert len(part.seen) == 1 + 5
    assert torch.equal(part.seen[-1], whole.seen[-1])


@pytest.mark.parametrize("clip", [-1.0, float("nan"), float("inf"), "a"])
def test_what_is_no_norm_is_refused(clip: object) -> None:
    with pytest.raises(ConfigError, match=r"clip_norm=.*expected .*norm to which a longer gradient"):
        Config(clip_norm=clip)
