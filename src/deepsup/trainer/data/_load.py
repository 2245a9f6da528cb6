"""``load_data``: load a data set by its name or path."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from deepsup.errors import DataError, nearest
from deepsup.trainer.data._cifar import read_binary, read_python
from deepsup.trainer.data._dataset import Dataset, Part
from deepsup.trainer.data._halves import HALVES, NAMED
from deepsup.trainer.data._idx import read_pair
from deepsup.trainer.data._known_sets import KNOWN, Known, Layout
from deepsup.trainer.data._own import OwnImages, read_folder, read_npz
from deepsup.trainer.data._scenes import COMPOSED, Composed, compose
from deepsup.trainer.data._sources import Found, obtain
from deepsup.trainer.data._storage import read_errors_named
from deepsup.trainer.data._svhn import read_svhn

logger = logging.getLogger("deepsup")


def load_data(
    source: str | os.PathLike[str] = "mnist-mini",
    *,
    image_size: int | None = None,
    extra: bool = False,
    download: bool = True,
) -> Dataset:
    """Return a data set by its name, or from a folder of images or an .npz.

    Args:
        source: mnist-mini (shipped with deepsup), mnist, fashion-mnist, cifar10, cifar100, svhn; scenes with a class
            per pixel, composed of mnist-mini: digits-scenes, digits-scenes-small, digits-scenes-edges; half of the
            classes of cifar100: cifar100-first50, cifar100-last50; a folder with one sub-folder per class, or with
            ``images/`` and ``masks/``; an .npz with images and labels. A name comes before a folder: use ``./mnist``.
        image_size: for a folder, the height and width that all images are resized to.
        extra: for svhn, load the 531,131 images of its ``extra`` part too.
        download: fetch a named set that is not in the data folder.

    >>> data = load_data()
    >>> data.train.images.shape, data.test.images.shape
    ((1000, 1, 28, 28), (5000, 1, 28, 28))
    """
    known = KNOWN.get(os.fspath(source)) if isinstance(source, str) else None
    if extra and (known is None or "extra" not in known.counts):
        raise DataError(f"{source} has no part 'extra'; only svhn has")
    if isinstance(source, str) and source in NAMED and image_size is not None:
        raise DataError(f"image_size={image_size} for {source}, which has its own; expected it with a folder only")
    if isinstance(source, str) and source in COMPOSED:
        return load_scenes(COMPOSED[source])
    if isinstance(source, str) and source in HALVES:
        half = HALVES[source]
        return half.take(load_known(KNOWN[half.of], download=download)[0])
    if known is None:
        with read_errors_named(source):
            return _load_own(source, image_size)
    return load_known(known, extra, download)[0]


def load_scenes(composed: Composed) -> Dataset:
    """Return scenes of the embedded digits, always the same ones; test scenes are made of test digits."""
    digits = load_known(KNOWN["mnist-mini"])[0]
    parts = {
        name: compose(getattr(digits, name), count, composed, seed)
        for seed, (name, count) in enumerate(composed.counts.items())
    }
    return Dataset(composed.name, composed.classes, parts["train"], parts["test"])


def _load_own(source: str | os.PathLike[str], image_size: int | None) -> Dataset:
    data = read_own(source, image_size).with_test()
    for note in data.notes:
        logger.warning("%s", note)
    return data


def read_own(source: str | os.PathLike[str], image_size: int | None, channels: int | None = None) -> OwnImages:
    """Return the images of a folder or an .npz, in their parts."""
    path = Path(source).expanduser()
    if not os.fspath(source):
        raise DataError(f"no name of a data set was given; {nearest('', NAMED)}")
    if path.is_dir():
        return read_folder(path, image_size, channels)
    if not path.exists():
        raise DataError(f"no data set and no file {os.fspath(source)!r}; {nearest(os.fspath(source).lower(), NAMED)}")
    if path.suffix != ".npz":
        kind = f"a {path.suffix} file" if path.suffix else "a file without a suffix"
        raise DataError(f"{path}: {kind}; expected a folder with one sub-folder per class, or an .npz")
    if image_size is not None:
        raise DataError(
            f"image_size={image_size} for {path}; expected it with a folder only; resize the arrays before saving them"
        )
    return read_npz(path)


def load_known(known: Known, extra: bool = False, download: bool = True) -> tuple[Dataset, Found]:
    """Return a named data set, and the paths of its files."""
    parts = [part for part in known.counts if extra or part != "extra"]
    files = obtain(known, parts, download)
    loaded: dict[str, Part] = {}
    notes: list[str] = []
    for part, paths in files.parts.items():
        with read_errors_named(paths[0]):
            loaded[part], digests = reader(files.layout, known)(paths)
        others = [path for path, md5 in digests.items() if md5 != files.layout.md5[path.name.removesuffix(".gz")]]
        notes += [f"{path}: read, but its md5 is not the one published for {known.name}" for path in others]
        _check_count(known, part, loaded[part], others or paths)
    for note in notes:
        logger.warning("%s", note)
    extra_part = loaded.get("extra")
    data = Dataset(known.name, known.classes, loaded["train"], loaded["test"], extra=extra_part, notes=tuple(notes))
    return data, files


def reader(layout: Layout, known: Known) -> Callable[[list[Path]], tuple[Part, dict[Path, str]]]:
    """Return the function that turns the files of one part into the part and the digest of each file."""
    classes = len(known.classes)
    if layout.format == "idx":
        return lambda paths: read_pair(*paths)
    if layout.format == "cifar-binary":
        return lambda paths: read_binary(paths, label_bytes=1 if classes == 10 else 2, classes=classes)
    if layout.format == "cifar-python":
        key = b"labels" if classes == 10 else b"fine_labels"
        return lambda paths: read_python(paths, key, classes)
    assert layout.format == "svhn"
    return lambda paths: read_svhn(*paths)


def _check_count(known: Known, part: str, loaded: Part, paths: list[Path]) -> None:
    if len(loaded) != known.counts[part]:
        raise DataError(
            f"{known.name}: {len(loaded):,} images in the {part} part; expected {known.counts[part]:,}; "
            f"move {', '.join(map(str, paths))} away and get it again"
        )
    if loaded.images.shape[1:] != known.shape:
        raise DataError(
            f"{paths[0]}: images of shape {list(loaded.images.shape[1:])}; expected {list(known.shape)} for "
            f"{known.name}"
        )
