"""Every reader gets damaged and hostile files; anything but a DeepsupError or success is an escape.

    python tests/faults/fuzz.py --tries 15000 [--first 0] [--reader npz]

prints one JSON object per reader: fault, tries, lost (escapes), worst_seconds of CPU, and the first cases that escaped.
A case is a reader and a number. This reads one alone and prints its traceback:

    python tests/faults/fuzz.py --reader npz --first 17 --tries 1

The files are read in another process, which may take ``MEMORY`` bytes more than it starts with, and ``SECONDS`` of CPU
for each file.
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
import traceback
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

MEMORY, SECONDS = 2**30, 5
SHARES = {
    "idx": 1, "idx.gz": 1, "CIFAR binary": 1, "CIFAR pickle": 1, "mat": 1, "npz": 1, "image files": 0.5, "archive": 1,
    "YAML": 0.5, "checkpoint": 0.3, "model": 0.1, "weights": 0.2, "snapshot": 0.2,
    "records": 0.5, "page": 0.005, "pretrained": 0.1, "companions": 0.1, "exits": 0.05, "masks": 0.2, "sweep": 0.02,
    "study page": 0.005,
}  # fmt: skip
"""Reader -> how many of the tries it gets: fewer where one takes long. 15,000 tries are 146,700 files in all."""


class Task(NamedTuple):
    """Cases of one reader, by their numbers."""

    reader: str
    first: int
    count: int


def tasks(tries: int, first: int = 0, readers: Sequence[str] = tuple(SHARES)) -> list[Task]:
    """Return so many tries of each reader, or its share of them."""
    return [Task(name, first, max(1, round(tries * SHARES[name]))) for name in readers]


def soak(todo: Sequence[Task]) -> Iterator[dict[str, Any]]:
    """Yield one record per task; escapes are named on standard error."""
    todo = list(todo)
    while todo:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, __file__, "--worker", folder, json.dumps(todo)]
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    todo.pop(0)
                    yield json.loads(line)
            if not todo:
                return
            case = Path(folder, "case")
            died = int(case.read_text()) if case.exists() else -1
        name, _, count = todo.pop(0)  # the others go on in a new process
        sys.stderr.write(f"{name}, case {died}: the process died (exit code {process.returncode})\n")
        yield {"fault": f"damaged {name}", "tries": count, "lost": 1, "worst_seconds": 0.0, "cases": [died]}


def work(folder: Path, todo: Sequence[Task]) -> None:
    """Read the files of each task and print its record."""
    from readers import all_readers

    warnings.simplefilter("ignore")
    logging.getLogger("deepsup").setLevel("CRITICAL")
    os.chdir(folder)
    readers = all_readers(folder, [task.reader for task in todo])
    for name, reader in readers.items():
        # it has to be readable before it is spoiled; afterwards all imports are done
        put(folder / "sound" / name, reader.beside | reader.sound)
        reader.read(folder / "sound" / name)
    took = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (took + MEMORY, took + MEMORY))
    signal.signal(signal.SIGPROF, hang)
    for task in todo:
        sys.stdout.write(json.dumps(record(folder, readers[task.reader], task)) + "\n")
        sys.stdout.flush()


def record(folder: Path, reader: Any, task: Task) -> dict[str, Any]:
    """Read all files of a task."""
    worst, escaped, before = 0.0, [], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for case in range(task.first, task.first + task.count):
        (folder / "case").write_text(str(case))
        seconds, fault = tried(folder / "spoiled", reader, task.reader, case)
        worst = max(worst, seconds)
        if fault:
            escaped.append(case)
            sys.stderr.write(f"{task.reader}, case {case}: {fault if task.count == 1 else fault.splitlines()[-1]}\n")
    fault = f"damaged {task.reader}"
    return {"fault": fault, "tries": task.count, "lost": len(escaped), "worst_seconds": round(worst, 3),
            "worst_mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 2**10,
            "cases": escaped[:20]}  # fmt: skip


class Hang(BaseException):
    """A file that takes too long; no reader may catch it."""


def hang(*_: object) -> None:
    raise Hang


def put(folder: Path, files: dict[str, bytes]) -> None:
    """Write files into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
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
    put(folder, reader.beside | reader.sound | {file: data})
    began, fault = cpu_seconds(), ""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        reader.read(folder)
    except DeepsupError as error:
        if "\n" in str(error).strip():
            fault = f"a message of several lines: {str(error)[:200]!r}"
        elif reader.named and str(folder) not in str(error):
            fault = f"a message that does not name the file: {str(error)[:200]!r}"
    except (Exception, Hang):
        fault = traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return cpu_seconds() - began, fault


def cpu_seconds() -> float:
    """Return the CPU time of this process; ``time.process_time`` stands still between ticks while the limit is set."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Fuzz from the command line."""
    if sys.argv[1:2] == ["--worker"]:
        work(Path(sys.argv[2]), [Task(*each) for each in json.loads(sys.argv[3])])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=1000, help="files per reader; slow readers get a share of it")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--reader", choices=list(SHARES), action="append", help="by default all of them")
    given = parser.parse_args()
    for each in soak(tasks(given.tries, given.first, given.reader or tuple(SHARES))):
        sys.stdout.write(json.dumps(each) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
