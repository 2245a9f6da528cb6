"""A short run of the fuzzer over every reader, each case that has ever escaped, and proof that it finds something."""

import time
from pathlib import Path
from statistics import median

import pytest
from fuzz import SHARES, Task, soak, tasks, tried
from readers import Reader, data_readers, pretrained_reader, run_readers

from deepsup.errors import DataError

FOUND = {
    "idx": [371, 407, 1132, 2285],
    "npz": [200, 1309, 1554, 2447],
    "archive": [2972],
    "YAML": [122, 725],
    "checkpoint": [132, 151, 179, 222, 526, 799],
    "model": [2, 3, 4, 7, 28, 42, 61, 86],
    "records": [14, 50, 96, 153, 208, 250],
    "page": [5, 12],
    "pretrained": [2574, 3164, 3615],
}
"""Reader -> cases that escaped before the readers were bounded, or since.

A case number gives the same damage only while the sound file stays the same: what a fault was is tested by itself too.
"""


@pytest.mark.parametrize("count", [60, pytest.param(300, marks=pytest.mark.slow)])
def test_nothing_escapes(count: int) -> None:
    todo = tasks(count) + [Task(reader, case, 1) for reader, cases in FOUND.items() for case in cases]
    records = list(soak(todo))
    assert [record["tries"] for record in records] == [task.count for task in todo]
    lost = [(record["fault"], record["cases"]) for record in records if record["lost"]]
    assert not lost, "python tests/faults/fuzz.py --reader NAME --first CASE --tries 1 shows one of them"


def test_a_soak_reads_more_than_a_hundred_thousand_files() -> None:
    assert sum(task.count for task in tasks(15_000)) > 100_000
    assert {task.reader for task in tasks(1)} == set(SHARES)


def test_no_reader_is_forgotten(tmp_path: Path) -> None:
    assert set(data_readers() | pretrained_reader(tmp_path) | run_readers(tmp_path)) == set(SHARES)


def fails(_: Path) -> None:
    raise KeyError("x")


def refuses(at: Path) -> None:
    raise DataError(f"{at / 'a'}: one line")


def mumbles(_: Path) -> None:
    raise DataError("one line")


def chats(at: Path) -> None:
    raise DataError(f"{at / 'a'}: two\nlines")


@pytest.mark.parametrize(
    ("read", "escape"),
    [(fails, "KeyError"), (chats, "several lines"), (mumbles, "does not name the file"), (refuses, "")],
)
def test_the_fuzzer_can_fail(tmp_path: Path, read, escape: str) -> None:
    _, fault = tried(tmp_path / "files", Reader({"a": b"sound"}, read), "idx", 0)
    assert escape in fault
    assert bool(fault) == bool(escape)


def test_the_time_of_a_file_is_measured(tmp_path: Path) -> None:
    """Each file takes less than a tick of the kernel; the median of many shows a clock that stands still."""

    def busy(_: Path) -> None:
        sum(range(30_000))  # looks at no clock: that would set the other one right

    alone = []
    for _ in range(31):
        began = time.thread_time()
        busy(tmp_path)
        alone.append(time.thread_time() - began)
    seconds = [tried(tmp_path / "files", Reader({"a": b"sound"}, busy), "idx", case)[0] for case in range(31)]
    assert median(seconds) > median(alone) / 2


def test_cases_are_repeatable(tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        tried(tmp_path / "files", Reader({"a": bytes(100)}, lambda at: seen.append((at / "a").read_bytes())), "idx", 3)
    assert seen[0] == seen[1] != bytes(100)
