"""Trained runs -> the error of one or of several as one model, and labels for image files.

N images, K classes.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from deepsup.data import Dataset, load_data, read_image_files
from deepsup.errors import DataError, RunError
from deepsup.evaluation import Measurement, error_percent, measure
from deepsup.experiment.model import Model, load_model
from deepsup.preprocess import to_tensor
from deepsup.record import Run


def evaluate(runs: Sequence[Run], data: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Return the test error of a run and of its companions; of several runs, that of their averaged scores.

    data: another data set than the one the first run was trained on.
    """
    if not runs:
        raise RunError("no run given; expected at least one run folder")
    models = [load_model(run) for run in runs]
    config = models[0].config
    held = load_data(data or config.data, image_size=config.image_size)
    for run, model in zip(runs, models, strict=True):
        check_fits(run, model, held)
    labels = torch.from_numpy(held.test.labels)
    measured = [measure(m.net, to_tensor(held.test.images), labels, m.normalize) for m in models]
    return {
        "error": error_percent(averaged(measured), labels),
        "companions": measured[0].companion_errors if len(runs) == 1 else {},
        "runs": {str(run.folder): each.error for run, each in zip(runs, measured, strict=True)},
        "images": len(labels),
        "epochs": max(run.result["epochs"] for run in runs),
        "seconds": sum(run.result["seconds"] for run in runs),
    }


def averaged(measured: Sequence[Measurement]) -> torch.Tensor:
    """Return the mean of several nets' scores [N,K]."""
    return torch.stack([each.scores for each in measured]).mean(0)


def check_fits(run: Run, model: Model, data: Dataset) -> None:
    """Refuse data of other classes or another shape than the run's."""
    if data.classes != model.classes:
        raise DataError(
            f"{data.name} has {len(data.classes)} classes ({', '.join(data.classes[:5])}, ...), {run.folder} was "
            f"trained on {len(model.classes)} ({', '.join(model.classes[:5])}, ...); expected the same classes"
        )
    if data.shape != model.shape:
        raise DataError(
            f"images of {data.name} are {list(data.shape)}, those of {run.folder} {list(model.shape)}; expected the "
            f"same channels and size"
        )


def predict(run: Run, files: Sequence[str | os.PathLike[str]]) -> list[dict[str, Any]]:
    """Return a label and a confidence (the softmax of the scores) for every image file, also of each companion."""
    if not files:
        raise DataError("no image file given; expected at least one")
    model = load_model(run)
    images = to_tensor(read_image_files([Path(file) for file in files], model.shape))
    measured = measure(model.net, images, torch.zeros(len(images), dtype=torch.long), model.normalize)
    answers = []
    for index, file in enumerate(files):
        label, confidence = named(measured.scores[index], model.classes)
        layers = {tap: named(scores[index], model.classes)[0] for tap, scores in measured.companions.items()}
        answers.append({"file": str(file), "label": label, "confidence": confidence, "companions": layers})
    return answers


def named(scores: torch.Tensor, classes: tuple[str, ...]) -> tuple[str, float]:
    """Return the class of the highest score [K] and its softmax."""
    chances = scores.double().softmax(0)
    return classes[int(chances.argmax())], float(chances.max())
