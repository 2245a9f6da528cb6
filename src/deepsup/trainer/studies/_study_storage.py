"""Where a sweep keeps its trials: an SQLite file, any database that SQLAlchemy reaches, or a journal file."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import optuna
from optuna.storages.journal import JournalFileBackend
from sqlalchemy import make_url

from deepsup.errors import ConfigError, DeepsupError
from deepsup.io import reason

SECONDS = 30
"""How long to wait for a server, or for another process that writes to the same file."""


@cache
def storage_of(where: str) -> optuna.storages.BaseStorage:
    """Return an open storage; one per process."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    expected = (
        "expected an SQLite file (sqlite:///FILE), a database (postgresql://USER@HOST/NAME) or a journal file "
        "(FILE.journal)"
    )
    with storage_named(where, "open", expected):
        return opened_storage(where)


@contextmanager
def storage_named(where: str, does: str = "use", remedy: str = "is it damaged? try again") -> Iterator[None]:
    """Turn whatever a storage raises, damaged or out of reach, into one line that names it."""
    try:
        yield
    except DeepsupError:
        raise
    except Exception as error:  # every database has errors of its own
        said = without_password(where, reason(error))
        raise ConfigError(f"cannot {does} the storage {shown_storage(where)}: {said}; {remedy}") from error


def opened_storage(where: str) -> optuna.storages.BaseStorage:
    """Open a URL of a database, or else a journal file."""
    if "://" not in where:
        backend = JournalFileBackend(checked_journal(Path(where)))
        return optuna.storages.JournalStorage(backend)
    url = make_url(where)
    if url.drivername == "postgresql" and importlib.util.find_spec("psycopg2") is None:
        url = url.set(drivername="postgresql+psycopg")
    waits = {"timeout": SECONDS} if url.drivername.startswith("sqlite") else {"connect_timeout": SECONDS}
    arguments: dict[str, Any] = {"connect_args": waits, "pool_pre_ping": True}
    return optuna.storages.RDBStorage(url.render_as_string(hide_password=False), engine_kwargs=arguments)


def checked_journal(path: Path) -> str:
    """Return the path of a journal file, if what is there is one: its first line is an object."""
    if path.is_file() and path.stat().st_size:
        with path.open("rb") as file:
            if not file.read(1) == b"{":
                raise ConfigError(f"{path} is not a journal file of Optuna; expected one, or a name that is free")
    path.parent.mkdir(parents=True, exist_ok=True)
    return str(path)


def has_password(where: str) -> bool:
    """Whether a URL holds a password: then it is written nowhere."""
    return "://" in where and make_url(where).password is not None


def shown_storage(where: str) -> str:
    """Return a storage for people: without its password.

    >>> shown_storage("postgresql://me:secret@host/name")
    'postgresql://me:***@host/name'
    """
    try:
        return make_url(where).render_as_string(hide_password=True) if "://" in where else where
    except Exception:  # not a URL after all; what it is may hold a password
        return where.partition("://")[0] + "://..."


def without_password(where: str, text: str) -> str:
    """Return a message of a database without the password that it may repeat."""
    try:
        password = make_url(where).password
    except Exception:  # not a URL: no password can be told apart
        return "it is no URL"
    return text.replace(str(password), "***") if password else text
