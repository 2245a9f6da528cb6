"""The folder and the storage of a sweep from a stranger: nothing is imported, and damage ends in one line."""

import json
from pathlib import Path

import pytest

pytest.importorskip("optuna", reason="optuna is not installed (pip install 'deepsup[sweep]')")

from readers import npz
from study_readers import read_sweep_folder, storages, sweep_files

from deepsup.errors import DeepsupError, RunError
from deepsup.studies.search import Search
from deepsup.studies.study_storage import storage_of
from deepsup.studies.sweep import search_of
from deepsup.studies.sweep_settings import continued


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
