"""Every crash of soak.py, a few times each: one line about what happened, and a resumed run that is the same."""

from pathlib import Path

import pytest
from faults import soak

TRIES = {"killed": 6, "double_start": 2, "full_disk": 3}


@pytest.mark.parametrize("name", soak.FAULTS)
def test_nothing_is_lost(name: str, tmp_path: Path) -> None:
    if name in soak.NEED_MOUNT and not soak.can_mount():
        pytest.skip("needs a disk that can be filled or made read-only: mounting one takes root")
    fault, _ = soak.FAULTS[name]
    tries = TRIES.get(name, 1)
    record = fault(tmp_path, tries, 1)
    assert record["tries"] == tries
    assert record["lost"] == 0
    assert 0 < record["worst_seconds"] < soak.LIMIT
