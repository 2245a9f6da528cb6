"""Run folders written by hand, so that what draws them is tested without training."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from deepsup.trainer.recipes import quick

EVIL = "<script>alert('&$x')</script>"


def epoch(number: int, taps: tuple[str, ...]) -> dict[str, Any]:
    """The record of one epoch, with losses that fall."""
    each = dict.fromkeys(taps, 10.0 / (number + 1))
    return {
        "epoch": number, "phase": 0, "lr": 0.1, "loss": 4.0 / (number + 1), "output_loss": 3.0 / (number + 1),
        "error": 50.0 / (number + 1), "companion_losses": each, "companion_errors": each,
        "active": dict.fromkeys(taps, 0.5), "gradient_means": {"conv1": 0.0, "fc": 0.0},
        "gradient_variances": {"conv1": 4.0 if taps else 2.0, "fc": 1.0}, "gradient_norms": {"conv1": 1.0, "fc": 1.0},
        "images_per_second": 9.0, "seconds": 1.0,
    }  # fmt: skip


def insight(classes: list[str], taps: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What inspect would have found: the last class has no test image."""
    size = len(classes)
    confusion = np.diag([3] * (size - 1) + [0])
    confusion[0, 1] = 2
    layer = {"error": 20.0, "confusion": confusion.tolist(), "confidence_right": 0.9, "confidence_wrong": None}
    found = {
        "classes": classes, "absent": classes[-1:], "layers": dict.fromkeys((*taps, "output"), layer),
        "agreement": {**dict.fromkeys((*taps, "output"), 2), "never": 1},
        "probes": {"conv1": {"error": 30.0, "train_error": 1.0}},
        "mistakes": [{"index": 4, "label": classes[0], "said": classes[1], "confidence": 0.99,
                      "layers": dict.fromkeys(taps, classes[0])}],
        "maps": {"layer": "conv1", "channels": [1, 0], "labels": classes},
    }  # fmt: skip
    arrays = {
        "mistakes": np.zeros((1, 1, 8, 8), np.uint8), "images": np.zeros((size, 1, 8, 8), np.uint8),
        "maps": np.zeros((size, 2, 4, 4), np.float16), "merged": np.zeros((size, 4, 4), np.float16),
        "filters": np.zeros((3, 1, 3, 3), np.float32),
    }  # fmt: skip
    return found, arrays


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a run folder."""

    def make(
        name: str, taps: tuple[str, ...] = ("conv1",), epochs: int = 3, finished: bool = True, seen: bool = True,
        classes: tuple[str, ...] = (EVIL, "$b$", "c"), **knobs: Any,
    ) -> Path:  # fmt: skip
        folder = tmp_path / name
        folder.mkdir(parents=True)
        config = {"data": EVIL, "network": "cnn", "taps": list(taps) or ["none"], "loss": "squared_hinge", "epochs": 3,
                  **knobs}  # fmt: skip
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        (folder / "environment.json").write_text(json.dumps({"python": EVIL, "cores": 2}))
        (folder / "metrics.jsonl").write_text("".join(json.dumps(epoch(n, taps)) + "\n" for n in range(epochs)))
        if finished:
            result = {"error": 5.0, "companions": dict.fromkeys(taps, 9.0), "epochs": epochs, "seconds": 3.0,
                      "train_images": 500, "test_images": 5000}  # fmt: skip
            (folder / "result.json").write_text(json.dumps(result))
        if seen:
            found, arrays = insight(list(classes), taps)
            (folder / "insight.json").write_text(json.dumps(found))
            np.savez(folder / "insight.npz", **arrays)
        return folder

    return make


@pytest.fixture
def make_comparison(make_run: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes the folder of a comparison."""

    def make(name: str = "comparison", size: int = 500, interval: tuple[float, float] | None = (0.6, 0.8)) -> Path:
        methods = {}
        for number, method in enumerate(("CNN-Softmax", "DSN-Softmax", "CNN-SVM", "DSN-SVM")):
            taps = ("conv1",) if method.startswith("DSN") else ()
            for seed in (0, 1):
                loss = "softmax" if method.endswith("Softmax") else "squared_hinge"
                make_run(f"{name}/{method.lower()}-seed{seed}", taps, loss=loss, seed=seed)
            errors = [5.0 - number / 2, 6.0 - number / 2]
            methods[method] = {"errors": errors, "mean": sum(errors) / 2, "deviation": 0.7, "lr": 0.1,
                               "companions": dict.fromkeys(taps, 9.0),
                               "runs": [f"{method.lower()}-seed{seed}" for seed in (0, 1)]}  # fmt: skip
        ratio = {"ratio": sum(interval or (1, 1)) / 2, "interval": interval, "lower": 2, "pairs": 2, "p": 0.5}
        table = {
            "methods": methods, "ratios": {"DSN-SVM / CNN-SVM": ratio}, "seeds": [0, 1],
            "notes": ["CNN-SVM, seed 1: did not learn"],
            "config": {"data": "mnist-mini", "network": quick().network.name, "train_size": size, "epochs": 3},
        }  # fmt: skip
        (tmp_path / name / "comparison.json").write_text(json.dumps(table))
        return tmp_path / name

    return make
