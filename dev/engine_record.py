"""Kill a worker and the driver of a study on Ray, start it again, and record what was lost: results/engine.json.

    python dev/engine_record.py results/engine.json             # a few minutes
    python dev/engine_record.py results/engine.json --overhead  # beside it: 20 runs of 10 s, local and on Ray

The study is a ``deepsup compare`` with a network that notes every training step, so that repeated steps are counted.
For the overhead the steps sleep: runs of 10 s on an idle machine and on a busy one. Both studies run at the same time.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from deepsup.trainer.config import Config
from deepsup.trainer.runs import environment_now
from deepsup.trainer.studies import Engine, pool
from deepsup.trainer.studies._pool import Job

NETWORK = '''
import os, time
from pathlib import Path
import torch
from torch import nn


class Noted(nn.Sequential):
    """A small net that notes every step of training, and sleeps if asked to."""

    def forward(self, x):
        if self.training and torch.is_grad_enabled():
            with (Path(os.environ["NOTES"]) / str(os.getpid())).open("a") as file:
                file.write("step\\n")
            time.sleep(float(os.environ.get("SLEEP", "0")))
        return super().forward(x)


def make(num_classes):
    layers = [nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=2), nn.ReLU(), nn.Flatten()]
    return Noted(*layers, nn.Linear(256, num_classes))
'''
STEPS = 5  # between checkpoints
SETTINGS = ["--network", "noted:make", "--taps", "1", "3", "--train-size", "200", "--epochs", "6", "--batch-size", "20",
            "--checkpoint-steps", str(STEPS), "--seeds", "2", "--rates", "0.003", "0.03"]  # fmt: skip


def command(out: Path, *more: str) -> list[str]:
    """The study as a command."""
    return [sys.executable, "-m", "deepsup", "compare", *SETTINGS, "--cpus", "1", "--out", str(out), "--json", *more]


def environment(folder: Path, notes: str, sleep: float = 0.0) -> dict[str, str]:
    """The environment of a study whose steps are noted in a folder of their own."""
    (folder / notes).mkdir(parents=True, exist_ok=True)
    return os.environ | {"NOTES": str(folder / notes), "SLEEP": str(sleep)}


def steps(folder: Path) -> int:
    """How many steps were noted."""
    return sum(len(path.read_text().splitlines()) for path in folder.iterdir())


def training(out: Path, but: set[Path]) -> tuple[Path, int]:
    """Wait for a run that has a checkpoint and is being trained; return its folder and the process."""
    for _ in range(6000):
        for lock in out.rglob(".lock"):
            run = lock.parent
            if run not in but and not (run / "result.json").exists() and any((run / "checkpoints").glob("step-*.pt")):
                try:
                    return run, int(json.loads(lock.read_text())["pid"])
                except (OSError, ValueError):
                    continue  # it has just ended
        time.sleep(0.01)
    raise SystemExit("no run was found to kill")


def weights(out: Path) -> dict[str, bytes]:
    """Run -> all its weights."""
    found = {}
    for path in sorted(out.rglob("model.safetensors")):
        tensors = load_file(path)
        found[str(path.parent.relative_to(out))] = b"".join(tensors[name].numpy().tobytes() for name in sorted(tensors))
    return found


def kills(folder: Path) -> dict[str, Any]:
    """Make the study with ``--jobs 1``; make it on Ray with a worker and the driver killed; compare."""
    local, ray = folder / "local", folder / "ray"
    subprocess.run(command(local, "--jobs", "1"), cwd=folder, env=environment(folder, "a"), check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    with_ray, noted = command(ray, "--engine", "ray", "--jobs", "2"), environment(folder, "b")
    driver = subprocess.Popen(with_ray, cwd=folder, env=noted, stdout=subprocess.DEVNULL)
    first, process = training(ray, set())
    os.kill(process, signal.SIGKILL)
    while not (first / "result.json").exists():  # it is placed again and ends
        time.sleep(0.05)
    second, _ = training(ray, {first})
    ended = {path: path.stat().st_mtime_ns for path in ray.rglob("result.json")}
    driver.kill()
    driver.wait()
    done = subprocess.run(with_ray, cwd=folder, env=noted, check=True, stdout=subprocess.PIPE, text=True)
    errors = {method: each["errors"] for method, each in json.loads(done.stdout)["methods"].items()}
    wanted = json.loads((local / "comparison.json").read_text())["methods"]
    runs = weights(ray)
    return {
        "runs": len(runs),
        "workers": 2,
        "killed": {"worker": str(first.relative_to(ray)), "driver_while_training": str(second.relative_to(ray))},
        "same_errors": errors == {method: each["errors"] for method, each in wanted.items()},
        "same_weights_to_the_bit": runs == weights(local),
        "ended_before_the_driver_was_killed": len(ended),
        "of_these_trained_again": sum(path.stat().st_mtime_ns != before for path, before in ended.items()),
        "steps": steps(folder / "a"),
        "steps_with_kills": steps(folder / "b"),
        "steps_between_checkpoints": STEPS,
        "runs_interrupted": "1 by the worker's death, at most 2 by the driver's",
    }


def overhead(folder: Path, runs: int = 20, seconds: float = 10.0) -> dict[str, Any]:
    """Time the same study on both engines at the same time; from the first import to the end of the process."""
    found, going = {}, {}
    for name in ("local", "ray"):
        words = [sys.executable, __file__, "study", name, str(folder / f"over-{name}"), str(runs)]
        noted = environment(folder, f"over-notes-{name}", seconds / 40)
        going[name] = time.time(), subprocess.Popen(words, cwd=folder, env=noted)
    while going:
        for name, (began, process) in list(going.items()):
            if process.poll() is not None:
                found[name] = times(folder / f"over-{name}", began)
                del going[name]
        time.sleep(0.05)
    ratio = found["ray"]["wall_seconds"] / found["local"]["wall_seconds"]
    more = {"overhead_percent": round(100 * (ratio - 1), 2), "load_average": round(os.getloadavg()[1], 1)}
    return found | more | {"niceness": os.nice(0)}


def times(out: Path, began: float) -> dict[str, Any]:
    """Where the time of a study went: a run begins with its config and ends with its result."""
    ended = time.time()
    starts = sorted(path.stat().st_mtime for path in out.glob("*/config.yaml"))
    ends = sorted(path.stat().st_mtime for path in out.glob("*/result.json"))
    gaps = [start - end for start, end in zip(starts[1:], ends, strict=False)]
    parts = {"wall": ended - began, "before_the_first_run": starts[0] - began, "between_runs": sum(gaps),
             "after_the_last_run": ended - ends[-1]}  # fmt: skip
    return {"runs": len(ends)} | {f"{name}_seconds": round(each, 2) for name, each in parts.items()}


def study(name: str, out: Path, runs: int) -> None:
    """Train the runs of the overhead's study: 40 steps each."""
    config = Config(network="noted:make", taps=("1", "3"), train_size=200, epochs=4, batch_size=20, tensorboard=False)
    jobs = [Job("DSN", str(n), config.replace(seed=n), out / f"run{n}") for n in range(runs)]
    with pool(Engine(name, jobs=1, cpus=1), out) as run_all:
        run_all(jobs, lambda *_: None)


def main() -> None:
    """Measure, and write what was found into the record."""
    if sys.argv[1] == "study":
        study(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--overhead", action="store_true")
    given = parser.parse_args()
    record = json.loads(given.record.read_text()) if given.record.is_file() else {}
    folder = Path(tempfile.mkdtemp(prefix="engine"))
    (folder / "noted.py").write_text(NETWORK)
    record |= {"overhead": overhead(folder)} if given.overhead else {"kills": kills(folder)}
    record |= {"environment": environment_now()}
    given.record.write_text(json.dumps(record, indent=1) + "\n")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
