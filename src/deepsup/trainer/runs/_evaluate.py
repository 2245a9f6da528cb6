"""Trained runs -> the error of one or of several as one model, and labels for image files.

N images, K classes.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from deepsup.errors import DataError, RunError
from deepsup.insight import Measurement, error_percent
from deepsup.io import below
from deepsup.trainer.data import Part, read_image_files
from deepsup.trainer.runs._dense_files import named_metrics, predict_masks
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.runs._model import Model, load_model
from deepsup.trainer.runs._run_data import data_to_test


def evaluate(
    runs: Sequence[RunFolder],
    data: str | os.PathLike[str] | None = None,
    *,
    tta: str | None = None,
    amp: str | None = None,
) -> dict[str, Any]:
    """Return the test error of a run and of its companions; of several runs, that of their averaged scores.

    data: test on this instead of the first run's own test images: a name, or a folder or .npz, all of whose images
        are then tested on unless it has a test part of its own. Images that a run was trained on are left out.
    tta: test-time augmentation, as the setting of a run; by default each run's own.
    amp: auto, on (bfloat16) or off (float32); by default as each run measured its own error.
    """
    if not runs:
        raise RunError("no run given; expected at least one run folder")
    models = [load_model(run).asked(tta, amp) for run in runs]
    name, classes, test = data_to_test(runs, models, data)
    for run, model in zip(runs, models, strict=True):
        check_fits(run, model, name, classes, test)
    labels = torch.from_numpy(test.labels)
    if models[0].dense:
        return evaluate_dense(runs, models, test, classes)
    measured = [model.measure(test.images, labels) for model in models]
    return {
        "error": error_percent(averaged(measured), labels),
        "companions": measured[0].companion_errors if len(runs) == 1 else {},
        "runs": {str(run.folder): each.error for run, each in zip(runs, measured, strict=True)},
        "images": len(labels),
        **models[0].how(),
        "epochs": max(run.result["epochs"] for run in runs),
        "seconds": sum(run.result["seconds"] for run in runs),
    }


def evaluate_dense(
    runs: Sequence[RunFolder], models: Sequence[Model], test: Part, classes: Sequence[str]
) -> dict[str, Any]:
    """Return the errors of a dense run and its metrics; several are not averaged."""
    if len(runs) > 1:
        raise RunError(f"{len(runs)} runs with a score per pixel; expected one; evaluate each by itself")
    measured = models[0].measure_dense(test.images, torch.from_numpy(test.labels))
    return {
        "error": measured.error,
        "companions": measured.companion_errors,
        "metrics": {name: named_metrics(each, classes) for name, each in measured.scored.items()},
        "runs": {str(runs[0].folder): measured.error},
        "images": len(test),
        **models[0].how(),
        "epochs": runs[0].result["epochs"],
        "seconds": runs[0].result["seconds"],
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
    if part.dense != model.dense:
        kinds = ("a mask per image", "one label per image")
        raise DataError(
            f"{name} has {kinds[model.dense]}, {run.folder} was trained on {kinds[not model.dense]}; expected the same"
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


def predict(
    run: RunFolder,
    files: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] | None = None,
    *,
    tta: str | None = None,
    amp: str | None = None,
) -> list[dict[str, Any]]:
    """Return a label and a confidence (the softmax of the scores) for every image file, also of each companion.

    A dense run writes a mask for each file to the folder ``out`` (by default ``predictions`` in the run's) and returns
    its path and the share of each class. ``tta`` and ``amp`` are as those of ``evaluate``.
    """
    if not files:
        raise DataError("no image file given; expected at least one")
    model = load_model(run).asked(tta, amp)
    if model.dense:
        return predict_masks(model, files, below(run.folder, "predictions") if out is None else Path(out))
    if out is not None:
        raise RunError(f"{run.folder} predicts one label per image, so there is nothing to write; omit --out")
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
