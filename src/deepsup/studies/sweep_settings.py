"""The folder of a sweep: what it searches, around which config, and where its trials are kept."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from deepsup.config import Config
from deepsup.errors import ConfigError, RunError
from deepsup.io import faults_named, read_json, write_whole
from deepsup.runs.begin import with_whole_path
from deepsup.runs.lock import LockedError, owned
from deepsup.studies.space import Space, check_buildable, default_space, parsed, read_space
from deepsup.training.distributed import Processes

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
        raise RunError(f"{folder} already holds a sweep; go on with it (--resume), or choose another folder (--out)")
    if path.is_file():
        return continued(path, config, space, storage)
    config = with_whole_path(supervised(config or Config()))
    taps = check_buildable({}, config)
    found = default_space(config, taps) if space is None else read_space(space, config)
    check_buildable(found, config)
    where = storage or f"sqlite:///{folder.absolute() / 'study.db'}"
    made = Sweep(uuid4().hex[:12], config, found, absolute(where))
    open_storage(made.storage)
    record(path, made)
    return made


def supervised(config: Config) -> Config:
    """Return the config with companions, also where it was given without."""
    none = config.supervision.taps in (("none",), ())
    return config.replace(taps=("network",)) if none else config


def record(path: Path, made: Sweep) -> None:
    """Write what is searched; a storage with a password is not written."""
    from deepsup.studies.study_storage import has_password

    space = {name: each.to_dict() for name, each in made.space.items()}
    storage = None if has_password(made.storage) else made.storage
    kept = {"id": made.id, "config": made.config.to_dict(), "space": space, "storage": storage}
    write_whole(path, (json.dumps(kept, indent=1) + "\n").encode())


def continued(path: Path, config: Config | None, space: Path | None, storage: str | None) -> Sweep:
    """Return the sweep of a folder; what is given beside it must be the same."""
    kept = read_json(path, SETTINGS, "expected what deepsup sweep wrote")
    with faults_named(path, RunError, "expected what deepsup sweep wrote"):
        held = Config.from_dict(kept["config"], str(path))
        ranges = {name: parsed(name, each, held, str(path)) for name, each in kept["space"].items()}
    if config is None and ":" in held.network.name:
        raise RunError(
            f"{path} names a network that is not part of deepsup, {held.network.name}; it is not imported unless you "
            f"name it too: give the settings of the sweep again, with --network {held.network.name}"
        )
    mine, theirs = (held if config is None else with_whole_path(supervised(config))).to_dict(), held.to_dict()
    other = [name for name, value in mine.items() if value != theirs[name]]
    if other:
        changes = ", ".join(f"{name} {theirs[name]!r} -> {mine[name]!r}" for name in other)
        raise RunError(f"{path.parent} searches around another config ({changes}); choose another --out")
    if space is not None and read_space(space, held) != ranges:
        raise RunError(f"{path.parent} searches another space than {space}; leave --space out, or choose another --out")
    where = storage or kept.get("storage")
    if where is None:
        raise RunError(f"{path.parent} has its trials in a database with a password; give its URL again: --storage URL")
    open_storage(absolute(where), kept["id"])
    return Sweep(kept["id"], held, ranges, absolute(where))


def open_storage(where: str, id_: str | None = None) -> None:
    """Open the storage; refuse one that does not have the trials of the sweep ``id_``."""
    try:
        from deepsup.studies.study_storage import shown_storage, storage_named, storage_of
    except ImportError as error:
        raise ConfigError(
            f'deepsup sweep needs the package {error.name}, which is not installed; pip install "deepsup[sweep]"'
        ) from error
    with storage_named(where):
        names = [study.study_name for study in storage_of(where).get_all_studies()]
    if id_ is not None and not any(id_ in name for name in names):
        raise RunError(
            f"the storage {shown_storage(where)} has {len(names)} other studies and not the trials of this sweep; "
            f"expected the storage that it was begun with"
        )


def absolute(where: str) -> str:
    """Return a storage that means the same from every current folder."""
    return where if "://" in where else str(Path(where).absolute())


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
