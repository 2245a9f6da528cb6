"""Every format: what was written is what is read, and every way to damage a file ends in one line that names it."""

import contextlib
import gzip
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from publishers import cifar_record_bytes, random_images

from deepsup import load_data
from deepsup.errors import DataError
from deepsup.trainer.data._cifar import read_binary, read_python
from deepsup.trainer.data._idx import pack_idx, read_idx, read_pair
from deepsup.trainer.data._svhn import read_svhn

ALL = [
    ("mnist", 0),
    ("fashion-mnist", 0),
    ("cifar10", 0),
    ("cifar10", 1),
    ("cifar100", 0),
    ("cifar100", 1),
    ("svhn", 0),
]


def one_line(caught: pytest.ExceptionInfo[DataError], *words: str) -> None:
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(("name", "layout"), ALL)
def test_what_is_written_is_read(name, layout, small, data_root):
    made = small(name, layout)
    made.write(data_root)
    data = load_data(name, extra=name == "svhn", download=False)
    assert data.notes == ()
    for part, held in data.parts():
        assert held.images.dtype == np.uint8
        assert held.labels.dtype == np.int64
        np.testing.assert_array_equal(held.images, made.images[part])
        np.testing.assert_array_equal(held.labels, made.labels[part])


@pytest.mark.parametrize(("name", "layout"), ALL)
@pytest.mark.parametrize("keep", [0, 3, 0.5, -1])
def test_a_truncated_file_is_named(name, layout, keep, small, data_root):
    made = small(name, layout)
    folder = made.write(data_root)
    path = folder / made.layout.files["train"][0]
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)] if isinstance(keep, float) else data[:keep])
    with pytest.raises(DataError) as caught:
        load_data(name, download=False)
    one_line(caught, str(path))


@pytest.mark.parametrize(("name", "layout"), ALL)
def test_a_flipped_bit_is_an_error_or_a_note(name, layout, small, data_root):
    """Plain bytes cannot show that a pixel changed, but the published digest does; all else is an error."""
    made = small(name, layout)
    folder = made.write(data_root)
    path = folder / made.layout.files["train"][0]
    data = path.read_bytes()
    silent = 0
    for place in np.linspace(0, len(data) - 1, 25).astype(int):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
        with contextlib.suppress(DataError):
            silent += not load_data(name, download=False).notes
    assert silent == 0


def test_a_flipped_bit_in_gzip_fails_its_checksum(tmp_path):
    path = tmp_path / "labels.gz"
    data = bytearray(gzip.compress(pack_idx(np.arange(200, dtype=np.uint8))))
    for place in range(10, len(data)):
        data[place] ^= 1
        path.write_bytes(data)
        with pytest.raises(DataError, match=r"labels\.gz"):
            read_idx(path, axes=1)
        data[place] ^= 1


def test_idx_against_hand_made_bytes(tmp_path):
    path = tmp_path / "images"
    path.write_bytes(bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3, 9, 8, 7, 6, 5, 4]))
    values, _ = read_idx(path, axes=3)
    assert values.tolist() == [[[9, 8, 7]], [[6, 5, 4]]]


@pytest.mark.parametrize(
    ("header", "word"),
    [
        (b"\x00\x00\x08\x01" + struct.pack(">I", 3), "begins with 00 00 08 01"),
        (b"\x00\x00\x0d\x03" + struct.pack(">III", 1, 1, 1), "begins with 00 00 0d 03"),
        (b"PK\x03\x04" + bytes(20), "begins with 50 4b 03 04"),
        (b"\x00\x00\x08\x03\x00\x00", "ends inside its header"),
        (b"\x00\x00\x08\x03" + struct.pack(">III", 2**31, 2**31, 2**31), "claims"),
        (b"\x00\x00\x08\x03" + struct.pack(">III", 1, 1, 1) + b"ab", "more than 1"),
    ],
)
def test_wrong_idx_headers(tmp_path, header, word):
    path = tmp_path / "images"
    path.write_bytes(header)
    with pytest.raises(DataError) as caught:
        read_idx(path, axes=3)
    one_line(caught, word, "images")


def test_counts_that_disagree(tmp_path):
    images, labels = tmp_path / "images", tmp_path / "labels"
    images.write_bytes(pack_idx(np.zeros((3, 2, 2), np.uint8)))
    labels.write_bytes(pack_idx(np.zeros(4, np.uint8)))
    with pytest.raises(DataError, match="3 images but labels has 4 labels"):
        read_pair(images, labels)


@pytest.mark.parametrize(("name", "layout"), ALL)
def test_a_set_of_the_wrong_length(name, layout, small, data_root):
    made = small(name, layout)
    made.write(data_root)
    made.expect(counts={part: n + 1 for part, n in made.counts.items()})
    with pytest.raises(DataError, match=r"expected \d+; move .* away"):
        load_data(name, download=False)


@pytest.mark.parametrize(("name", "layout"), [each for each in ALL if each[0] != "svhn"])
def test_a_label_out_of_range(name, layout, small, data_root):
    made = small(name, layout)
    made.labels["train"][1] = 200
    made.write(data_root)
    with pytest.raises(DataError, match="label 200 at index 1 "):
        load_data(name, download=False)


def test_images_of_another_shape(small, data_root):
    made = small("mnist")
    made.images = {part: images[:, :, :27] for part, images in made.images.items()}
    made.write(data_root)
    with pytest.raises(DataError, match=r"shape \[1, 27, 28\]; expected \[1, 28, 28\]"):
        load_data("mnist", download=False)


def test_cifar_records_of_the_wrong_size(tmp_path):
    path = tmp_path / "train.bin"
    path.write_bytes(cifar_record_bytes(random_images(2, (3, 32, 32)), np.array([1, 2]), label_bytes=2))
    with pytest.raises(DataError, match="expected a multiple of 3,073"):
        read_binary([path], label_bytes=1, classes=10)


