"""The recorded split of a run: load the same parts again from a folder or .npz that may have changed.

Images are identified by their names, so new images belong to no part.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deepsup.errors import DataError
from deepsup.trainer.data._dataset import Dataset, Part
from deepsup.trainer.data._load import read_own
from deepsup.trainer.data._mask_folder import has_masks, read_mask_folder
from deepsup.trainer.data._own import files_in, image_digests, read_files
from deepsup.trainer.data._storage import read_errors_named

logger = logging.getLogger("deepsup")


@dataclass(frozen=True)
class Split:
    """The names of the user's own images in each part."""

    classes: tuple[str, ...]
    shape: tuple[int, ...]
    """The shape of one image: [C,H,W]."""
    names: dict[str, list[str]]
    """``train``, ``test``, optionally ``validation``; ``unused``: images left out by ``train_size``."""
    labels: dict[str, list[int]]
    """The label of each name; none for ``unused``."""
    trained: list[str]
    """Digests of all images seen in training or validation: they are never used as test images."""

    @staticmethod
    def of(source: Dataset, data: Dataset) -> Split | None:
        """Return the split of ``data`` from ``source``; None for named data sets, which never change."""
        if not source.train.names:
            return None
        parts = dict(data.parts())
        taken = {name for part in parts.values() for name in part.names}
        names = {part: list(rows.names) for part, rows in parts.items()}
        names["unused"] = [name for _, part in source.parts() for name in part.names if name not in taken]
        labels = {part: rows.strata.tolist() for part, rows in parts.items()}
        trained = [digest for part in parts if part != "test" for digest in image_digests(parts[part].images)]
        return Split(data.classes, data.shape, names, labels, trained)

    @staticmethod
    def from_dict(record: Mapping[str, Any]) -> Split:
        return Split(
            tuple(record["classes"]), tuple(record["shape"]), record["names"], record["labels"], record["trained"]
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the split as plain types."""
        return dataclasses.asdict(self)

    def load(self, source: str | os.PathLike[str], image_size: int | None) -> tuple[Dataset, dict[str, list[str]]]:
        """Return the recorded parts, and the names of missing images per part."""
        path = Path(source).expanduser()
        with read_errors_named(path):
            parts, present = self._files(path, image_size) if path.is_dir() else self._rows(path, image_size)
        gone = {part: [name for name in self.names[part] if name not in present] for part in self.labels}
        if len(gone["test"]) == len(self.names["test"]):
            raise DataError(f"{path}: all test images of the run are gone, first {gone['test'][0]}; bring them back")
        notes = self._notes(path, present, gone)
        for note in notes:
            logger.warning("%s", note)
        data = Dataset(
            path.name.removesuffix(".npz"),
            self.classes,
            parts["train"],
            parts["test"],
            parts.get("validation"),
            notes=tuple(notes),
        )
        return data, gone

    def _files(self, folder: Path, size: int | None) -> tuple[dict[str, Part], set[str]]:
        """Read only the files of a folder that belong to a part."""
        if has_masks(folder):
            return self._pairs(folder, size)
        present = {path.relative_to(folder).as_posix() for path in files_in(folder)}
        parts = {}
        for part, labels in self.labels.items():
            known = zip(self.names[part], labels, strict=True)
            files = [(folder / name, label) for name, label in known if name in present]
            parts[part] = read_files(folder, files, self.shape[0], size) if files else self._empty()
        return parts, present

    def _pairs(self, folder: Path, size: int | None) -> tuple[dict[str, Part], set[str]]:
        """Read images and masks; a mask is not recorded, since it is the user's to mend."""
        _, pairs = read_mask_folder(folder, size, self.shape[0])
        every = {name: (part, place) for part in pairs.values() for place, name in enumerate(part.names)}
        parts = {}
        for part in self.labels:
            places = [every[name] for name in self.names[part] if name in every]
            taken = [one.take(np.array([place], np.intp)) for one, place in places]
            parts[part] = joined(taken) if taken else self._empty()
        return parts, set(every)

    def _rows(self, path: Path, size: int | None) -> tuple[dict[str, Part], set[str]]:
        """Take the rows of an .npz that belong to a part."""
        own_parts = list(read_own(path, size).parts.values())
        if any(part.images.shape[1:] != self.shape for part in own_parts):
            raise DataError(f"{path}: expected images {list(self.shape)}, as when the run was begun; bring them back")
        images, labels = (np.concatenate([getattr(part, what) for part in own_parts]) for what in ("images", "labels"))
        every = Part(images, labels, tuple(name for part in own_parts for name in part.names))
        places = {name: place for place, name in enumerate(every.names)}
        parts = {
            part: every.take(np.array([places[name] for name in self.names[part] if name in places], np.intp))
            for part in self.labels
        }
        return parts, set(places)

    def _empty(self) -> Part:
        return Part(np.empty((0, *self.shape), np.uint8), np.empty(0, np.int64))

    def _notes(self, path: Path, present: set[str], gone: dict[str, list[str]]) -> list[str]:
        notes = []
        new = len(present.difference(*self.names.values()))
        if new:
            notes.append(f"{path}: new since the run was begun, neither trained nor tested on: {counted(new)}")
        for part, names in gone.items():
            if names:
                notes.append(
                    f"{path}: gone: {len(names):,} of {len(self.names[part]):,} {part} images, first {names[0]}"
                )
        return notes


def joined(parts: list[Part]) -> Part:
    names = tuple(name for part in parts for name in part.names)
    return Part(np.concatenate([p.images for p in parts]), np.concatenate([p.labels for p in parts]), names)


def counted(images: int) -> str:
    """Return the number of images as text."""
    return f"{images:,} image{'' if images == 1 else 's'}"


def load_test(
    source: str | os.PathLike[str], image_size: int | None, channels: int
) -> tuple[str, tuple[str, ...], Part]:
    """Return name, classes and test images of the user's own data: its test part, or all images without one."""
    with read_errors_named(source):
        own = read_own(source, image_size, channels)
    return own.name, own.classes, own.parts.get("test", own.parts["train"])
