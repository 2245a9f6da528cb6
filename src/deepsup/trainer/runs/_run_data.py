"""A run -> the images it is trained and tested on: drawn as its config says, then for good as it has recorded them."""

import logging
import os
import zlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from deepsup.errors import DataError, RunError, TrainingError
from deepsup.trainer.config import Config
from deepsup.trainer.data import (
    NAMED,
    Dataset,
    Images,
    Part,
    Split,
    counted,
    hold_out,
    image_digests,
    load_data,
    load_test,
    subset,
    svhn_protocol,
)
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.runs._model import Model

logger = logging.getLogger("deepsup")
FITTED_IMAGES = 5000
MANY_FILES = 5000


def with_batch_size(config: Config) -> Config:
    """Return the config with a batch size that suits the user's own images: of few images it makes too few steps."""
    path = Path(config.data.source).expanduser()
    if config.data.source in NAMED or not path.exists():
        return config
    return config.replace(batch_size=min(config.run.batch_size, suited_batch_size(about_images(path, config))))


def suited_batch_size(images: int) -> int:
    """Return a tenth of so many training images as a power of two, at least 16 and at most all (dev/LOG.md).

    >>> [suited_batch_size(images) for images in (9, 100, 480, 1279, 1280)]
    [9, 16, 32, 64, 128]
    """
    return max(1, min(images, max(16, 1 << (images // 10).bit_length() >> 1)))


def about_images(path: Path, config: Config) -> int:
    """Return about how many training images there are; of a folder, without reading them: photos take long."""
    if path.is_file():
        return len(draw_data(config.replace(batch_size=1))[0].train)
    part = path / "train" if (path / "train").is_dir() else path
    images = part / "images" if (part / "masks").is_dir() else part
    files = islice((each for each in images.rglob("[!.]*.*") if each.is_file()), MANY_FILES)
    count = sum(1 for _ in files)
    left = count - config.data.validation if part != path else 4 * count // 5 - config.data.validation
    return min(left, config.data.train_size or left)


def draw_data(config: Config) -> tuple[Dataset, Split | None]:
    """Return the parts that the config asks for, and which images are in them; no split for sets known by name."""
    source = load_data(config.data.source, image_size=config.data.image_size, extra=config.data.extra)
    data = source
    if config.data.extra:
        data = svhn_protocol(data, config.run.seed)
    elif config.data.validation:
        data = hold_out(data, config.data.validation, config.run.seed)
    if config.data.train_size is not None:
        data = replace(data, train=subset(data.train, config.data.train_size, config.run.seed), extra=None)
    images = len(data.train)
    if config.run.batch_size > images:
        raise TrainingError(
            f"batch_size={config.run.batch_size} with {images} training images; expected at most that many; "
            f"give e.g. --batch-size {min(images, max(16, images // 10))}"
        )
    return data, Split.of(source, data)


def data_to_train(run: RunFolder, config: Config) -> tuple[Dataset, Split | None]:
    """Return the parts of a run that begins, or those that it has begun with."""
    if run.split is None:
        return draw_data(config)
    split = Split.from_dict(run.split)
    data, gone = split.load(config.data.source, config.data.image_size)
    lost = gone["train"] + gone.get("validation", [])
    if lost:
        raise RunError(
            f"{run.folder} was begun with training images that are gone from {config.data.source}: "
            f"{counted(len(lost))}, first {lost[0]}; bring them back, or choose another --out"
        )
    return data, split


def data_of(run: RunFolder, config: Config) -> Dataset:
    """Return the parts of a finished run, as far as its images are still there."""
    if run.split is not None:
        return Split.from_dict(run.split).load(config.data.source, config.data.image_size)[0]
    if config.data.source not in NAMED:
        logger.warning("%s has not recorded which images it was trained on; its parts are drawn again", run.folder)
    return draw_data(config)[0]


def data_to_test(
    runs: Sequence[RunFolder], models: Sequence[Model], source: str | os.PathLike[str] | None
) -> tuple[str, tuple[str, ...], Part]:
    """Return name, classes and images to test some runs on, none of which one of them was trained on.

    source: by default, or where it is the first run's own data, the run's own test part; a set known by name has one;
        of a folder or an .npz, every image, or its test part where it has one.
    """
    config = models[0].config
    if source is None or is_same(source, config.data.source):
        data = data_of(runs[0], config)
        return data.name, data.classes, tested_by_all(runs, data.test)
    if os.fspath(source) in NAMED:
        data = load_data(source)
        name, classes, part = data.name, data.classes, data.test
    else:
        name, classes, part = load_test(source, config.data.image_size, models[0].shape[0])
    return name, classes, unseen(runs, name, part)


def is_same(source: str | os.PathLike[str], data: str) -> bool:
    """Whether two names or paths mean the same data."""
    if data in NAMED or os.fspath(source) in NAMED:
        return os.fspath(source) == data
    return Path(source).expanduser().resolve() == Path(data).expanduser().resolve()


def tested_by_all(runs: Sequence[RunFolder], part: Part) -> Part:
    """Return the test images of the first run that no other run on the same data was trained on."""
    in_all = set(part.names)
    for split in (run.split for run in runs[1:] if is_same(run.config.data.source, runs[0].config.data.source)):
        in_all &= set(split["names"]["test"]) if split is not None else in_all
    if len(in_all) == len(part.names):
        return part
    return drop_and_warn(
        part, [name in in_all for name in part.names], "test parts of the runs differ: {} of {} images are in all"
    )


def unseen(runs: Sequence[RunFolder], name: str, part: Part) -> Part:
    """Return the images that no run was trained on, told by their pixels."""
    trained = {digest for run in runs if run.split is not None for digest in run.split["trained"]}
    keep = [digest not in trained for digest in image_digests(part.images)] if trained else [True] * len(part)
    return (
        part
        if all(keep)
        else drop_and_warn(part, keep, f"{name}: {{}} of {{}} images were not trained on; only they are tested")
    )


def drop_and_warn(part: Part, keep: Sequence[bool], note: str) -> Part:
    """Return the images that are kept, and say how many they are."""
    left = part.take(np.flatnonzero(keep))
    note = note.format(f"{len(left):,}", f"{len(part):,}")
    if not len(left):
        raise DataError(f"{note}; expected images that the run has not seen in training")
    logger.warning("%s", note)
    return left


def images_to_fit(config: Config, train: Part) -> Images:
    """Return what layers are fitted on: a stratified sample, since a folder of images is sorted by class."""
    if len(train) <= FITTED_IMAGES or config.data.source in NAMED:  # shuffled already; recorded runs took the first
        return train.images[:FITTED_IMAGES]
    return subset(train, FITTED_IMAGES).images


def digest(data: Dataset) -> int:
    """Return a checksum of what is trained on: images, labels and the names of the classes."""
    names = zlib.crc32("\n".join(data.classes).encode(errors="surrogatepass"))
    pixels = np.ascontiguousarray(data.train.images.transpose(0, 2, 3, 1))  # as the readers leave them: no copy
    return zlib.crc32(data.train.labels.tobytes(), zlib.crc32(pixels.data, names))
