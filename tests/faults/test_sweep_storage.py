"""The folder and the storage of a sweep from a stranger: nothing is imported, and damage ends in one line."""

import json
import os
import shutil
import sqlite3
import struct
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("optuna", reason="optuna is not installed (pip install 'deepsup[sweep]')")

from readers import npz
from study_readers import read_sweep_folder, storages, sweep_files

from deepsup.errors import DeepsupError, RunError
from deepsup.trainer.config import Config
from deepsup.trainer.studies._sweep import METHODS, search_of, sweep
from deepsup.trainer.studies._sweep_search import Search
from deepsup.trainer.studies._sweep_settings import Sweep, continued, prepared, record
from deepsup.trainer.studies._sweep_storage import storage_of


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    import numpy as np

    folder = tmp_path_factory.mktemp("sound")
    images = np.arange(12 * 28 * 28, dtype=np.uint8).reshape(12, 28, 28)
    (folder / "data.npz").write_bytes(npz(images=images, labels=np.arange(12) % 3))
    return sweep_files(folder / "sweep", folder / "data.npz")


@pytest.fixture
def folder(sound: dict[str, bytes], tmp_path: Path) -> Path:
    storage_of.cache_clear()
    for name, data in sound.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def test_a_sound_one_is_read(folder: Path) -> None:
    read_sweep_folder(folder)


def test_a_network_that_a_folder_names_is_not_imported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "stranger.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(folder)
    settings = json.loads((folder / "settings.json").read_text())
    settings["config"]["network"] = "stranger:net"
    (folder / "settings.json").write_text(json.dumps(settings))
    with pytest.raises(RunError, match=r"settings\.json names a network that is not part of deepsup, stranger:net"):
        read_sweep_folder(folder)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("study.journal", b'"study_name"', b'"study_name'),
        ("study.journal", b'"op_code":0', b'"op_code":99'),
        ("study.journal", b"batch_size", b"batch_sizx"),
        ("study.db", b"SQLite format 3", b"SQLite format 9"),
        ("study.db", b"CREATE TABLE trials", b"CREATE TABLE trialz"),
    ],
)
def test_a_damaged_storage_ends_in_one_line(folder: Path, name: str, old: bytes, new: bytes) -> None:
    data = (folder / name).read_bytes()
    assert old in data
    (folder / name).write_bytes(data.replace(old, new))
    with pytest.raises(DeepsupError, match=rf"{name}: ") as caught:
        read_sweep_folder(folder)
    assert "\n" not in str(caught.value)


