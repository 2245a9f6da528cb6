"""Trained runs -> the error of one or of several as one model, and labels for image files.

N images, K classes.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from deepsup.data import Part, read_image_files
from deepsup.errors import DataError, RunError
from deepsup.insight import Measurement, error_percent
from deepsup.runs.folder import RunFolder
from deepsup.runs.model import Model, load_model
from deepsup.runs.run_data import data_to_test


def evaluate(runs: Sequence[RunFolder], data: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Return the test error of a run and of its companions; of several runs, that of their averaged scores.

    data: test on this instead of the first run's own test images: a name, or a folder or .npz, all of whose images
        are then tested on unless it has a test part of its own. Images that a run was trained on are left out.
    """
    if not runs:
        raise RunError("no run given; expected at least one run folder")
    models = [load_model(run) for run in runs]
    name, classes, test = data_to_test(runs, models, data)
    for run, model in zip(runs, models, strict=True):
        check_fits(run, model, name, classes, test)
    labels = torch.from_numpy(test.labels)
    measured = [model.measure(test.images, labels) for model in models]
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


def check_fits(run: RunFolder, model: Model, name: str, classes: tuple[str, ...], part: Part) -> None:
    """Refuse images of other classes or another shape than the run's."""
    if classes != model.classes:
        raise DataError(
            f"{name} has {listed(classes)}, {run.folder} was trained on {listed(model.classes)}; expected the same "
            "classes"
        )
    shape = part.images.shape[1:]
    if shape != model.shape:
        raise DataError(
            f"images of {name} are {list(shape)}, those of {run.folder} {list(model.shape)}; expected the same "
            f"channels and size; resize them"
        )


def listed(classes: tuple[str, ...]) -> str:
    """Return how many classes there are, and the first of them."""
    more = ", ..." if len(classes) > 5 else ""
    return f"{len(classes)} classes ({', '.join(classes[:5])}{more})"


def predict(run: RunFolder, files: Sequence[str | os.PathLike[str]]) -> list[dict[str, Any]]:
    """Return a label and a confidence (the softmax of the scores) for every image file, also of each companion."""
    if not files:
        raise DataError("no image file given; expected at least one")
    model = load_model(run)
    measured = model.measure(read_image_files([Path(file) for file in files], model.shape))
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
