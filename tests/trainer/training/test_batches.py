"""The batch stream: seeded, whole, in order when asked, and split over processes without overlap or loss."""

from collections import Counter
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from deepsup import load_data
from deepsup.errors import DataError
from deepsup.trainer.preprocess import AUGMENTATIONS, Augment, fit, to_tensor
from deepsup.trainer.training import Batches
from deepsup.trainer.training._batches import scaled


def numbered(n: int) -> torch.Tensor:
    """Images [n,1,2,2] that carry their own number."""
    return torch.arange(n, dtype=torch.int32).view(torch.uint8).reshape(n, 1, 2, 2)


def number(images: torch.Tensor) -> list[int]:
    return images.contiguous().reshape(len(images), 4).clone().view(torch.int32)[:, 0].tolist()


def stream(n: int, batch_size: int, **settings: object) -> Batches:
    return Batches(numbered(n), torch.arange(n), batch_size, **settings)


def seen(batches: Batches, epoch: int = 0) -> list[list[int]]:
    out = []
    for images, labels in batches.epoch(epoch):
        assert number(images) == labels.tolist(), "image and label belong together"
        out.append(labels.tolist())
    return out


def test_an_epoch_has_every_image_once():
    held = seen(stream(100, 32))
    assert [len(batch) for batch in held] == [32, 32, 32, 4]
    assert Counter(chain(*held)) == Counter(range(100))


def test_a_fixed_order():
    assert list(chain(*seen(stream(50, 16, shuffle=False), epoch=3))) == list(range(50))


def test_the_same_seed_and_epoch_give_the_same_whatever_was_asked_before():
    fresh, used = stream(60, 16, seed=5), stream(60, 16, seed=5)
    seen(used, 0)
    next(iter(used.epoch(1)))
    assert seen(used, 2) == seen(fresh, 2)


def test_seeds_and_epochs_differ():
    orders = [tuple(chain(*seen(stream(60, 16, seed=s), e))) for s in range(3) for e in range(3)]
    assert len(set(orders)) == 9
    # and are not the same streams shifted against each other
    assert seen(stream(60, 16, seed=0), 1) != seen(stream(60, 16, seed=1), 0)


def test_the_generator_of_torch_is_left_alone():
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    seen(stream(60, 16))
    assert torch.equal(torch.rand(4), expected)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(0, 60), st.integers(0, 12), st.booleans())
def test_processes_share_every_batch(world, more_images, more_batch, shuffle):
    n, batch_size = world + more_images, world + more_batch
    alone = seen(stream(n, batch_size, shuffle=shuffle, seed=1), 4)
    shares = [seen(stream(n, batch_size, shuffle=shuffle, seed=1, rank=r, world=world), 4) for r in range(world)]
    assert len({len(share) for share in shares}) == 1, "all take the same number of steps"
    assert len(shares[0]) == len(stream(n, batch_size, rank=0, world=world))
    assert all(share for steps in shares for share in steps), "nobody gets an empty batch"
    together = [list(chain(*step)) for step in zip(*shares, strict=True)]
    assert list(chain(*together)) == list(chain(*alone)), "nothing twice, nothing lost, the same order"
    assert all(max(map(len, step)) - min(map(len, step)) <= 1 for step in zip(*shares, strict=True))


@pytest.mark.parametrize("augment", sorted(AUGMENTATIONS))
def test_augmented_batches_do_not_depend_on_the_number_of_processes(augment):
    data = load_data()
    images, labels = to_tensor(data.train.images[:96]), torch.from_numpy(data.train.labels[:96])
    normalize = fit("standardize", data)

    def run(rank: int, world: int) -> list[torch.Tensor]:
        batches = Batches(
            images, labels, 32, 7, normalize=normalize, augment=AUGMENTATIONS[augment], rank=rank, world=world
        )
        return [held for held, _ in batches.epoch(2)]

    for alone, one, two in zip(run(0, 1), run(0, 2), run(1, 2), strict=True):
        assert torch.equal(alone, torch.cat([one, two]))


