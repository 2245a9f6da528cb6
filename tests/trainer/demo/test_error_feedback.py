"""Rounding whose errors cancel: compared with plain rounding, on the outputs of layers and on what inputs see."""

import pytest
import torch
from torch import Tensor, nn

from deepsup.trainer.demo._error_feedback import MOST_COLUMNS, feedback_of, rounded_rows


class FlatLinear(nn.Linear):
    """Flattens what it gets, as the first layer of a companion does."""

    def forward(self, maps: Tensor) -> Tensor:
        return super().forward(maps.flatten(1))


class Layers(nn.Module):
    """A convolution, and a linear layer on its flattened maps; both get inputs whose neighbours are alike."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.grouped = nn.Conv2d(2, 20, 3, padding=1), nn.Conv2d(20, 20, 3, padding=1, groups=4)
        self.fc = FlatLinear(20 * 11 * 11, 6)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.fc(self.grouped(self.conv(images)))
        return scores


def smooth(count: int) -> Tensor:
    return nn.functional.interpolate(torch.randn(count, 2, 4, 4), size=(11, 11), mode="bilinear")


@pytest.mark.parametrize("seen", [False, True])
def test_errors_cancel_in_the_outputs_of_a_layer(seen: bool) -> None:
    """On images that the feedback was not made from, in steps as coarse as the weights' deviation."""
    net, images = Layers().eval(), smooth(64)
    feedback = feedback_of(net, smooth(400))
    assert feedback.keys() == {"conv.weight", "fc.weight"}  # the grouped one is rounded plainly
    columns = torch.cat([block.columns.flatten() for block in feedback["fc.weight"]])
    assert sorted(columns.tolist()) == list(range(20 * 11 * 11))
    assert max(block.columns.shape[1] for block in feedback["fc.weight"]) <= MOST_COLUMNS
    with torch.no_grad():
        maps = net.grouped(net.conv(images)).flatten(1)
        weight = net.fc.weight / net.fc.weight.std()
        ours, plainly = rounded_rows(weight.double(), feedback["fc.weight"], seen), weight.round()
        assert (ours == ours.round()).all()
        assert (rounded_rows(weight.double(), ()) == plainly).all()
        error, expected = ((maps @ (each.float() - weight).mT).square().mean() for each in (ours, plainly))
    assert error < expected / 25


def test_what_the_inputs_do_not_see_becomes_nothing() -> None:
    """Changes along directions in which the inputs do not vary cost no bits, and those along others stay."""
    direction = torch.randn(30)
    images = torch.randn(500, 1) * direction
    layer = nn.Sequential(nn.Linear(30, 4))
    blocks = feedback_of(layer, images)["0.weight"]
    unseen = 50 * torch.randn(4, 30)
    unseen -= (unseen @ direction)[:, None] * direction / direction.square().sum()
    assert (rounded_rows(unseen.double(), blocks, seen=True).abs() <= 1).all()
    seen = 50 * torch.randn(4, 1) * direction
    kept = rounded_rows(seen.double(), blocks, seen=True).float()
    torch.testing.assert_close(kept @ direction, seen @ direction, rtol=0.01, atol=1.0)


def test_inputs_that_are_all_zero_are_rounded_plainly() -> None:
    layer = nn.Sequential(nn.Linear(5, 3))
    weight = 10 * torch.randn(3, 5, dtype=torch.float64)
    assert (rounded_rows(weight, feedback_of(layer, torch.zeros(8, 5))["0.weight"]) == weight.round()).all()