def test_the_owner_of_a_trial_is_no_path(folder: Path) -> None:
    """To see whether an owner is alive, a file of its folder is locked and removed; that stays inside the sweep."""
    made = continued(folder / "settings.json", None, None, storages(folder)[0])
    search: Search = search_of("plain", made, folder / "sweep", "me")
    (folder / "private").mkdir()
    (folder / "private" / ".lock").write_text("kept")
    trial = search.study.ask()
    trial.set_user_attr("owner", "../../private")
    assert search.others() == 0
    assert (folder / "private" / ".lock").read_text() == "kept"


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A sweep in a folder of its own, with one trial of each method."""
    import numpy as np

    storage_of.cache_clear()
    images = np.arange(12 * 28 * 28, dtype=np.uint8).reshape(12, 28, 28)
    (tmp_path / "data.npz").write_bytes(npz(images=images, labels=np.arange(12) % 3))
    config = Config(data=str(tmp_path / "data.npz"), epochs=1, batch_size=2, tensorboard=False)
    (tmp_path / "sweep").mkdir()
    ask(prepared(config, tmp_path / "sweep", None, None, resume=False), tmp_path / "sweep")
    return tmp_path / "sweep"


def ask(made: Sweep, folder: Path) -> dict[str, int]:
    """Ask for a trial of each method, and return how many there are then."""
    searches = [search_of(method, made, folder, "other") for method in METHODS]
    for search in searches:
        search.ask(0.0)
    return {search.method: search.count() for search in searches}


def resumed(folder: Path) -> dict[str, int]:
    storage_of.cache_clear()
    return ask(prepared(None, folder, None, None, resume=True), folder)


def test_a_sweep_records_no_absolute_storage(begun: Path) -> None:
    assert json.loads((begun / "settings.json").read_text())["storage"] == "sqlite:///study.db"


@pytest.mark.parametrize("older", [False, True], ids=["", "recorded by an older version"])
def test_a_copied_sweep_has_trials_of_its_own_and_a_moved_one_goes_on(begun: Path, older: bool, tmp_path: Path) -> None:
    if older:
        settings = json.loads((begun / "settings.json").read_text())
        settings["storage"] = f"sqlite:///{begun / 'study.db'}"
        (begun / "settings.json").write_text(json.dumps(settings))
    copy = Path(shutil.copytree(begun, tmp_path / "copy"))
    before = (begun / "study.db").read_bytes()
    assert resumed(copy) == {"supervised": 2, "plain": 2}
    assert (begun / "study.db").read_bytes() == before
    begun.rename(tmp_path / "moved")
    assert resumed(tmp_path / "moved") == {"supervised": 2, "plain": 2}
    assert not begun.exists()


def test_a_journal_in_the_folder_moves_with_it(begun: Path, tmp_path: Path) -> None:
    config = Config(data=str(tmp_path / "data.npz"), epochs=1, batch_size=2, tensorboard=False)
    folder = tmp_path / "other"
    ask(prepared(config, folder, None, str(folder / "study.journal"), resume=False), folder)
    assert json.loads((folder / "settings.json").read_text())["storage"] == "study.journal"
    folder.rename(tmp_path / "moved")
    assert resumed(tmp_path / "moved") == {"supervised": 2, "plain": 2}


def test_what_a_sweep_starts_from_moves_with_it(begun: Path, tmp_path: Path) -> None:
    (begun / "start").mkdir()
    config = Config(data=str(tmp_path / "data.npz"), start_from=str(begun / "start"))
    record(begun / "settings.json", replace(prepared(None, begun, None, None, resume=True), config=config))
    assert json.loads((begun / "settings.json").read_text())["config"]["start_from"] == "start"
    begun.rename(tmp_path / "moved")
    held = prepared(None, tmp_path / "moved", None, None, resume=True).config
    assert held.network.start_from == str(tmp_path / "moved" / "start")


@pytest.mark.parametrize("storage", ["sqlite:///../mine.db", "../mine.journal", "sqlite:///a/../../mine.db", "./../x"])
def test_a_storage_does_not_lead_out_of_the_folder(storage: str, begun: Path, tmp_path: Path) -> None:
    settings = json.loads((begun / "settings.json").read_text())
    (begun / "settings.json").write_text(json.dumps({**settings, "storage": storage}))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(RunError, match=r"names a file or folder '\.+'"):
        resumed(begun)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", ["study.db", "study.db-journal", "study.db-wal", ".setup", ".drivers", "trials"])
def test_a_sweep_does_not_write_through_links(name: str, begun: Path, tmp_path: Path) -> None:
    """Of its database, of the files beside it, and of its folders."""
    outside = tmp_path / "outside"
    if (begun / name).exists():
        (begun / name).rename(outside)
    elif "." in name[1:]:
        outside.touch()
    else:
        outside.mkdir()
    (begun / name).symlink_to(outside)
    before = outside.read_bytes() if outside.is_file() else sorted(outside.iterdir())
    storage_of.cache_clear()
    with pytest.raises(RunError, match=f"{name} is a link, which may lead out of"):
        sweep(None, begun, trials=2, seeds=1, resume=True)
    assert (outside.read_bytes() if outside.is_file() else sorted(outside.iterdir())) == before


def test_a_storage_is_a_regular_file(begun: Path) -> None:
    (begun / "study.db").unlink()
    os.mkfifo(begun / "study.db")
    with pytest.raises(DeepsupError, match="it is a FIFO, a socket or a device"):
        resumed(begun)


PROGRAMS = {
    "an endless view": [
        "ALTER TABLE studies RENAME TO old",
        "CREATE VIEW studies AS WITH RECURSIVE x(study_id) AS (SELECT 1 UNION ALL SELECT study_id + 1 FROM x) "
        "SELECT study_id, 'a' || study_id AS study_name FROM x",
    ],
    "an endless trigger": [
        "CREATE TRIGGER t AFTER INSERT ON trials BEGIN INSERT INTO trial_user_attributes(trial_id, key, value_json) "
        "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT n, 'k' || n, '1' FROM x; END"
    ],
    "a virtual table": ["CREATE VIRTUAL TABLE v USING fts5(x)"],
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_a_database_is_no_program(what: str, begun: Path) -> None:
    with closing(sqlite3.connect(begun / "study.db")) as database:
        for line in PROGRAMS[what]:
            database.execute(line)
        database.commit()
    with pytest.raises(DeepsupError, match=r"study\.db has views, triggers or virtual tables; expected the tables"):
        resumed(begun)


def test_the_journal_of_a_database_does_not_remove_another_file(begun: Path, tmp_path: Path) -> None:
    """What an interrupted write leaves is taken back by SQLite, which then removes the journal that it names."""
    mine = tmp_path / "mine"
    mine.write_text("precious")
    (begun / "study.db-journal").write_bytes(interrupted(begun / "study.db", str(mine).encode()))
    with pytest.raises(DeepsupError, match=r"study\.db-journal names another file, which SQLite would remove"):
        resumed(begun)
    assert mine.exists()
    with closing(sqlite3.connect(begun / "study.db")) as database:  # what would have happened
        database.execute("SELECT * FROM studies").fetchall()
    assert not mine.exists()


def test_a_write_that_was_interrupted_is_taken_back(begun: Path) -> None:
    (begun / "study.db-journal").write_bytes(interrupted(begun / "study.db"))
    assert resumed(begun) == {"supervised": 2, "plain": 2}


def interrupted(path: Path, other: bytes = b"") -> bytes:
    """Return a rollback journal with the first page of a database; with the name of another file at its end."""
    held = path.read_bytes()
    size = int.from_bytes(held[16:18], "big")
    page, magic = held[:size], bytes.fromhex("d9d505f920a163d7")
    number = struct.Struct(">I").pack
    header = magic + b"".join(map(number, (1, 0, len(held) // size, 512, size)))
    checksum = sum(page[at] for at in range(size - 200, 0, -200))
    journal = header.ljust(512, b"\0") + number(1) + page + number(checksum)
    if other:
        journal += number(2**30 // size + 1) + other + number(len(other)) + number(sum(other)) + magic
    return journal


@pytest.mark.parametrize("name", ["study.db", "study.journal"])
def test_a_storage_has_a_bound(name: str, folder: Path) -> None:
    with (folder / name).open("ab") as file:
        file.truncate(2**26 + 1)
    with pytest.raises(DeepsupError, match=rf"{name} has 67,108,865 bytes; expected at most 67,108,864"):
        read_sweep_folder(folder)


ROWS = "INSERT INTO {} WITH RECURSIVE x(n) AS (SELECT 1000 UNION ALL SELECT n + 1 FROM x WHERE n < {}) SELECT {} FROM x"
CROWDED = {
    "trials": (ROWS.format("trials(trial_id, number, study_id, state)", 21_000, "n, n, 1, 'FAIL'"), "20,0.. rows"),
    "trial_params": (ROWS.format("trial_params(param_id)", 2**18 + 1000, "n"), "262,1.. rows"),
    "trial_user_attributes": (
        "INSERT INTO trial_user_attributes(value_json) VALUES (hex(zeroblob(8388609)))", "16,777,2.. letters",
    ),
}  # fmt: skip


@pytest.mark.parametrize("table", CROWDED)
def test_a_database_has_only_so_many_rows(table: str, begun: Path) -> None:
    """Three million trials of 90 bytes took 7 GB and minutes."""
    statement, said = CROWDED[table]
    with closing(sqlite3.connect(begun / "study.db")) as database:
        database.execute(statement)
        database.commit()
    with pytest.raises(DeepsupError, match=rf"study\.db has .*{said}.* in {table}; expected at most"):
        resumed(begun)


@pytest.mark.parametrize(
    ("lines", "said"),
    [(b"{}\n" * (2**18 + 1), "more than 262,144 lines"), ((b"[" + b"[]," * 80 + b"0]\n") * 70_000, "memory")],
    ids=["lines", "values"],
)
def test_a_journal_has_only_so_many_values(lines: bytes, said: str, folder: Path) -> None:
    with (folder / "study.journal").open("ab") as file:
        file.write(lines)
    with pytest.raises(DeepsupError, match=rf"study\.journal.*{said}"):
        read_sweep_folder(folder)
