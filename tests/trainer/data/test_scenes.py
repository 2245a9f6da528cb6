"""Scenes composed of digits, and folders of images and masks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from deepsup import DeepsupError, load_data
from deepsup.errors import DataError
from deepsup.trainer.data import COMPOSED, check, compose, hold_out, subset
from deepsup.trainer.data._scenes import INK, edges_of


def test_scenes_are_always_the_same_and_have_masks_of_their_own_digits() -> None:
    digits = load_data()
    like = COMPOSED["digits-scenes"]
    first, again, other = (compose(digits.train, 5, like, seed) for seed in (3, 3, 4))
    assert np.array_equal(first.images, again.images)
    assert not np.array_equal(first.images, other.images)
    assert first.labels.max() <= 10
    ink = first.images[:, 0][first.labels > 0].mean()
    assert ink > first.images[:, 0][first.labels == 0].mean() + INK / 2


@pytest.mark.parametrize("name", COMPOSED)
def test_every_named_set_of_scenes(name: str) -> None:
    data = load_data(name)
    assert {part: len(held) for part, held in data.parts()} == COMPOSED[name].counts
    assert data.train.dense
    assert min(data.train.counts(len(data.classes))) > 100
    assert check(name).source == "composed of mnist-mini"
    with pytest.raises(DataError, match="which has its own"):
        load_data(name, image_size=32)


def test_scenes_hold_several_digits_of_different_sizes() -> None:
    part = load_data("digits-scenes").train
    kinds = [len(np.unique(mask)) - 1 for mask in part.labels]
    assert 2 < np.mean(kinds) < 8
    areas = [(mask == label).sum() for mask in part.labels[:100] for label in np.unique(mask)[1:]]
    assert max(areas) > 5 * min(areas)


def test_edges_lie_between_pixels_of_different_classes() -> None:
    mask = np.zeros((1, 5, 5), np.uint8)
    mask[0, 2, 2] = 7
    assert edges_of(mask)[0].tolist() == [
        [0, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]]  # fmt: skip


def test_parts_of_scenes() -> None:
    data = load_data("digits-scenes-small")
    held = hold_out(data, 100, seed=1)
    assert held.validation is not None
    assert (len(held.train), len(held.validation)) == (900, 100)
    assert subset(data.train, 30).labels.shape == (30, 32, 32)


# folders


def folder_of(
    path: Path, kind: str = "P", count: int = 10, size: tuple[int, int] = (12, 8), values: Any = (0, 1, 2)
) -> Path:
    """Images of 12x8 with masks: palette ("P") or gray ("L")."""
    random = np.random.default_rng(0)
    for name in ("images", "masks"):
        (path / name).mkdir(parents=True, exist_ok=True)
    for index in range(count):
        image = random.integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
        Image.fromarray(image).save(path / "images" / f"{index:02}.jpg")
        mask = Image.fromarray(random.choice(values, (size[1], size[0])).astype(np.uint8))
        if kind == "P":
            mask.putpalette([number for pixel in range(256) for number in (pixel, 255 - pixel, 7)])
        mask.save(path / "masks" / f"{index:02}.png")
    return path


@pytest.mark.parametrize("kind", ["P", "L"])
def test_masks_with_a_palette_and_gray_ones(tmp_path: Path, kind: str) -> None:
    data = load_data(folder_of(tmp_path / "set", kind, values=(0, 1, 2, 255)))
    assert data.classes == ("0", "1", "2")
    assert (len(data.train), len(data.test), data.shape) == (8, 2, (3, 8, 12))
    assert set(np.unique(data.train.labels)) == {0, 1, 2, 255}
    where = data.train.names[0]
    mask = np.asarray(Image.open(tmp_path / "set" / where.replace("images", "masks").replace("jpg", "png")))
    assert np.array_equal(data.train.labels[0], mask)


def test_black_and_white_masks_names_and_sizes(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "set", "L", values=(0, 255))
    (folder / "classes.txt").write_text("background\nlesion\n")
    data = load_data(folder, image_size=16)
    assert data.classes == ("background", "lesion")
    assert set(np.unique(data.train.labels)) == {0, 1}
    assert data.train.labels.shape[1:] == (16, 16) == data.shape[1:]


def test_train_and_test_folders(tmp_path: Path) -> None:
    folder_of(tmp_path / "set" / "train", count=6)
    folder_of(tmp_path / "set" / "test", count=3)
    data = load_data(tmp_path / "set")
    assert (len(data.train), len(data.test)) == (6, 3)
    assert data.test.names[0] == "test/images/00.jpg"


def write_mask(path: Path, array: np.ndarray) -> None:
    Image.fromarray(array).save(path)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(3 * 2**30)


def negative(masks: Path) -> None:
    (masks / "03.png").unlink()
    write_mask(masks / "03.tif", np.full((8, 12), -1, np.int32))


BAD: dict[str, tuple[Any, str]] = {
    "another size": (
        lambda d: write_mask(d / "masks" / "03.png", np.zeros((4, 4), np.uint8)),
        r"03\.png is 4x4, its image .*03\.jpg is 12x8; expected the same size; resize the mask",
    ),
    "a colour mask": (
        lambda d: write_mask(d / "masks" / "03.png", np.zeros((8, 12, 3), np.uint8)),
        r"a mask of mode 'RGB'; expected a class number per pixel.*convert the colours",
    ),
    "no mask": (lambda d: (d / "masks" / "03.png").unlink(), r"03\.jpg has no partner in .*masks \(1 such"),
    "no image": (lambda d: (d / "images" / "03.jpg").unlink(), r"03\.png has no partner in .*images"),
    "values far apart": (
        lambda d: write_mask(d / "masks" / "03.png", np.full((8, 12), 128, np.uint8)),
        r"masks have the values 0, 1, 2, 128.*number the classes from 0",
    ),
    "too few names": (lambda d: (d / "classes.txt").write_text("one\n"), r"1 names, but masks have class 2"),
    "too many names": (
        lambda d: (d / "classes.txt").write_text("x\n" * 256),
        r"classes\.txt: 256 names; expected at most",
    ),
    "names that are no text": (
        lambda d: (d / "classes.txt").write_bytes(b"a\xff\nb\nc\n"),
        r"cannot read .*classes\.txt: ",
    ),
    "gigabytes of names": (lambda d: sparse(d / "classes.txt"), r"classes\.txt: it has 3,221,225,472 bytes"),
    "a negative class": (lambda d: negative(d / "masks"), r"03\.tif: class number -1; expected 0 to 254"),
    "a broken mask": (lambda d: (d / "masks" / "03.png").write_bytes(b"no"), r"03\.png: not a readable image"),
    "a lossy mask": (
        lambda d: (d / "masks" / "03.png").unlink() or write_mask(d / "masks" / "03.jpg", np.ones((8, 12), np.uint8)),
        r"03\.jpg: a mask in JPEG, whose compression changes the class numbers; expected PNG",
    ),
    "a lossy mask with another suffix": (
        lambda d: Image.fromarray(np.ones((8, 12), np.uint8)).save(d / "masks" / "03.png", "JPEG"),
        "a mask in JPEG",
    ),
    "two images of one name": (
        lambda d: write_mask(d / "images" / "03.bmp", np.zeros((8, 12), np.uint8)),
        r"03\.bmp and 03\.jpg have the same name but for the suffix",
    ),
    "masks elsewhere": (
        lambda d: (d / "masks").rename(d / "labels"),
        r"labels has a file for every one in .*images; expected masks in .*masks; rename labels to masks",
    ),
    "nothing": (lambda d: [f.unlink() for f in [*(d / "images").iterdir(), *(d / "masks").iterdir()]], "no image;"),
}


@pytest.mark.parametrize("case", BAD)
def test_folders_that_do_not_fit(tmp_path: Path, case: str) -> None:
    folder = folder_of(tmp_path / "set", "L")
    BAD[case][0](folder)
    with pytest.raises(DeepsupError, match=BAD[case][1]):
        load_data(folder)


def test_one_class_only(tmp_path: Path) -> None:
    with pytest.raises(DeepsupError, match="every pixel has class 0"):
        load_data(folder_of(tmp_path / "set", "L", values=(0,)))
    with pytest.raises(DeepsupError, match="every pixel is 255, which is ignored"):
        load_data(folder_of(tmp_path / "ignored", "L", values=(255,)))
    with pytest.raises(DeepsupError, match=r"^one image only; expected two or more"):
        load_data(folder_of(tmp_path / "one", "L", count=1))
