"""Your own images: folders and .npz files, read as they are, and every mistake in them named."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from deepsup import load_data
from deepsup.errors import DataError


def picture(path: Path, value: int = 100, size: tuple[int, int] = (6, 4), mode: str = "RGB", **save: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value if mode in ("L", "1", "P") else (value,) * len(mode)).save(path, **save)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes of five images, 6 wide and 4 high."""
    for label, name in enumerate(("cats", "dogs")):
        for i in range(5):
            picture(tmp_path / "mine" / name / f"{i}.png", value=100 * label + i)
    return tmp_path / "mine"


def test_a_folder_with_a_sub_folder_a_class(folder, caplog):
    data = load_data(folder)
    assert data.name == "mine"
    assert data.classes == ("cats", "dogs")
    assert data.shape == (3, 4, 6)
    assert data.train.counts(2) == [4, 4]
    assert data.test.counts(2) == [1, 1]
    held = {(int(x.flat[0]), int(y)) for _, part in data.parts() for x, y in zip(part.images, part.labels, strict=True)}
    assert held == {(100 * label + i, label) for label in (0, 1) for i in range(5)}
    assert "no test part: 2 of its 10 images" in data.notes[0]
    assert data.notes[0] in caplog.text


def test_the_split_of_a_folder_is_always_the_same(folder):
    one, two = load_data(folder), load_data(str(folder))
    np.testing.assert_array_equal(one.test.images, two.test.images)


def test_a_folder_with_parts(tmp_path):
    for part, n in (("train", 3), ("test", 2), ("val", 1)):
        for name in ("a", "b"):
            for i in range(n):
                picture(tmp_path / "mine" / part / name / f"{i}.png")
    data = load_data(tmp_path / "mine")
    assert {name: len(part) for name, part in data.parts()} == {"train": 6, "validation": 2, "test": 4}
    assert data.notes == ()


def test_pixels_are_read_in_their_order(tmp_path):
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    for name in ("a", "b"):
        for i in range(2):
            path = tmp_path / "mine" / name / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    np.testing.assert_array_equal(load_data(tmp_path / "mine").train.images[0], pixels.transpose(2, 0, 1))


def test_images_are_resized_when_asked(folder):
    picture(folder / "cats" / "large.jpg", size=(60, 40))
    assert load_data(folder, image_size=8).shape == (3, 8, 8)


def test_mixed_sizes_are_refused_with_both_named(folder):
    large = picture(folder / "dogs" / "large.png", size=(60, 40))
    with pytest.raises(DataError) as caught:
        load_data(folder)
    assert "0.png is 6x4" in str(caught.value)
    assert f"{large} is 60x40" in str(caught.value)
    assert "image_size" in str(caught.value)


def test_one_grey_image_among_colours(folder):
    picture(folder / "cats" / "grey.png", mode="L", value=50)
    assert load_data(folder).shape == (3, 4, 6)


@pytest.mark.parametrize("mode", ["L", "1"])
def test_all_grey_is_one_channel(tmp_path, mode):
    for name in ("a", "b"):
        for i in range(2):
            picture(tmp_path / "mine" / name / f"{i}.png", mode=mode, value=1)
    assert load_data(tmp_path / "mine").shape == (1, 4, 6)


def test_other_modes(folder):
    picture(folder / "cats" / "alpha.png", mode="RGBA")
    picture(folder / "cats" / "palette.gif", mode="P")
    picture(folder / "cats" / "print.jpg", mode="CMYK")
    Image.fromarray(np.full((4, 6), 0x8000, np.uint16)).save(folder / "cats" / "deep.png")
    data = load_data(folder)
    assert sum(len(part) for _, part in data.parts()) == 14
    assert any((image == 0x80).all() for _, part in data.parts() for image in part.images), "16 bits become 8"


def transparent(kind: str, path: Path) -> None:
    """Save an image whose left half is transparent, with black hidden below, and whose right half is 60 in grey."""
    pixels = np.zeros((4, 6, 4), np.uint8)
    pixels[:, 3:] = (60, 60, 60, 255)
    image = Image.fromarray(pixels)
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "P":
        palette = image.convert("RGB").quantize(2)
        palette.save(path, transparency=palette.getpixel((0, 0)))
    elif kind in ("L", "RGB"):  # one value is transparent
        image.convert(kind).save(path, transparency=0 if kind == "L" else (0, 0, 0))
    else:
        image.convert(kind).save(path)


