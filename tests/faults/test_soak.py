"""The record of the long form: it is whole, it lost nothing, and the table in the docs is its table."""

import json
from pathlib import Path

import pytest
from soak import FAULTS, PAGE, RECORD, soak, written

LEAST = {"killed": 100, "double_start": 50, "two_threads": 20_000, "long_run": 2000, "many_trainings": 50}


@pytest.fixture(scope="module")
def record() -> dict:
    return json.loads(RECORD.read_text())


def complaints(record: dict) -> set[str]:
    """Return the faults whose lines do not support the page: lost something, tried too seldom, too slow, not run."""
    lines = record["lines"]
    damaged = {name: line for name, line in lines.items() if name.startswith("damaged")}
    ran = {name: line for name, line in lines.items() if not line.get("skipped")}  # left out with a reason
    found = {name for name, line in ran.items() if line.get("lost", 1) or line["commit"].endswith("+")}
    found |= {name for name, least in LEAST.items() if lines.get(name, {}).get("tries", 0) < least}
    found |= {name for name, line in damaged.items() if line["worst_seconds"] >= 5}
    found |= {"damaged"} if sum(line["tries"] for line in damaged.values()) < 100_000 else set()
    return found | set(FAULTS) ^ set(lines)


def test_every_fault_was_tried_often_and_nothing_was_lost(record: dict) -> None:
    assert complaints(record) == set()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("full_disk", {"lost": 1}),
        ("killed", {"tries": 99}),
        ("damaged masks", {"worst_seconds": 5.0}),
        ("damaged masks", {"commit": "661a3ab+"}),
    ],
)
def test_a_record_that_lost_something_is_seen(record: dict, name: str, change: dict) -> None:
    lines = record["lines"]
    assert complaints({"lines": lines | {name: lines[name] | change}}) == {name}
    assert complaints({"lines": {each: line for each, line in lines.items() if each != name}}) == {name}


def test_the_table_in_the_docs_is_that_of_the_record(record: dict) -> None:
    assert PAGE.read_text() == written(PAGE.read_text(), record)
    assert "| killed (SIGKILL) | 100 |" in PAGE.read_text()


@pytest.mark.slow
def test_a_soak_runs_what_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("soak.MUTATIONS", 50)
    (line,) = soak(["damaged masks"], tmp_path / "soak.json", seed=7)
    assert (line["fault"], line["tries"], line["lost"], line["seed"]) == ("damaged masks", 10, 0, 7)


def test_a_soak_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("soak.tried", lambda name, seed, _: {"fault": name, "tries": 10, "lost": seed})
    path, names = tmp_path / "soak.json", ["damaged masks", "damaged idx"]
    assert [line["lost"] for line in soak(names[:1], path, seed=1)] == [1]
    assert [line["fault"] for line in soak(names, path, seed=2)] == names[1:]
    assert [line["lost"] for line in soak(names[:1], path, seed=3, again=True)] == [3]
    lines = json.loads(path.read_text())["lines"]
    assert [(name, line["seed"]) for name, line in lines.items()] == [("damaged masks", 3), ("damaged idx", 2)]
    assert all(line.keys() >= {"commit", "date"} for line in lines.values())
