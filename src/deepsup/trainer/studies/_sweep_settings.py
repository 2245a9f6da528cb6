"""The folder of a sweep: what it searches, around which config, and where its trials are kept."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from deepsup.errors import RunError, extras_named
from deepsup.io import below, faults_named, read_json, size_of_regular, write_whole
from deepsup.trainer.config import Config
from deepsup.trainer.runs import LockedError, owned, with_whole_names
from deepsup.trainer.studies._sweep_space import Space, check_buildable, default_space, parsed_space, read_space
from deepsup.trainer.training import Processes

SQLITE = "sqlite:///"
DEFAULT = f"{SQLITE}study.db"
SETTINGS = {"id": str, "config": {}, "space": {}, "storage?": (str, type(None))}


@dataclass(frozen=True)
class Sweep:
    """What a sweep searches; its folder keeps it."""

    id: str
    config: Config
    space: Space
    storage: str


def prepared(config: Config | None, folder: Path, space: Path | None, storage: str | None, resume: bool) -> Sweep:
    """Begin a sweep in its folder, or return the one that was begun there."""
    path = folder / "settings.json"
    if path.is_file() and not resume:
        raise RunError(f"{folder} already holds a sweep; resume it (--resume), or choose another folder (--out)")
    if path.is_file():
        return continued(path, config, space, storage)
    config = with_whole_names(supervised(config or Config()))
    taps = check_buildable({}, config)
    ranges = default_space(config, taps) if space is None else read_space(space, config)
    check_buildable(ranges, config)
    made = Sweep(uuid4().hex[:12], config, ranges, placed(DEFAULT, folder) if storage is None else absolute(storage))
    open_storage(made.storage)
    record(path, made)
    return made


def supervised(config: Config) -> Config:
    """Return the config with companions, also where it was given without."""
    none = config.supervision.taps in (("none",), ())
    return config.replace(at=("network",)) if none else config


def record(path: Path, made: Sweep) -> None:
    """Write what is searched; a storage with a password is not written."""
    from deepsup.trainer.studies._sweep_storage import has_password

    space = {name: each.to_dict() for name, each in made.space.items()}
    storage = None if has_password(made.storage) else inside(made.storage, path.parent)
    config = made.config.to_dict()
    if made.config.network.start_from is not None:
        config["start_from"] = inside(made.config.network.start_from, path.parent)
    settings = {"id": made.id, "config": config, "space": space, "storage": storage}
    write_whole(path, (json.dumps(settings, indent=1) + "\n").encode())


def continued(path: Path, config: Config | None, space: Path | None, storage: str | None) -> Sweep:
    """Return the sweep of a folder; what is given beside it must be the same."""
    settings = read_json(path, SETTINGS, "expected what deepsup sweep wrote")
    with faults_named(path, RunError, "expected what deepsup sweep wrote"):
        recorded = Config.from_dict(settings["config"], str(path))
        if recorded.network.start_from is not None:
            recorded = recorded.replace(start_from=placed(recorded.network.start_from, path.parent))
        ranges = parsed_space(settings["space"], recorded, str(path))
    if config is None and ":" in recorded.network.name:
        raise RunError(
            f"{path} names a network that is not part of deepsup, {recorded.network.name}; it is not imported unless "
            f"you name it too: give the settings of the sweep again, with --network {recorded.network.name}"
        )
    if config is not None:
        start = with_whole_names(config).network.start_from  # its weights are compared instead
        recorded = recorded.replace(start_from=start)
    mine, theirs = (recorded if config is None else with_whole_names(supervised(config))).to_dict(), recorded.to_dict()
    other = [name for name, value in mine.items() if value != theirs[name] and name != "device"]
    if other:
        changes = ", ".join(f"{name} {theirs[name]!r} -> {mine[name]!r}" for name in other)
        raise RunError(f"{path.parent} searches around another config ({changes}); choose another --out")
    if space is not None and read_space(space, recorded) != ranges:
        raise RunError(f"{path.parent} searches another space than {space}; omit --space, or choose another --out")
    if storage is None and settings.get("storage") is None:
        raise RunError(f"{path.parent} has its trials in a database with a password; give its URL again: --storage URL")
    where = placed(settings["storage"], path.parent) if storage is None else absolute(storage)
    open_storage(where, settings["id"])
    return Sweep(settings["id"], recorded, ranges, where)


def open_storage(where: str, id_: str | None = None) -> None:
    """Open the storage; refuse one that does not have the trials of the sweep ``id_``."""
    with extras_named("deepsup sweep"):
        from deepsup.trainer.studies._sweep_storage import shown_storage, storage_named, storage_of
    with storage_named(where):
        if (file := parted(where)[1]) and Path(file).exists():
            size_of_regular(file)
        names = [study.study_name for study in storage_of(where).get_all_studies()]
    if id_ is not None and not any(id_ in name for name in names):
        raise RunError(
            f"the storage {shown_storage(where)} has {len(names)} other studies and not the trials of this sweep; "
            f"expected the storage that it was begun with"
        )


def parted(where: str) -> tuple[str, str]:
    """Return a storage as the beginning of its URL and its file; without a file where it is another database."""
    if "://" not in where:
        return "", where
    return (SQLITE, where.removeprefix(SQLITE)) if where.startswith(SQLITE) and ":memory:" not in where else (where, "")


def absolute(where: str) -> str:
    """Return a storage that means the same from every current folder."""
    url, file = parted(where)
    return url + (str(Path(file).absolute()) if file else "")


def inside(where: str, folder: Path) -> str:
    """Return a storage or a path as the folder of a sweep records it: relative where it lies in it, so it moves."""
    url, file = parted(where)
    path = Path(file)
    return url + str(path.relative_to(folder.absolute())) if file and path.is_relative_to(folder.absolute()) else where


def placed(where: str, folder: Path) -> str:
    """Return what a folder has recorded as an absolute path, wherever the folder lies now."""
    url, file = parted(where)
    if not file:
        return where
    path = Path(file)
    if path.is_absolute() and path.name == Path(parted(DEFAULT)[1]).name and (folder / path.name).is_file():
        path = Path(path.name)  # older versions recorded where it was then
    if path.is_absolute():
        return where
    for beside in ("", "-journal", "-wal", "-shm") if url else ("",):  # SQLite's own files beside it
        below(folder, f"{path}{beside}")
    return url + str(below(folder, str(path)).absolute())


@contextmanager
def alone(folder: Path, seconds: float = 60.0) -> Iterator[None]:
    """Own a folder within this block; wait for another process that does."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            with owned(folder, Processes()):
                yield
            return
        except LockedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