@pytest.mark.parametrize(("kind", "channels"), [("RGBA", 3), ("LA", 1), ("P", 3), ("L", 1), ("RGB", 3)])
def test_transparent_images_lie_on_white(tmp_path, kind, channels):
    for name in ("a/0", "a/1", "b/0", "b/1"):
        transparent(kind, tmp_path / "mine" / f"{name}.png")
    expected = np.full((channels, 4, 6), 255, np.uint8)
    expected[:, :, 3:] = 60
    np.testing.assert_array_equal(load_data(tmp_path / "mine").train.images[0], expected)


def test_what_is_half_transparent_is_mixed_with_white(tmp_path):
    for name in ("a/0", "a/1", "b/0", "b/1"):
        path = picture(tmp_path / "mine" / f"{name}.png", mode="RGBA")
        Image.new("RGBA", (6, 4), (100, 50, 0, 128)).save(path)
    expected = [round(value * 128 / 255 + 255 * 127 / 255) for value in (100, 50, 0)]
    assert np.abs(load_data(tmp_path / "mine").train.images[0, :, 0, 0] - np.array(expected)).max() <= 1


def test_an_image_that_lies_down_is_raised(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    for name in ("a", "b"):
        for i in range(2):
            picture(tmp_path / "mine" / name / f"{i}.jpg", size=(6, 4), exif=exif)
    assert load_data(tmp_path / "mine").shape == (3, 6, 4)


def test_what_file_managers_leave_is_passed_over(folder):
    (folder / "cats" / ".DS_Store").write_bytes(b"x")
    (folder / "cats" / "Thumbs.db").write_bytes(b"x")
    (folder / ".hidden").mkdir()
    assert len(load_data(folder).classes) == 2


@pytest.mark.parametrize("damage", ["text", "truncated", "empty"])
def test_an_unreadable_image_is_named(folder, damage):
    path = folder / "cats" / "3.png"
    data = path.read_bytes()
    path.write_bytes({"text": b"not an image", "truncated": data[: len(data) // 2], "empty": b""}[damage])
    with pytest.raises(DataError, match="not a readable image") as caught:
        load_data(folder)
    assert str(caught.value).startswith(f"{path}: ")
    assert "the file" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_image_that_would_fill_the_memory(folder, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 5)
    with pytest.raises(DataError, match="not a readable image"):
        load_data(folder)


def test_an_empty_class_is_named(folder):
    (folder / "birds").mkdir()
    with pytest.raises(DataError, match=r"birds: no image of class 'birds'"):
        load_data(folder)


def test_a_folder_that_is_none(tmp_path, folder):
    with pytest.raises(DataError, match="0 sub-folders; expected two or more"):
        load_data(folder / "cats")
    (tmp_path / "one" / "only").mkdir(parents=True)
    with pytest.raises(DataError, match=r"1 sub-folder \(only\); expected two or more"):
        load_data(tmp_path / "one")


def test_parts_with_other_classes(tmp_path):
    for place in ("train/a", "train/b", "test/a", "test/c"):
        picture(tmp_path / "mine" / place / "0.png")
    with pytest.raises(DataError, match=r"classes differ .*\(b, c\)"):
        load_data(tmp_path / "mine")


def test_too_few_to_test_on(tmp_path):
    for path in ("a/0.png", "a/1.png", "b/0.png"):
        picture(tmp_path / "mine" / path)
    with pytest.raises(DataError, match=r"class 'b' has one image only; expected two or more, .*remove the class"):
        load_data(tmp_path / "mine")


@pytest.mark.parametrize("size", [0, -3, (8, 8)])
def test_a_size_that_is_none(folder, size):
    with pytest.raises(DataError, match="expected one whole number, 1 or more pixels"):
        load_data(folder, image_size=size)


X = np.arange(6 * 4 * 5 * 3, dtype=np.uint8).reshape(6, 4, 5, 3)
Y = np.array([0, 1, 2, 0, 1, 2])


def npz(tmp_path: Path, **arrays: object) -> Path:
    np.savez(tmp_path / "mine.npz", **arrays)
    return tmp_path / "mine.npz"


@pytest.mark.parametrize(
    ("train", "test", "labels"),
    [
        ("x_train", "x_test", ("y_train", "y_test")),
        ("train_images", "test_images", ("train_labels", "test_labels")),
    ],
)
def test_an_npz_by_parts(tmp_path, train, test, labels):
    data = load_data(npz(tmp_path, **{train: X, test: X[:3], labels[0]: Y, labels[1]: Y[:3, None]}))
    np.testing.assert_array_equal(data.train.images, X.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(data.test.labels, Y[:3])
    assert data.classes == ("0", "1", "2")


def test_an_npz_without_parts(tmp_path):
    data = load_data(npz(tmp_path, images=X[..., 0], labels=Y, classes=np.array(["a", "b", "c"])))
    assert data.shape == (1, 4, 5)
    assert data.classes == ("a", "b", "c")
    assert (len(data.train), len(data.test)) == (3, 3)


def test_an_npz_with_channels_first(tmp_path):
    data = load_data(
        npz(tmp_path, x_train=X.transpose(0, 3, 1, 2), x_test=X.transpose(0, 3, 1, 2), y_train=Y, y_test=Y)
    )
    np.testing.assert_array_equal(data.train.images, X.transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("arrays", "word"),
    [
        ({"images": X}, "holds 'images'; expected images and labels"),
        ({"images": X / 255, "labels": Y}, "float64 with values 0 to 1; expected whole numbers 0 to 255"),
        ({"images": X.astype(int) - 9, "labels": Y}, "values -9 to"),
        ({"images": X.astype(int) + 99, "labels": Y}, "expected whole numbers 0 to 255"),
        ({"images": X[0], "labels": Y}, "4 images but labels of shape [6]"),
        ({"images": X[:, :, :, :2], "labels": Y}, "shape [6, 4, 5, 2]; expected"),
        ({"images": X, "labels": Y[:5]}, "6 images but labels of shape [5]"),
        ({"images": X, "labels": Y / 2}, "expected whole numbers, one per image"),
        ({"images": X, "labels": Y - 1}, "labels begin at -1"),
        ({"images": X, "labels": Y * 5}, "no training image of class 1 though labels go up to 10"),
        ({"images": X, "labels": Y * 0}, "every label is 0; expected two or more classes"),
        ({"images": X, "labels": Y, "classes": np.array(["a"])}, "1 class names for 3 classes"),
        ({"x_train": X, "y_train": Y, "x_test": X}, "one of x_test and y_test is missing"),
        ({"x_train": X, "y_train": Y, "x_test": X, "y_test": Y + 1}, "label 3 at index 2"),
        ({"x_train": X, "y_train": Y, "x_test": X[:, 1:], "y_test": Y}, "expected one shape"),
        ({"images": X[:0], "labels": Y[:0]}, "no training image; expected images of two or more classes"),
        ({"images": np.array([{}]), "labels": Y}, "not a readable .npz of plain arrays"),
    ],
)
def test_an_npz_that_is_wrong(tmp_path, arrays, word):
    with pytest.raises(DataError) as caught:
        load_data(npz(tmp_path, **arrays))
    assert word in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "text"])
def test_a_damaged_npz(tmp_path, damage):
    path = npz(tmp_path, images=X, labels=Y)
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        data[len(data) // 3] ^= 1
    path.write_bytes({"truncated": data[:-30], "flipped": data, "empty": b"", "text": b"hello"}[damage])
    with pytest.raises(DataError, match="not a readable"):
        load_data(path)


def test_what_is_neither(tmp_path):
    (tmp_path / "a.csv").write_text("1,2")
    with pytest.raises(DataError, match=r"a \.csv file; expected a folder with one sub-folder per class"):
        load_data(tmp_path / "a.csv")
    with pytest.raises(DataError, match="no data set and no file 'cifar11'; did you mean 'cifar10'"):
        load_data("cifar11")
    with pytest.raises(DataError, match="did you mean 'cifar10'"):
        load_data("CIFAR-10")
    with pytest.raises(DataError, match="no name of a data set"):
        load_data("")
    with pytest.raises(DataError, match="which has its own"):
        load_data("mnist-mini", image_size=32)
    with pytest.raises(DataError, match="expected it with a folder only; resize the arrays"):
        load_data(npz(tmp_path, images=X, labels=Y), image_size=32)
    with pytest.raises(DataError, match="only svhn has"):
        load_data("mnist", extra=True)
