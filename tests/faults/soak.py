"""The long form of the fault suite -> a record, and its table in the docs.

    python tests/faults/soak.py                      # all of it: results/soak.json and docs/faults.md; about an hour
    python tests/faults/soak.py --only killed two_threads
    python tests/faults/soak.py --only fuzz --again --seed 100000   # all readers on the code of today, other files
    python tests/faults/soak.py --only killed_sweep --tries 3
    python tests/faults/soak.py --table              # only the table, from the record

The record is written after every fault, and a stopped soak goes on where it was: a fault with a line is not run again,
unless it was skipped or --again says so. Every line has the commit and the date of its own. Remove the record to start
over.
"""

import argparse
import json
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

PROJECT = Path(__file__).parents[2]
sys.path[:0] = [str(PROJECT / "tests" / folder) for folder in ("", "supervision")]  # as pytest does

import fuzz  # noqa: E402
from crashes import CRASHES, Record, missing  # noqa: E402
from endurance import ENDURANCE  # noqa: E402
from scale import SCALE  # noqa: E402
from study_crashes import STUDY_CRASHES  # noqa: E402

from deepsup.io import with_block  # noqa: E402

RECORD, PAGE = PROJECT / "results" / "soak.json", PROJECT / "docs" / "faults.md"
BEGIN, END = "<!-- soak: begin -->", "<!-- soak: end -->"
MUTATIONS = 15_000
"""Files per reader; slow readers get a share of it."""
DAMAGED = [f"damaged {name}" for name in fuzz.SHARES]
WHOLE = {**CRASHES, **STUDY_CRASHES, **ENDURANCE, **SCALE}
FAULTS = [*WHOLE, *DAMAGED]


def tried(name: str, seed: int, tries: int | None = None) -> Record:
    """Try a fault as often as the long form does, in a folder of its own; give a reader all of its damaged files."""
    if name in DAMAGED:
        (record,) = fuzz.soak(fuzz.tasks(tries or MUTATIONS, seed, [name.removeprefix("damaged ")]))
        return record
    test, usual = WHOLE[name]
    folder = Path(tempfile.mkdtemp())
    try:
        return dict(test(folder, tries or usual, seed))
    finally:
        shutil.rmtree(folder)


def soak(
    names: list[str], path: Path, seed: int = 0, again: bool = False, tries: int | None = None
) -> Iterator[Record]:
    """Run what the record has no line of yet, or with ``again`` all of it; write it after each."""
    record = json.loads(path.read_text()) if path.exists() else {"lines": {}}
    for name in names:
        line = record["lines"].get(name)
        if line and not line.get("skipped") and not again:
            continue
        why = missing(name)
        found = {"fault": name, "tries": 0, "skipped": why} if why else tried(name, seed, tries)
        today = datetime.now(UTC).date().isoformat()
        record["lines"][name] = {**found, "seed": seed, "commit": commit(), "date": today}
        record |= {"command": "make soak", "environment": environment()}
        path.write_text(json.dumps(record, indent=1) + "\n")
        yield record["lines"][name]


def environment() -> dict[str, Any]:
    """Return versions and hardware class of this machine, without its name."""
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    return {**versions, "cores": os.cpu_count(), "system": platform.system()}


def commit() -> str:
    """Return the commit that is soaked; with a plus where the code differs from it."""
    asked = {"head": ["rev-parse", "--short=7", "HEAD"], "changed": ["status", "--porcelain", "src", "tests/faults"]}
    said = {
        key: subprocess.run(["git", *words], cwd=PROJECT, capture_output=True, text=True, check=False).stdout.strip()
        for key, words in asked.items()
    }
    return said["head"] + ("+" if said["changed"] else "")


def table(record: dict[str, Any]) -> str:
    """Return the record as a Markdown table.

    >>> line = {"fault": "killed", "tries": 1000, "lost": 0, "worst_seconds": 3.01, "commit": "661a3ab"}
    >>> print(table({"lines": {"a": line}}))
    | fault | tries | lost | worst time | worst memory | measured |
    |---|---:|---:|---:|---:|---|
    | killed | 1,000 | 0 | 3.01 s |  | 661a3ab |
    """
    rows = ["| fault | tries | lost | worst time | worst memory | measured |", "|---|---:|---:|---:|---:|---|"]
    for line in ordered(record):
        measured = ", ".join(line[key] for key in ("commit", "date") if key in line)
        if line.get("skipped"):
            rows.append(f"| {line['fault']} | not run: {line['skipped']} | | | | {measured} |")
            continue
        seconds = "" if line["worst_seconds"] is None else duration(line["worst_seconds"])
        memory = f"{line['worst_mib']:,} MiB" if "worst_mib" in line else ""
        rows.append(f"| {line['fault']} | {line['tries']:,} | {line['lost']} | {seconds} | {memory} | {measured} |")
    return "\n".join(rows)


def ordered(record: dict[str, Any]) -> list[Record]:
    """Return the lines in the order of the faults."""
    lines = record["lines"]
    return [lines[name] for name in sorted(lines, key=lambda name: FAULTS.index(name) if name in FAULTS else 0)]


def duration(seconds: float) -> str:
    """Return a time for the table; times that are as short as the error of an older clock are not told apart."""
    return f"{seconds:.3g} s" if seconds >= 0.01 else "< 0.02 s"


def written(page: str, record: dict[str, Any]) -> str:
    """Return a page with the record's table in its place."""
    return with_block(page, BEGIN, END, f"\n\n{table(record)}\n\n")


def main() -> int:
    """Soak from the command line; the exit code is 1 if something was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[*FAULTS, "fuzz"], default=FAULTS, metavar="FAULT")
    parser.add_argument("--again", action="store_true", help="also what the record has lines of")
    parser.add_argument("--seed", type=int, default=0, help="of the faults; number of the first damaged file")
    parser.add_argument(
        "--tries", type=int, help="of each fault, or damaged files per reader (default: the long form's)"
    )
    parser.add_argument("--out", type=Path, default=RECORD, help="the record (default: results/soak.json)")
    parser.add_argument("--table", action="store_true", help="write only the table, from the record")
    given = parser.parse_args()
    logging.getLogger("deepsup").setLevel("ERROR")
    torch.set_num_threads(1)
    names = [each for name in given.only for each in (DAMAGED if name == "fuzz" else [name])]
    for line in [] if given.table else soak(names, given.out, given.seed, given.again, given.tries):
        sys.stderr.write(f"{json.dumps(line)}\n")
    record = json.loads(given.out.read_text())
    if given.out == RECORD:
        PAGE.write_text(written(PAGE.read_text(), record))
    return int(any(line.get("lost") for line in record["lines"].values()))


if __name__ == "__main__":
    sys.exit(main())
