"""A short form of every test of endurance, and proof that a leak is seen."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from endurance import ENDURANCE, grown, leaked

SHORT = {"two_threads": 400, "long_run": 40, "many_trainings": 4}


@pytest.fixture(scope="module", autouse=True)
def frozen() -> Iterator[None]:
    """What earlier tests left is not looked through each time that the memory in use is measured."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("name", ENDURANCE)
def test_nothing_wears_out(name: str, tmp_path: Path) -> None:
    test, _ = ENDURANCE[name]
    record = test(tmp_path, SHORT[name], 1)
    assert record["tries"] == SHORT[name]
    assert record["lost"] == 0, record


@pytest.mark.parametrize(
    ("last", "leak"), [((2**20, 3), 0), ((2**20, 4), 1), ((40 * 2**20, 3), 1), ((30 * 2**20, 3), 0)]
)
def test_a_leak_is_seen(last: tuple[int, int], leak: int) -> None:
    assert leaked(grown([(2**30, 9), *[(2**20, 3)] * 10, last])) == leak
