"""The record of the long form: it is whole, it lost nothing, and the table in the docs is its table."""

import json
from pathlib import Path

import pytest
from crashes import CRASHES
from endurance import ENDURANCE
from fuzz import SHARES
from soak import PAGE, RECORD, soak, written

NAMES = [*CRASHES, *ENDURANCE, *(f"damaged {reader}" for reader in SHARES)]
LEAST = {"killed": 100, "double_start": 50, "two_threads": 20_000, "long_run": 2000, "many_trainings": 50}


@pytest.fixture(scope="module")
def record() -> dict:
    return json.loads(RECORD.read_text())


def test_every_fault_was_tried_often_and_nothing_was_lost(record: dict) -> None:
    lines = record["lines"]
    assert list(lines) == NAMES
    # one escape is known and open: a normalizer without its mean (model, case 1203); LOG.md
    assert [name for name, line in lines.items() if line.get("lost")] == ["damaged model"]
    assert all(lines[name]["tries"] >= least for name, least in LEAST.items())
    assert sum(line["tries"] for name, line in lines.items() if name.startswith("damaged")) >= 100_000
    assert max(line["worst_seconds"] for name, line in lines.items() if name.startswith("damaged")) < 5


def test_the_table_in_the_docs_is_that_of_the_record(record: dict) -> None:
    assert PAGE.read_text() == written(PAGE.read_text(), record)
    assert "| killed (SIGKILL) | 100 |" in PAGE.read_text()


def test_a_soak_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "soak.json"
    assert [line["tries"] for line in soak(["damaged page"], path)] == [75]
    assert list(soak(["damaged page"], path)) == []
    assert json.loads(path.read_text())["lines"]["damaged page"]["lost"] == 0
