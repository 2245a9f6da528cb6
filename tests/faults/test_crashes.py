"""Every crash of crashes.py, a few times each: one line about what happened, and a resumed run that is the same."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import LIMIT
from crashes import CRASHES, another_clock, missing

TRIES = dict.fromkeys(CRASHES, 1) | {"killed": 6, "double_start": 2, "full_disk": 3}
SHORT = {"killed": 2, "double_start": 1}
EACH = [*SHORT.items(), *(pytest.param(*each, marks=pytest.mark.slow) for each in TRIES.items())]


@pytest.mark.parametrize(("name", "tries"), EACH)
def test_nothing_is_lost(name: str, tries: int, tmp_path: Path) -> None:
    if missing(name):
        pytest.skip(missing(name))
    fault, _ = CRASHES[name]
    record = fault(tmp_path, tries, 1)
    assert record["tries"] == tries
    assert record["lost"] == 0
    assert 0 < record["worst_seconds"] < LIMIT


@pytest.mark.slow
def test_the_clock_of_a_process_jumps(tmp_path: Path) -> None:
    if missing("clock_jumps"):
        pytest.skip(missing("clock_jumps"))
    (tmp_path / "clock").write_text("-3d")
    command, environment = [sys.executable, "-c", "import time; print(time.time())"], another_clock(tmp_path / "clock")
    seen = float(subprocess.run(command, env=os.environ | environment, capture_output=True, check=True).stdout)
    assert abs(time.time() - 3 * 86400 - seen) < 60
