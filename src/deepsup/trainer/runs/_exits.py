"""A finished run in; out, its early exits: calibrated, measured on test images, kept beside the run, and loaded again.

N images, C channels, H W height and width.
"""

import hashlib
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np
import torch
from torch import Tensor

from deepsup.errors import DataError, RunError
from deepsup.exits import EarlyExit, EarlyOutput, calibrate, export_stages, measure_speed
from deepsup.insight import error_percent
from deepsup.io import file_named, read_json, whole_file
from deepsup.trainer.data import Part, read_image_files
from deepsup.trainer.preprocess import to_tensor
from deepsup.trainer.runs._evaluate import check_fits
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.runs._model import Model, load_model
from deepsup.trainer.runs._run_data import data_of

logger = logging.getLogger("deepsup")
SHOWN = 7
"""Images that the report shows per exit."""
AT_ONCE = 500
"""Images that the net sees together: all of a test part would not fit into memory."""
EXITS = {"model": str, "thresholds": {"*": (float, type(None))}, "temperatures": {"*": float}}


class ExitRecord(TypedDict):
    """What ``exits.json`` says; errors in percent, on the test images unless it is said otherwise."""

    plain_error: float
    error: float
    speedup: dict[str, float]
    """Batch size -> the plain net's time over that with exits."""
    thresholds: dict[str, float | None]
    temperatures: dict[str, float]
    multiply_adds: float
    """Of a sample on average, relative to the plain net."""
    exits: dict[str, dict[str, float]]
    """Exit -> the ``share`` of the images that leave there, and their ``error``."""
    images: int
    threads: int
    validation: dict[str, Any]
    """How many images of which part the thresholds were chosen on, and both errors there."""
    curve: list[dict[str, Any]]
    model: str
    """The digest of the model's file: thresholds belong to one training."""
    shown: NotRequired[list[dict[str, Any]]]
    """The images in ``exits.npz``."""


