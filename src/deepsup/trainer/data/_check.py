"""Check a data set: its parts, counts and channel means, compared with the published ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deepsup.errors import DataError, nearest
from deepsup.trainer.data._dataset import Dataset, Images
from deepsup.trainer.data._halves import HALVES, NAMED
from deepsup.trainer.data._known_sets import KNOWN, Known
from deepsup.trainer.data._load import load_data, load_known
from deepsup.trainer.data._scenes import COMPOSED
from deepsup.trainer.data._sources import find
from deepsup.trainer.data._storage import data_folder


@dataclass(frozen=True)
class Report:
    """The report on a data set: plain values, ready for JSON."""

    name: str
    source: str
    files: list[str]
    classes: list[str]
    shape: list[int]
    """[C,H,W]."""
    parts: dict[str, int]
    per_class: dict[str, list[int]]
    means: list[float]
    """The mean of each channel of the training part, for values in 0..1."""
    published_means: list[float] | None
    exact: bool | None
    """Whether every file has its published digest; None for your own images."""
    notes: list[str]


def is_present(known: Known, extra: bool = False) -> bool:
    """Whether the files of a named data set exist, without reading them."""
    return find(known, [part for part in known.counts if extra or part != "extra"]) is not None


def get(name: str, extra: bool = False) -> Report:
    """Fetch a named data set if it is missing, read it and compare it with the published values."""
    if name in COMPOSED and not extra:
        return check(name)
    if name in HALVES and not extra:
        get(HALVES[name].of)
        return check(name)
    if name not in NAMED:
        raise DataError(f"no data set {name!r}; {nearest(name.lower(), NAMED)}")
    if extra and (name not in KNOWN or "extra" not in KNOWN[name].counts):
        raise DataError(f"{name} has no part 'extra'; only svhn has")
    return _check_known(KNOWN[name], extra)


def check(source: str, image_size: int | None = None) -> Report:
    """Read a local data set by its name or path; compare a named one with the published values."""
    if source not in KNOWN:
        data = load_data(source, image_size=image_size)
        made = "composed of mnist-mini" if source in COMPOSED else source
        made = HALVES[source].about if source in HALVES else made
        return _report(data, made, [], channel_means(data.train.images))
    known = KNOWN[source]
    if image_size is not None:
        raise DataError(f"image size {image_size} for {source}, which has its own; expected it with a folder only")
    if not is_present(known):
        raise DataError(f"{source} is not in {data_folder()}; run: deepsup data get {source}")
    return _check_known(known, extra="extra" in known.counts and is_present(known, extra=True))


def _check_known(known: Known, extra: bool) -> Report:
    data, source = load_known(known, extra)
    means = channel_means(data.train.images)
    _compare(known, data, means)
    files = [str(path) for paths in source.parts.values() for path in paths]
    return _report(data, source.source, files, means, known)


def _report(data: Dataset, source: str, files: list[str], means: list[float], known: Known | None = None) -> Report:
    return Report(
        name=data.name,
        source=source,
        files=files,
        classes=list(data.classes),
        shape=list(data.shape),
        parts={part: len(images) for part, images in data.parts()},
        per_class={part: images.counts(len(data.classes)) for part, images in data.parts()},
        means=means,
        published_means=list(known.means) if known else None,
        exact=not data.notes if known else None,
        notes=list(data.notes),
    )


def channel_means(images: Images) -> list[float]:
    """Return the mean of each channel for values in 0..1: an exact integer sum, then one division."""
    count = images.size // images.shape[1]
    return [int(images[:, c].sum(dtype=np.uint64)) / (255 * count) for c in range(images.shape[1])]


def _compare(known: Known, data: Dataset, means: list[float]) -> None:
    for part, images in data.parts():
        counts = images.counts(len(known.classes))
        if min(counts) == 0:
            raise DataError(f"{known.name}: no image of class {known.classes[counts.index(0)]} in the {part} part")
    # half a unit of the last published digit, plus a small tolerance for rounding
    if any(abs(mean - expected) > 0.51 * 10**-known.digits for mean, expected in zip(means, known.means, strict=True)):
        raise DataError(
            f"{known.name}: channel means {', '.join(f'{mean:.6f}' for mean in means)}; "
            f"expected {', '.join(f'{each:.{known.digits}f}' for each in known.means)}: these are other images"
        )
