"""A short run of the fuzzer over every reader, and each case that has ever escaped."""

import pytest
from fuzz import NAMES, fuzzed

SHORT = {"checkpoint": 300, "model": 300, "records": 200, "page": 200}
"""Tries of the slow readers before their share is taken; the others get 500."""

FOUND = [
    ("npz", 34),  # a header of one array claims what the file does not hold
    ("checkpoint", 132),
    ("model", 4),
]
"""Reader and case of what escaped once."""


@pytest.mark.parametrize("name", NAMES)
def test_nothing_escapes(name: str) -> None:
    record = fuzzed(name, SHORT.get(name, 500))
    assert record["lost"] == 0, (
        f"reader {name}, cases {record['cases']}; python tests/faults/fuzz.py --reader ... --case"
    )