def calibrate_run(
    run: RunFolder,
    *,
    max_error_increase: float | None = None,
    max_cost: float | None = None,
    batch_sizes: Sequence[int] = (1, 32, 512),
    watch: Callable[[str, int, int], None] = lambda *_: None,
) -> tuple[EarlyExit, ExitRecord]:
    """Calibrate the exits of a run on its validation images, measure them on its test images, and keep the result.

    The thresholds and all that was measured go into ``exits.json`` of the run, some images into ``exits.npz``.

    watch: called with what has ended, how many steps have, and how many there are.
    """
    model = supervised_model(run)
    validation, test, origin = parts_of(run, model)
    chosen_on = prepared(model, validation)
    early = calibrate(
        model.net,
        (chosen_on, torch.from_numpy(validation.labels)),
        max_error_increase=max_error_increase,
        max_cost=max_cost,
        batch_size=batch_sizes,
    )
    watch("thresholds chosen", 1, 4)
    curve = measured_curve(early, model, chosen_on, batch_sizes[len(batch_sizes) // 2])
    watch("curve measured", 2, 4)
    images, labels = prepared(model, test), torch.from_numpy(test.labels)
    answers = classify(early, images)
    watch("test images classified", 3, 4)
    record: ExitRecord = {
        "plain_error": error_percent(plain_scores(early, images), labels),
        "error": error_percent(answers.scores, labels),
        "speedup": {str(size): measure_speed(early, (images,), size).median for size in batch_sizes},
        "thresholds": early.thresholds,
        "temperatures": early.temperatures,
        "multiply_adds": early.calibration["multiply_adds"],
        "exits": by_exit(answers, labels),
        "images": len(labels),
        "threads": torch.get_num_threads(),
        "validation": {**origin, **{key: early.calibration[key] for key in ("plain_error", "error")}},
        "curve": curve,
        "model": digest(run),
    }
    watch("speed measured", 4, 4)
    write_exits(run, record, model, test, answers)
    return early, record


def supervised_model(run: RunFolder) -> Model:
    """Return the model of a run that has companions."""
    model = load_model(run)
    if not model.net.taps:
        raise RunError(
            f"{run.folder} has no companions, so there is nothing to exit at; expected a run that was trained with "
            f"them; train it again without --at none"
        )
    if model.dense:
        raise RunError(
            f"{run.folder} scores every pixel; expected a run with one label per image; a smaller dense model is "
            f"Run(...).load().strip(keep=...) in Python"
        )
    weights = model.net.state_dict()
    model.check_finite(*(name for name, weight in weights.items() if not weight.isfinite().all()))
    return model


def parts_of(run: RunFolder, model: Model) -> tuple[Part, Part, dict[str, Any]]:
    """Return the images to choose on and those to test on; without validation images, halves of the test part."""
    data = data_of(run, model.config)
    check_fits(run, model, data.name, data.classes, data.test)
    if data.validation is not None and len(data.validation):
        return data.validation, data.test, {"images": len(data.validation), "of": "validation"}
    even = np.arange(len(data.test)) % 2 == 0
    logger.warning(
        "%s has no validation images: every other test image chooses the thresholds, the others are tested on; train "
        "with --validation N to test on all of them",
        run.folder,
    )
    chosen, rest = data.test.take(np.flatnonzero(even)), data.test.take(np.flatnonzero(~even))
    return chosen, rest, {"images": len(chosen), "of": "test"}


def prepared(model: Model, part: Part) -> Tensor:
    """Return the images of a part as the net takes them."""
    return torch.cat([model.normalize(images) for images in torch.split(to_tensor(part.images), AT_ONCE)])


def classify(early: EarlyExit, images: Tensor) -> EarlyOutput:
    """Return what a net with exits answers for many images."""
    parts = [early(some) for some in torch.split(images, AT_ONCE)]
    return EarlyOutput(
        torch.cat([part.scores for part in parts]), torch.cat([part.exits for part in parts]), early.names,
        early.exit_temperatures,
    )  # fmt: skip


def plain_scores(early: EarlyExit, images: Tensor) -> Tensor:
    with torch.inference_mode():
        return torch.cat([early.scores(early.model(some)) for some in torch.split(images, AT_ONCE)])


def measured_curve(early: EarlyExit, model: Model, images: Tensor, batch: int) -> list[dict[str, Any]]:
    """Return the curve of the calibration, with the time of each point measured instead of predicted."""
    curve = []
    for point in early.calibration["curve"]:
        other = EarlyExit(model.net, point["thresholds"], early.temperatures)
        speed = measure_speed(other, (images,), batch, rounds=5).median if other.active else 1.0
        curve.append({**point, "cost": 1 / speed, "batch": batch})
    return curve


def by_exit(answers: EarlyOutput, labels: Tensor) -> dict[str, dict[str, float]]:
    """Return, for each exit, the percentage of the images that leave there and their error in percent."""
    record = {}
    for number, name in enumerate(answers.names):
        rows = answers.exits == number
        wrong = (answers.labels[rows] != labels[rows]).float().mean()
        record[name] = {"share": 100 * float(rows.float().mean()), "error": 100 * float(wrong.nan_to_num())}
    return record


def write_exits(run: RunFolder, record: ExitRecord, model: Model, test: Part, answers: EarlyOutput) -> None:
    """Write the record, and for each exit the first images that leave there."""
    shown = [
        {
            "exit": name,
            "index": row,
            "confidence": float(answers.confidences[row]),
            "label": model.classes[test.labels[row]],
            "said": model.classes[answers.labels[row]],
        }
        for number, name in enumerate(answers.names)
        for row in (answers.exits == number).nonzero().flatten()[:SHOWN].tolist()
    ]
    with whole_file(run.folder / "exits.npz") as file:
        images = np.ascontiguousarray(test.images[[each["index"] for each in shown]])
        np.savez_compressed(file, allow_pickle=False, images=images)
    run.write_json("exits.json", {**record, "shown": shown})


def digest(run: RunFolder) -> str:
    """Return a digest of the model's file: thresholds belong to one training."""
    return hashlib.sha256(run.model.read_bytes()).hexdigest()


def export_exits(run: RunFolder, early: EarlyExit, folder: Path) -> Path:
    """Write one ONNX graph per stage of a run's net, with its preprocessing, and a runner; return the runner's path."""
    model = load_model(run)
    return export_stages(early, folder, shape=model.shape, classes=model.classes, normalize=model.normalize)


def load_exits(run: RunFolder) -> tuple[EarlyExit, Model]:
    """Return the early exits that ``calibrate_run`` has kept beside a run, and its model."""
    path = run.folder / "exits.json"
    if not path.is_file():
        supervised_model(run)  # says what is missing, and whether the run can have exits at all
        raise RunError(f"{run.folder} has no thresholds yet; calibrate its exits first: deepsup exits {run.folder}")
    record = read_json(path, EXITS, "calibrate the exits again: deepsup exits RUN")
    model = supervised_model(run)
    if record["model"] != digest(run):
        raise RunError(f"{path} was made for another model; calibrate the exits again: deepsup exits {run.folder}")
    with file_named(path, RunError):
        return EarlyExit(model.net, record["thresholds"], record["temperatures"]), model


def predict_early(run: RunFolder, files: Sequence[str | os.PathLike[str]]) -> list[dict[str, Any]]:
    """Return a label, its confidence and the exit for every image file."""
    if not files:
        raise DataError("no image file given; expected at least one")
    early, model = load_exits(run)
    answers = early(model.normalize(to_tensor(read_image_files([Path(file) for file in files], model.shape))))
    return [
        {"file": str(file), "label": model.classes[label], "confidence": float(sure), "exit": early.names[number]}
        for file, label, sure, number in zip(files, *answers, strict=True)
    ]