def test_cifar_keeps_its_channels_side_by_side_in_memory(tmp_path):
    path = tmp_path / "data_batch_1.bin"
    path.write_bytes(cifar_record_bytes(random_images(2, (3, 32, 32)), np.array([1, 2]), label_bytes=1))
    part, _ = read_binary([path], label_bytes=1, classes=10)
    assert part.images.transpose(0, 2, 3, 1).flags.c_contiguous


def python2_pickle(pixels: bytes, labels: list[int]) -> bytes:
    """What Python 2 wrote: strings are byte strings, and numpy lives under its old name."""
    n = len(labels)
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        + b"(K\x01K" + bytes([n]) + b"M\x00\x0c\x86"
        + b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        + b"\x89T" + struct.pack("<i", len(pixels)) + pixels + b"tb"
    )  # fmt: skip
    marks = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(U\x04data" + array + b"U\x06labels" + marks + b"u."


def test_a_pickle_of_python_2(tmp_path):
    images = random_images(2, (3, 32, 32))
    path = tmp_path / "data_batch_1"
    path.write_bytes(python2_pickle(images.tobytes(), [3, 7]))
    part, _ = read_python([path], b"labels", classes=10)
    np.testing.assert_array_equal(part.images, images)
    assert part.labels.tolist() == [3, 7]


def test_the_hand_made_pickle_is_one(tmp_path):
    """The reference unpickler and the real numpy read the same from it."""
    images = random_images(2, (3, 32, 32))
    data = python2_pickle(images.tobytes(), [3, 7]).replace(b"numpy.core.", b"numpy._core.")
    batch = pickle.loads(data, encoding="bytes")
    np.testing.assert_array_equal(batch[b"data"].reshape(images.shape), images)


class Malicious:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call[0], self.call[1:]


@pytest.mark.parametrize(
    ("call", "word"),
    [
        ((os.system, "touch pwned"), "system"),
        ((eval, "__import__('os').system('touch pwned')"), "eval"),
        ((getattr, 1, "real"), "getattr"),
        ((np.load, "x"), "load"),
        ((bytearray, 10), "bytearray"),
    ],
)
def test_a_pickle_that_imports(tmp_path, monkeypatch, call, word):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "data_batch_1"
    path.write_bytes(pickle.dumps({b"data": Malicious(*call), b"labels": [1]}, protocol=2))
    with pytest.raises(DataError) as caught:
        read_python([path], b"labels", classes=10)
    one_line(caught, str(path), "refused", word)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    "batch",
    [
        [1, 2],
        {b"labels": [1]},
        {b"data": np.zeros((1, 3072), np.uint8)},
        {b"data": np.zeros((1, 3072), np.uint8), b"labels": ["1"]},
        {b"data": np.zeros((1, 3072), np.float32), b"labels": [1]},
        {b"data": np.zeros((1, 3071), np.uint8), b"labels": [1]},
        {b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]},
        {b"data": np.zeros((1, 3072), np.uint8), b"labels": [10**30]},
        {b"data": np.zeros((1, 3072), np.uint8), b"labels": [-1]},
    ],
)
def test_pickles_of_the_wrong_content(tmp_path, batch):
    path = tmp_path / "data_batch_1"
    path.write_bytes(pickle.dumps(batch, protocol=2))
    with pytest.raises(DataError) as caught:
        read_python([path], b"labels", classes=10)
    one_line(caught, str(path))


def test_a_pickle_in_columns(tmp_path):
    images = random_images(3, (3, 32, 32))
    path = tmp_path / "data_batch_1"
    path.write_bytes(
        pickle.dumps({b"data": np.asfortranarray(images.reshape(3, -1)), b"labels": [1, 2, 3]}, protocol=2)
    )
    np.testing.assert_array_equal(read_python([path], b"labels", classes=10)[0].images, images)


def write_mat(path: Path, **arrays: np.ndarray) -> Path:
    scipy.io.savemat(path, arrays)
    return path


@pytest.mark.parametrize(
    ("arrays", "word"),
    [
        ({"X": np.zeros((32, 32, 3, 2), np.uint8)}, "holds 'X'; expected the variables X and y"),
        ({"X": np.zeros((32, 32, 2, 2), np.uint8), "y": np.ones((2, 1))}, "expected uint8 [32,32,3,N]"),
        ({"X": np.zeros((32, 32, 3, 2)), "y": np.ones((2, 1))}, "X is float64"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.ones((3, 1))}, "2 images but y is [3, 1]"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.array([[1], [11]])}, "label 11 at index 1"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.array([[1], [0]])}, "label 0 at index 1"),
    ],
)
def test_mat_files_of_the_wrong_content(tmp_path, arrays, word):
    path = write_mat(tmp_path / "train_32x32.mat", **arrays)
    with pytest.raises(DataError) as caught:
        read_svhn(path)
    one_line(caught, str(path), word)


def test_svhn_calls_ten_zero(tmp_path):
    x = random_images(3, (3, 32, 32))
    path = write_mat(tmp_path / "a.mat", X=x.transpose(2, 3, 1, 0), y=np.array([[10], [1], [9]], np.uint8))
    part, _ = read_svhn(path)
    assert part.labels.tolist() == [0, 1, 9]
    np.testing.assert_array_equal(part.images, x)


def test_a_file_with_another_digest_is_read_with_a_note(small, data_root, caplog):
    made = small("cifar100")
    folder = made.write(data_root)
    path = folder / "train.bin"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    read = load_data("cifar100", download=False)
    assert read.notes == (f"{path}: read, but its md5 is not the one published for cifar100",)
    assert read.notes[0] in caplog.text
