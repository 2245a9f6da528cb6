"""Every reader gets damaged and hostile files; anything but a DeepsupError or success is an escape.

    python tests/faults/fuzz.py --tries 100000 [--seed 0] [--reader npz]

prints one JSON object per reader: fault, tries, lost (escapes), worst_seconds. A case is a reader and a number:

    python tests/faults/fuzz.py --reader npz --case 17

reads that one alone, with its traceback. Each reader runs in a process of its own that may take ``MEMORY`` bytes more
than it starts with and ``SECONDS`` per file.
"""

import argparse
import json
import logging
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from random import Random
from typing import Any

MEMORY, SECONDS = 2**30, 5
NAMES = [
    "idx", "idx.gz", "CIFAR binary", "CIFAR pickle", "mat", "npz", "image files", "archive", "YAML", "checkpoint",
    "model", "records", "page",
]  # fmt: skip


def soak(tries: int, seed: int = 0, names: list[str] | None = None) -> list[dict[str, Any]]:
    """Return one record per reader; escapes are named on standard error by reader and case."""
    return [fuzzed(name, tries, seed) for name in names or NAMES]


def fuzzed(name: str, tries: int, seed: int = 0, case: int | None = None) -> dict[str, Any]:
    """Fuzz one reader in a process of its own, which may die: the case it died of is an escape too."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, __file__, "--worker", folder, "--reader", name, "--tries", str(tries)]
        words += ["--seed", str(seed)] + ([] if case is None else ["--case", str(case)])
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        if done.returncode == 0:
            record: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
            return record
        last = Path(folder, "case")
        died = last.read_text() if last.exists() else "before the first case"
    sys.stderr.write(f"{name}: the process died (exit code {done.returncode}), case {died}\n")
    return {"fault": f"damaged {name}", "tries": tries, "lost": 1, "worst_seconds": float(SECONDS), "cases": [died]}


class Hang(BaseException):
    """A file that takes too long; no reader may catch it."""


def hang(*_: object) -> None:
    raise Hang


def work(folder: Path, name: str, tries: int, seed: int, case: int | None) -> dict[str, Any]:
    """Make the sound files, then read mutated ones until all tries are done."""
    from readers import all_readers

    warnings.simplefilter("ignore")
    logging.getLogger("deepsup").setLevel("CRITICAL")
    os.chdir(folder)
    reader = all_readers(folder)[name]
    (folder / "sound").mkdir()
    put(folder / "sound", reader.sound)
    reader.read(folder / "sound")  # it has to be readable before it is spoiled; and imports are done
    took = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (took + MEMORY, took + MEMORY))
    signal.signal(signal.SIGALRM, hang)
    cases = [case] if case is not None else range(seed, seed + max(1, round(tries * reader.share)))
    worst, escaped = 0.0, []
    for each in cases:
        Path("case").write_text(str(each))
        seconds, fault = tried(folder / "spoiled", reader, name, each)
        worst = max(worst, seconds)
        if fault:
            escaped.append(each)
            sys.stderr.write(f"{name}, case {each}: {fault if case is not None else fault.splitlines()[-1]}\n")
    return {"fault": f"damaged {name}", "tries": len(cases), "lost": len(escaped), "worst_seconds": round(worst, 3),
            "cases": escaped[:20]}  # fmt: skip


def put(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).write_bytes(data)


def tried(folder: Path, reader: Any, name: str, case: int) -> tuple[float, str]:
    """Spoil one file of a sound set and read it; return the seconds, and the traceback of an escape."""
    from mutations import damaged

    from deepsup.errors import DeepsupError

    random = Random(f"{name} {case}")
    file = random.choice(sorted(reader.sound))
    spoil = reader.spoil if reader.spoil is not None and random.random() < 0.5 else None
    data = spoil(file, reader.sound[file], random) if spoil else damaged(reader.sound[file], random)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    put(folder, {**reader.sound, file: data})
    began, fault = time.monotonic(), ""
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        reader.read(folder)
    except DeepsupError as error:
        if "\n" in str(error).strip():
            fault = f"a message of several lines: {str(error)[:200]!r}"
    except (Exception, Hang):
        fault = traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return time.monotonic() - began, fault


def main() -> None:
    """Fuzz from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=1000, help="mutations per reader; slow readers get a share of it")
    parser.add_argument("--seed", type=int, default=0, help="number of the first case")
    parser.add_argument("--reader", choices=NAMES, action="append", help="by default all of them")
    parser.add_argument("--case", type=int, help="read this one only")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        record = work(given.worker, given.reader[0], given.tries, given.seed, given.case)
        sys.stdout.write(json.dumps(record) + "\n")
        return
    for name in given.reader or NAMES:
        sys.stdout.write(json.dumps(fuzzed(name, given.tries, given.seed, given.case)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
