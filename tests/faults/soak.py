"""The long form of the fault suite -> a record, and its table in the docs.

    python tests/faults/soak.py                      # all of it: results/soak.json and docs/faults.md; about an hour
    python tests/faults/soak.py --only killed two_threads
    python tests/faults/soak.py --table              # only the table, from the record

The record is written after every fault, and a stopped soak goes on where it was: a fault with a line is not run again.
Remove the record to start over.
"""

import argparse
import json
import logging
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

PROJECT = Path(__file__).parents[2]
sys.path[:0] = [str(PROJECT / "tests" / folder) for folder in ("", "supervision")]  # as pytest does

import fuzz  # noqa: E402
from crashes import CRASHES, Record, missing  # noqa: E402
from endurance import ENDURANCE  # noqa: E402

RECORD, PAGE = PROJECT / "results" / "soak.json", PROJECT / "docs" / "faults.md"
BEGIN, END = "<!-- soak: begin -->", "<!-- soak: end -->"
MUTATIONS = 15_000
"""Files per reader; slow readers get a share of it."""
SEED = 0


def faults() -> dict[str, Any]:
    """Return every fault by its name, as a function without arguments that returns a record."""
    repeated = {**CRASHES, **ENDURANCE}
    return {
        **{name: lambda name=name: tried(*repeated[name]) for name in repeated},
        **{f"damaged {name}": lambda name=name: mutated(name) for name in fuzz.SHARES},
    }


def tried(test: Any, tries: int) -> Record:
    """Try a fault as often as the long form does, in a folder of its own."""
    folder = Path(tempfile.mkdtemp())
    try:
        return {**test(folder, tries, SEED), "seed": SEED}
    finally:
        shutil.rmtree(folder)


def mutated(reader: str) -> Record:
    """Give one reader all of its damaged files."""
    (record,) = fuzz.soak(fuzz.tasks(MUTATIONS, SEED, [reader]))
    return {**record, "seed": SEED}


def soak(names: list[str], path: Path) -> Iterator[Record]:
    """Run what the record has no line of yet; write it after each."""
    record = json.loads(path.read_text()) if path.exists() else {"commit": commit(), "lines": {}}
    for name in names:
        if name in record["lines"]:
            continue
        why = missing(name)
        record["lines"][name] = {"fault": name, "tries": 0, "skipped": why} if why else faults()[name]()
        record |= {"command": "make soak", "environment": environment()}
        path.write_text(json.dumps(record, indent=1) + "\n")
        yield record["lines"][name]


def environment() -> dict[str, Any]:
    """Return versions and hardware class of this machine, without its name."""
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    return {**versions, "cores": os.cpu_count(), "system": platform.system()}


def commit() -> str:
    """Return the commit that is soaked."""
    return subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=PROJECT, capture_output=True, text=True,
                          check=False).stdout.strip()  # fmt: skip


def table(record: dict[str, Any]) -> str:
    """Return the record as a Markdown table.

    >>> print(table({"lines": {"a": {"fault": "killed", "tries": 1000, "lost": 0, "worst_seconds": 3.01}}}))
    | fault | tries | lost | worst time |
    |---|---:|---:|---:|
    | killed | 1,000 | 0 | 3.01 s |
    """
    rows = ["| fault | tries | lost | worst time |", "|---|---:|---:|---:|"]
    for line in record["lines"].values():
        if line.get("skipped"):
            rows.append(f"| {line['fault']} | not run: {line['skipped']} | | |")
            continue
        seconds = "" if line["worst_seconds"] is None else f"{line['worst_seconds']:.3g} s"
        rows.append(f"| {line['fault']} | {line['tries']:,} | {line['lost']} | {seconds} |")
    return "\n".join(rows)


def written(page: str, record: dict[str, Any]) -> str:
    """Return a page with the record's table in its place."""
    place = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    return place.sub(lambda _: f"{BEGIN}\n\n{table(record)}\n\n{END}", page)


def main() -> int:
    """Soak from the command line; the exit code is 1 if something was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(faults()), default=list(faults()), metavar="FAULT")
    parser.add_argument("--out", type=Path, default=RECORD, help="the record (default: results/soak.json)")
    parser.add_argument("--table", action="store_true", help="write only the table, from the record")
    given = parser.parse_args()
    logging.getLogger("deepsup").setLevel("ERROR")
    torch.set_num_threads(1)
    for line in [] if given.table else soak(given.only, given.out):
        sys.stderr.write(f"{json.dumps(line)}\n")
    record = json.loads(given.out.read_text())
    if given.out == RECORD:
        PAGE.write_text(written(PAGE.read_text(), record))
    return int(any(line.get("lost") for line in record["lines"].values()))


if __name__ == "__main__":
    sys.exit(main())
