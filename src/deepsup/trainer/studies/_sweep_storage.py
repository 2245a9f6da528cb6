"""Where a sweep keeps its trials: an SQLite file, any database that SQLAlchemy reaches, or a journal file."""

from __future__ import annotations

import importlib.util
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import optuna
from optuna.storages.journal import JournalFileBackend
from sqlalchemy import make_url

from deepsup.errors import ConfigError, DeepsupError
from deepsup.io import Budget, one_line, reason, size_of_regular

SECONDS = 30
"""How long to wait for a server, or for another process that writes to the same file."""
MOST_BYTES = 2**26
"""Of an SQLite file or a journal file."""
MOST_TRIALS, MOST_ROWS = 20_000, 2**18
"""In it; rows of other tables, and lines of a journal. Optuna makes objects of all of them: 2.5 KB and 0.1 ms each."""
MOST_TEXT = 2**24
"""Bytes of the JSON values in an SQLite file, which take many times that once they are decoded."""
_SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")
"""The end of a journal of SQLite that belongs to several databases, after the name of their common journal."""
_PROGRAMS = "SELECT count(*) FROM sqlite_master WHERE type NOT IN ('table', 'index') OR sql LIKE '%VIRTUAL%'"


class StorageError(ConfigError):
    """The database of a sweep is damaged, full or out of reach."""


def database_error(error: Exception) -> Exception:
    """Return the error of the database itself; Optuna and SQLAlchemy wrap it, the latter in a statement and a link."""
    causes: list[BaseException] = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    originals = [getattr(each, "orig", None) for each in causes]
    return next((each for each in originals if isinstance(each, Exception)), error)


@contextmanager
def storage_named(where: str, does: str = "use", remedy: str = "is it damaged? try again") -> Iterator[None]:
    """Turn whatever a storage raises, damaged or out of reach, into one line that names it."""
    try:
        yield
    except DeepsupError:
        raise
    except Exception as error:  # every database has errors of its own
        why = without_password(where, reason(database_error(error)))
        if "disk is full" in why or "No space left" in why:
            remedy = "free some space, then try again"
        raise StorageError(f"cannot {does} the storage {shown_storage(where)}: {why}; {remedy}") from error


@cache
def storage_of(where: str) -> optuna.storages.BaseStorage:
    """Return an open storage, of a URL of a database or else of a journal file; one per process."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    expected = (
        "expected an SQLite file (sqlite:///FILE), a database (postgresql://USER@HOST/NAME) or a journal file "
        "(FILE.journal)"
    )
    with storage_named(where, "open", expected):
        if "://" not in where:
            check_journal(Path(where))
            Path(where).parent.mkdir(parents=True, exist_ok=True)
            return optuna.storages.JournalStorage(JournalFileBackend(where))
        url = make_url(where)
        sqlite = url.drivername.startswith("sqlite")
        if sqlite and url.database not in (None, "", ":memory:"):
            check_database(Path(str(url.database)))
        if url.drivername == "postgresql" and importlib.util.find_spec("psycopg2") is None:
            url = url.set(drivername="postgresql+psycopg")
        waits = {"timeout": SECONDS} if sqlite else {"connect_timeout": SECONDS}
        arguments: dict[str, Any] = {"connect_args": waits, "pool_pre_ping": True}
        return optuna.storages.RDBStorage(url.render_as_string(hide_password=False), engine_kwargs=arguments)


def check_database(path: Path) -> None:
    """Refuse an SQLite file that makes SQLite do more than read and write it.

    A view or a trigger is a program that may run for ever. The file ``-journal`` beside it, which an interrupted write
    leaves, may end with the name of another file: SQLite removes that one.
    """
    beside = path.with_name(f"{path.name}-journal")
    with suppress(FileNotFoundError):  # also where another process has just ended its write
        size_of_regular(beside)
        with beside.open("rb") as file:
            file.seek(max(0, beside.stat().st_size - len(_SUPER_JOURNAL)))
            if file.read() == _SUPER_JOURNAL:
                raise ConfigError(f"{beside} names another file, which SQLite would remove; remove {beside.name}")
    check_size(path)
    if path.is_file():
        with closing(sqlite3.connect(path, timeout=SECONDS)) as database:
            (programs,) = database.execute(_PROGRAMS).fetchone()
            if programs:
                raise ConfigError(
                    f"{path} has views, triggers or virtual tables; expected the tables that Optuna makes"
                )
            check_rows(path, database)


def check_rows(path: Path, database: sqlite3.Connection) -> None:
    """Refuse more trials and longer values than there is memory for: a trial may take 90 bytes in the file."""
    for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        table, most = '"' + name.replace('"', '""') + '"', MOST_TRIALS if name == "trials" else MOST_ROWS
        (rows,) = database.execute(f"SELECT count(*) FROM {table}").fetchone()
        columns = [each[1] for each in database.execute(f"PRAGMA table_info({table})")]
        text = 0
        if "value_json" in columns:
            (text,) = database.execute(f"SELECT coalesce(sum(length(value_json)), 0) FROM {table}").fetchone()
        if rows > most or text > MOST_TEXT:
            raise ConfigError(
                f"{path} has {rows:,} rows of {text:,} letters in {one_line(name)}; expected at most {most:,} and "
                f"{MOST_TEXT:,}; begin another sweep"
            )


def check_size(path: Path) -> None:
    """Refuse a file that takes more memory than there is for it once it is read."""
    if path.exists() and (size := size_of_regular(path)) > MOST_BYTES:
        raise ConfigError(f"{path} has {size:,} bytes; expected at most {MOST_BYTES:,}; a trial takes about 2,000")


def check_journal(path: Path) -> None:
    """Refuse a file that is no journal of Optuna: the first line of one is an object."""
    check_size(path)
    if path.is_file() and path.stat().st_size:
        with path.open("rb") as file:
            if file.read(1) != b"{":
                raise ConfigError(f"{path} is not a journal file of Optuna; expected one, or a name that is free")
            file.seek(0)
            budget = Budget()
            for number, line in enumerate(file):
                if number == MOST_ROWS:
                    raise ConfigError(f"{path} has more than {MOST_ROWS:,} lines; begin another sweep")
                budget.spend(line)


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
    if "://" not in where:
        return text
    try:
        password = make_url(where).password
    except Exception:  # not a URL: no password can be told apart
        return "it is no URL"
    return text.replace(str(password), "***") if password else text