def test_alternating_flips_follow_the_image_not_its_place():
    """Over two epochs, each shuffled its own way, every image is seen once from either side."""
    ramp = torch.arange(8, dtype=torch.float32).repeat(40, 1, 8, 1)
    batches = Batches(ramp, torch.arange(40), 16, augment=Augment(pad=0, flip="alternating"))
    sides: dict[int, list[bool]] = {label: [] for label in range(40)}
    for epoch in (0, 1):
        for images, labels in batches.epoch(epoch):
            for image, label in zip(images, labels, strict=True):
                sides[int(label)].append(bool(image[0, 0, 0] > 0))
    assert all(sorted(side) == [False, True] for side in sides.values())
    assert len({tuple(side) for side in sides.values()}) == 2, "not all begin from the same side"


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_batches_are_channels_last_and_float(channels, order):
    images = torch.randint(0, 255, (20, channels, 6, 6)).to(torch.uint8).contiguous(memory_format=order)
    for held, _ in Batches(images, torch.zeros(20, dtype=torch.int64), 8, normalize=lambda x: x.float()).epoch(0):
        assert held.is_contiguous(memory_format=torch.channels_last)
        assert held.dtype == torch.float32


def test_a_set_is_not_copied_into_a_stream():
    data = load_data()
    images = to_tensor(np.ascontiguousarray(data.train.images))
    assert Batches(images, torch.from_numpy(data.train.labels), 100).images.data_ptr() == images.data_ptr()


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: Batches(numbered(3), torch.arange(4), 2), "3 images but 4 labels"),
        (lambda: stream(3, 0), "expected at least one image for each"),
        (lambda: stream(3, 2, world=4), "expected at least one image for each"),
        (lambda: stream(3, 2, rank=2, world=2), "rank 2 of 2 processes; expected 0 to 1"),
        (lambda: stream(3, 2, seed=-1), "seed -1"),
        (lambda: list(stream(3, 2).epoch(-1)), "epoch -1"),
    ],
)
def test_what_is_refused(call, word):
    with pytest.raises(DataError, match=word):
        call()


def test_images_are_scaled_by_epoch_at_last() -> None:
    images = torch.randint(256, (12, 3, 8, 16), dtype=torch.uint8)
    common = {"seed": 3, "normalize": lambda x: x.float(), "augment": AUGMENTATIONS["crop-flip"]}
    sides = {0: 4, 1: 6, 2: 8, 3: None}
    scaled_ones = Batches(images, torch.arange(12), 5, side=sides.__getitem__, **common)
    whole = Batches(images, torch.arange(12), 5, **common)
    for epoch, side in sides.items():
        for (mine, labels), (theirs, order) in zip(scaled_ones.epoch(epoch), whole.epoch(epoch), strict=True):
            assert torch.equal(labels, order)
            assert mine.is_contiguous(memory_format=torch.channels_last)
            if side in (8, None):
                assert torch.equal(mine, theirs)
            else:
                assert mine.shape[2:] == (side, 2 * side)
                size = (side, 2 * side)
                expected = functional.interpolate(theirs.contiguous(), size, mode="bilinear", antialias=True)
                torch.testing.assert_close(mine.contiguous(), expected)


def test_halving_weighs_the_four_rows_around_each_new_one() -> None:
    """The oracle: by hand, along one side; weights fall linearly with the distance to the new pixel's centre."""
    row = torch.tensor([8.0, 0.0, 4.0, 2.0])
    image = row.view(1, 1, 4, 1).expand(1, 1, 4, 4).contiguous()
    got = scaled(image, 2)[0, 0, :, 0]
    first = (3 * row[0] + 3 * row[1] + row[2]) / 7
    last = (row[1] + 3 * row[2] + 3 * row[3]) / 7
    assert got.tolist() == pytest.approx([float(first), float(last)])
