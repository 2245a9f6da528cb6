"""Archives: a user's own is unpacked; one that reaches outside, swells or is broken is refused."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from deepsup import load_data
from deepsup.errors import DataError
from deepsup.trainer.data import _archive as archive
from deepsup.trainer.data._archive import unpack


def member(name: str, data: bytes = b"x", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def write_tar(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_an_archive_in_the_data_folder_is_unpacked(name, layout, small, tmp_path, data_root):
    made = small(name, layout)
    folder = made.write(tmp_path / "original")
    data_root.mkdir()
    kind = "binary" if layout == 0 else "python"
    with tarfile.open(data_root / f"cifar-{name[5:]}-{kind}.tar.gz", "w:gz") as tar:
        tar.add(folder, arcname=folder.name)
    data = load_data(name, download=False)
    np.testing.assert_array_equal(data.train.images, made.images["train"])
    assert sorted(path.name for path in data_root.iterdir()) == sorted([folder.name, f"cifar-{name[5:]}-{kind}.tar.gz"])


@pytest.mark.parametrize(
    "hostile",
    [
        member("../evil"),
        member("a/../../evil"),
        member("/tmp/deepsup-evil"),
        member("a/link", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        member("a/link", b"", type=tarfile.LNKTYPE, linkname="../evil"),
        member("a/device", b"", type=tarfile.CHRTYPE),
        member("a/pipe", b"", type=tarfile.FIFOTYPE),
        member("..\\evil"),
        member("C:evil"),
    ],
    ids=lambda each: f"{each[0].name}-{each[0].type!r}",
)
def test_a_hostile_member(hostile, tmp_path):
    path = write_tar(tmp_path / "a.tar.gz", member("good"), hostile)
    inside = tmp_path / "inside"
    with pytest.raises(DataError, match="refused") as caught:
        unpack(path, inside)
    assert repr(hostile[0].name) in str(caught.value)
    assert {each.name for each in tmp_path.rglob("*")} <= {"a.tar.gz", "inside", "good"}
    assert not Path("/tmp/deepsup-evil").exists()


def test_a_hostile_archive_leaves_the_data_folder_as_it_was(data_root):
    data_root.mkdir()
    path = write_tar(data_root / "cifar-10-binary.tar.gz", member("cifar-10-batches-bin/x.bin"), member("../evil"))
    with pytest.raises(DataError, match="points outside"):
        load_data("cifar10", download=False)
    assert list(data_root.iterdir()) == [path]
    assert not (data_root.parent / "evil").exists()


def test_an_archive_that_swells(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MOST_BYTES", 1000)
    path = write_tar(tmp_path / "a.tar.gz", member("a", bytes(600)), member("b", bytes(600)))
    with pytest.raises(DataError, match="more than 1,000 bytes"):
        unpack(path, tmp_path / "inside")


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "text"])
def test_a_damaged_archive(damage, tmp_path):
    path = write_tar(tmp_path / "a.tar.gz", member("a", np.random.default_rng(0).bytes(50_000)))
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        data[len(data) // 2] ^= 1
    path.write_bytes({"truncated": data[: len(data) // 2], "flipped": data, "empty": b"", "text": b"<html>"}[damage])
    with pytest.raises(DataError, match=r"a\.tar\.gz.*get it again") as caught:
        unpack(path, tmp_path / "inside")
    assert "\n" not in str(caught.value)
