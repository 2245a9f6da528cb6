"""Augmentation against a loop over images, rows and columns, and the laws of each variant."""

import numpy as np
import pytest
import torch

from deepsup.errors import DataError
from deepsup.trainer.preprocess import AUGMENTATIONS, Augment, Draw

NAMED = {name: augment for name, augment in AUGMENTATIONS.items() if augment is not None}


def slow(augment: Augment, images: np.ndarray, draw: Draw) -> np.ndarray:
    out = np.empty_like(images)
    height, width = images.shape[2:]
    mode = {"zero": "constant", "reflect": "reflect"}[augment.border]
    for b, image in enumerate(images):
        for c, plane in enumerate(image):
            padded = np.pad(plane, augment.pad, mode=mode)
            for y in range(height):
                for x in range(width):
                    across = width - 1 - x if draw.mirrored[b] else x
                    out[b, c, y, x] = padded[draw.top[b] + y, draw.left[b] + across]
    return out


def drawn(augment: Augment, n: int, epoch: int = 0, seed: int = 0) -> Draw:
    coins = torch.randint(2, (n,), generator=torch.Generator().manual_seed(9))
    return augment.draw(coins, epoch, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("augment", [*NAMED.values(), Augment(pad=0), Augment(pad=2, border="reflect")], ids=str)
def test_against_a_loop(augment, order, dtype, channels):
    images = torch.randint(0, 255, (6, channels, 7, 9)).to(dtype).contiguous(memory_format=order)
    before = images.clone()
    draw = drawn(augment, 6)
    out = augment(images, draw)
    np.testing.assert_array_equal(out.numpy(), slow(augment, images.numpy(), draw))
    assert out.dtype == dtype
    assert out.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(images, before), "the given images are left alone"


@pytest.mark.parametrize(("name", "last"), [("crop-flip", 8), ("crop-flip-reflect", 8), ("caffe", 7), ("crop", 8)])
def test_every_offset_occurs_and_no_other(name, last):
    draw = drawn(NAMED[name], 3000)
    assert set(draw.top.tolist()) == set(draw.left.tolist()) == set(range(last + 1))


def test_random_flips_are_fair_and_fresh():
    augment = NAMED["crop-flip"]
    one, two = drawn(augment, 2000, seed=1).mirrored, drawn(augment, 2000, seed=2).mirrored
    for flips in (one, two, one ^ two):
        assert 0.45 < flips.float().mean() < 0.55


def test_alternating_flips_show_both_sides_in_two_epochs():
    augment = NAMED["crop-alternating"]
    epochs = [drawn(augment, 500, epoch).mirrored for epoch in range(4)]
    assert 0.4 < epochs[0].float().mean() < 0.6
    assert torch.equal(epochs[1], ~epochs[0])
    assert torch.equal(epochs[2], epochs[0])
    assert torch.equal(epochs[3], epochs[1])


def test_digits_are_never_mirrored():
    assert not drawn(NAMED["crop"], 500).mirrored.any()


def test_the_centre_leaves_an_image_as_it_is():
    images = torch.rand(3, 3, 8, 8)
    centre = torch.full((3,), 4)
    assert torch.equal(Augment()(images, Draw(centre, centre, torch.zeros(3, dtype=torch.bool))), images)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: Augment(pad=-1), "expected a pad of 0 or more"),
        (lambda: Augment(offsets=10), r"offsets of 1 to 2\*pad\+1"),
        (lambda: Augment(border="edge"), "border 'edge'; expected 'zero' or 'reflect'"),
        (lambda: Augment(flip="always"), "flip 'always'; expected"),
        (lambda: Augment(border="reflect")(torch.rand(1, 1, 4, 4), drawn(Augment(), 1)), "cannot reflect 4 pixels"),
    ],
)
def test_what_is_refused(call, word):
    with pytest.raises(DataError, match=word):
        call()
