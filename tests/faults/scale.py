"""Data and records that are larger than usual -> how long they take, and how much memory, in a process of their own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from deepsup import Config

Record = dict[str, Any]
SECONDS, MEMORY = 600, 2**30

MEASURED = """
import resource, sys
from pathlib import Path
import matplotlib, jinja2, numpy as np, torch
from deepsup import Config, Run, load_data, train
from deepsup.cli import main
folder = Path(sys.argv[1])
def used():
    now = resource.getrusage(resource.RUSAGE_SELF)
    return now.ru_maxrss / 2**10, now.ru_utime + now.ru_stime
before = used()
{script}
print(*(now - then for now, then in zip(used(), before)))
"""


def measured(what: str, folder: Path, script: str) -> Record:
    """Run a script in a process of its own; it is lost if it fails."""
    command = [sys.executable, "-c", MEASURED.format(script=script), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode:
        sys.stderr.write(f"{what}: {done.stderr[-500:]}\n")
        return {"fault": what, "tries": 1, "lost": 1, "worst_seconds": 0.0}
    memory, seconds = map(float, done.stdout.splitlines()[-1].split())
    lost = int(memory * 2**20 > MEMORY)
    return {"fault": what, "tries": 1, "lost": lost, "worst_seconds": round(seconds, 2), "worst_mib": round(memory)}


def many_images(folder: Path, tries: int, seed: int = 0) -> Record:
    """Load a folder of many small images; hard links stand for most of them."""
    draw = np.random.default_rng(seed)
    for number in range(10 * tries):
        name = folder / "images" / f"class{number % 10}"
        name.mkdir(parents=True, exist_ok=True)
        kept = name / f"{number // 100 * 100 + number % 10}.png"
        if not kept.exists():
            Image.fromarray(draw.integers(0, 255, (28, 28), np.uint8)).save(kept)
        if kept != name / f"{number}.png":
            (name / f"{number}.png").hardlink_to(kept)
    return measured(f"{10 * tries:,} images in a folder", folder, "print(len(load_data(folder / 'images').train))")


def many_classes(folder: Path, tries: int, seed: int = 0) -> Record:
    """Train, report and predict with many classes."""
    images = np.random.default_rng(seed).integers(0, 255, (4 * tries, 8, 8), np.uint8)
    np.savez(folder / "data.npz", images=images, labels=np.arange(4 * tries) % tries)
    script = """
config = Config(data=str(folder / "data.npz"), network="plain", network_options={"depth": 3, "widths": [8, 8]},
                epochs=1, batch_size=100, tensorboard=False)
train(config, folder / "run")
assert main(["report", str(folder / "run")]) == 0
"""
    return measured(f"{tries:,} classes: train and report", folder, script)


def long_metrics(folder: Path, tries: int, seed: int = 0) -> Record:
    """Report a run of many epochs, and go on with it."""
    run = folder / "run"
    run.mkdir()
    (run / "config.yaml").write_text(Config().to_yaml())
    layers = ("conv1", "conv2")
    with (run / "metrics.jsonl").open("w") as file:
        for epoch in range(tries):
            by_layer = dict.fromkeys(layers, 1 / (epoch + 1.3))
            numbers = dict.fromkeys(("loss", "output_loss", "error", "seconds", "lr"), 2 / (epoch + 1.7))
            keys = ("companion_losses", "companion_errors", "active", "gradient_means", "gradient_variances")
            file.write(json.dumps({"epoch": epoch, **numbers, **dict.fromkeys(keys, by_layer)}) + "\n")
    script = """
assert main(["report", str(folder / "run")]) == 0
Run(folder / "run").keep_metrics(10**9)
assert Run(folder / "run").epochs > 1000
"""
    return measured(f"{tries:,} lines of metrics: report and resume", folder, script)


SCALE = {
    "many_images": (many_images, 20_000),
    "many_classes": (many_classes, 2000),
    "long_metrics": (long_metrics, 100_000),
}
"""Name -> the test, and its size; of images it is ten times as many."""
