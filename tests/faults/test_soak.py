"""The record of the long form: it is whole, it lost nothing, and the table in the docs is its table."""

import json
from pathlib import Path

import pytest
from soak import FAULTS, PAGE, RECORD, soak, written

LEAST = {"killed": 100, "double_start": 50, "two_threads": 20_000, "long_run": 2000, "many_trainings": 50}


@pytest.fixture(scope="module")
def record() -> dict:
    return json.loads(RECORD.read_text())


def test_every_fault_was_tried_often_and_nothing_was_lost(record: dict) -> None:
    lines = record["lines"]
    assert list(lines) == FAULTS
    assert [name for name, line in lines.items() if line.get("lost")] == []
    assert all(line["commit"] and not line["commit"].endswith("+") for line in lines.values())
    assert all(lines[name]["tries"] >= least for name, least in LEAST.items())
    assert sum(line["tries"] for name, line in lines.items() if name.startswith("damaged")) >= 100_000
    assert max(line["worst_seconds"] for name, line in lines.items() if name.startswith("damaged")) < 5


def test_the_table_in_the_docs_is_that_of_the_record(record: dict) -> None:
    assert PAGE.read_text() == written(PAGE.read_text(), record)
    assert "| killed (SIGKILL) | 100 |" in PAGE.read_text()


def test_a_soak_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "soak.json"
    monkeypatch.setattr("soak.MUTATIONS", 50)
    assert [line["tries"] for line in soak(["damaged masks"], path)] == [10]
    assert list(soak(["damaged masks"], path)) == []
    assert [line["seed"] for line in soak(["damaged masks", "damaged idx"], path, seed=7, again=True)] == [7, 7]
    lines = json.loads(path.read_text())["lines"]
    assert list(lines) == ["damaged masks", "damaged idx"]
    assert lines["damaged masks"]["lost"] == 0
    assert lines["damaged masks"].keys() >= {"commit", "date"}
