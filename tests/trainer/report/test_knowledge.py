"""Colours of the confusion matrix: mistakes have a scale of their own, whatever the diagonal holds."""

import numpy as np
import pytest

from deepsup.trainer.report._insight_figures import confusion_shades


def test_the_diagonal_does_not_take_the_colours() -> None:
    few = np.array([[90.0, 9.0, 1.0], [0.0, 100.0, 0.0], [0.0, 3.0, 97.0]])
    shades = confusion_shades(few)
    diagonal = shades[range(3), range(3)]
    assert (diagonal == diagonal[0]).all()
    assert diagonal[0, 0] == diagonal[0, 1] == diagonal[0, 2]  # grey
    opacity = shades[..., 3]
    assert opacity[0, 1] == 1  # the worst mistake: 9 % of its class
    assert 0 < opacity[0, 2] < opacity[2, 1] < opacity[0, 1]
    assert opacity[1, 0] == opacity[1, 2] == opacity[2, 0] == 0


def test_the_scale_of_mistakes_is_that_of_the_share_of_a_class() -> None:
    counts = np.array([[8.0, 2.0, 0.0], [40.0, 160.0, 0.0], [1.0, 0.0, 9.0]])
    opacity = confusion_shades(counts)[..., 3]
    assert opacity[0, 1] == opacity[1, 0] == 1  # 2 of 10 and 40 of 200
    assert opacity[2, 0] == pytest.approx(0.12 + 0.88 / 2)


@pytest.mark.parametrize("counts", [np.zeros((2, 2)), np.eye(3) * 7])
def test_no_mistake_and_no_image(counts: np.ndarray) -> None:
    shades = confusion_shades(counts)
    assert np.isfinite(shades).all()
    assert (shades[..., 3] > 0).sum() == len(counts)  # the diagonal alone
