"""Small sets in the publishers' own formats, for tests: names and numbers in, files and what they must read as out."""

import dataclasses
import hashlib
import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from deepsup.trainer.data import KNOWN
from deepsup.trainer.data._idx import pack_idx
from deepsup.trainer.data._known_sets import Known

RNG = np.random.default_rng(0)


def labels_of(n: int, classes: int) -> np.ndarray:
    """Every class at least once, as long as there is room."""
    return (np.arange(n) % classes).astype(np.int64)


def random_images(n: int, shape: tuple[int, int, int]) -> np.ndarray:
    return RNG.integers(0, 256, (n, *shape), np.uint8)


def cifar_record_bytes(images: np.ndarray, labels: np.ndarray, label_bytes: int) -> bytes:
    """One record after the other, the slow explicit way."""
    out = bytearray()
    for image, label in zip(images, labels, strict=True):
        if label_bytes == 2:
            out.append(int(label) % 20)
        out.append(int(label))
        for channel in range(3):
            for row in range(32):
                out += image[channel, row].tobytes()
    return bytes(out)


def write_part(folder: Path, format: str, names: tuple[str, ...], images: np.ndarray, labels: np.ndarray) -> None:
    """Write one part: the files share the images evenly."""
    folder.mkdir(parents=True, exist_ok=True)
    if format == "idx":
        (folder / names[0]).write_bytes(pack_idx(images[:, 0]))
        (folder / names[1]).write_bytes(pack_idx(labels.astype(np.uint8)))
        return
    for name, x, y in zip(names, np.array_split(images, len(names)), np.array_split(labels, len(names)), strict=True):
        if format == "cifar-binary":
            (folder / name).write_bytes(cifar_record_bytes(x, y, 1 if "batch" in name else 2))
        elif format == "cifar-python":
            key = b"labels" if "batch" in name else b"fine_labels"
            batch = {b"data": x.reshape(len(x), -1), key: [int(v) for v in y]}
            (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
        else:
            y = np.where(y == 0, 10, y)[:, None]
            scipy.io.savemat(folder / name, {"X": x.transpose(2, 3, 1, 0), "y": y}, do_compression=True)


class Small:
    """A named set cut down to a few images: the catalog expects these, and they can be written in any layout."""

    def __init__(self, name: str, monkeypatch: pytest.MonkeyPatch, layout: int = 0) -> None:
        known = KNOWN[name]
        size = {"train": 2 * len(known.classes), "test": len(known.classes), "extra": len(known.classes)}
        self.counts = {part: size[part] for part in known.counts}
        self.images = {part: random_images(n, known.shape) for part, n in self.counts.items()}
        self.labels = {part: labels_of(n, len(known.classes)) for part, n in self.counts.items()}
        self.layout = known.layouts[layout]
        self.name, self._monkeypatch = name, monkeypatch
        # digits=-1: any mean will do
        self.expect(counts=self.counts, digits=-1, root=None)

    @property
    def known(self) -> Known:
        return KNOWN[self.name]

    def expect(self, **changes: object) -> None:
        self._monkeypatch.setitem(KNOWN, self.name, dataclasses.replace(self.known, **changes))

    def write(self, root: Path) -> Path:
        """Write all parts below a root and let the catalog expect the digests of these very files."""
        folder = root / self.layout.folder
        for part, names in self.layout.files.items():
            write_part(folder, self.layout.format, names, self.images[part], self.labels[part])
        md5 = {name: hashlib.md5((folder / name).read_bytes()).hexdigest() for name in self.layout.md5}
        layouts = [dataclasses.replace(each, md5=md5) if each == self.layout else each for each in self.known.layouts]
        self.expect(layouts=tuple(layouts))
        self.layout = next(each for each in layouts if each.format == self.layout.format)
        return folder
