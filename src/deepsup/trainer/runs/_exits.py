"""A finished run in; out, its early exits: calibrated, measured on test images, kept beside the run, and loaded again.

N images, C channels, H W height and width.
"""

import hashlib
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

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
EXITS = {"model": str, "thresholds": {"*": (float, type(None))}, "temperatures": {"*": float}}


def calibrate_run(
    run: RunFolder,
    *,
    max_error_increase: float | None = None,
    max_cost: float | None = None,
    batch_sizes: Sequence[int] = (1, 32, 512),
    watch: Callable[[str, int, int], None] = lambda *_: None,
) -> tuple[EarlyExit, dict[str, Any]]:
    """Calibrate the exits of a run on its validation images, measure them on its test images, and keep the result.

    The thresholds and all that was measured go into ``exits.json`` of the run, some images into ``exits.npz``.

    watch: called with what has ended, how many steps have, and how many there are.
    """
    model = supervised_model(run)
    validation, test, chosen_on = parts_of(run, model)
    early = calibrate(
        model.net,
        (prepared(model, validation), torch.from_numpy(validation.labels)),
        max_error_increase=max_error_increase,
        max_cost=max_cost,
        batch_size=batch_sizes,
    )
    watch("thresholds chosen", 1, 4)
    curve = measured_curve(early, model, prepared(model, validation), batch_sizes[len(batch_sizes) // 2])
    watch("curve measured", 2, 4)
    images, labels = prepared(model, test), torch.from_numpy(test.labels)
    outputs = [early(part) for part in in_batches(images)]
    watch("test images classified", 3, 4)
    record = {
        "plain_error": error_percent(plain_scores(early, images), labels),
        "error": error_percent(torch.cat([each.scores for each in outputs]), labels),
        "speedup": {str(size): measure_speed(early, (images,), size).median for size in batch_sizes},
        "thresholds": early.thresholds,
        "temperatures": early.temperatures,
        "multiply_adds": early.calibration["multiply_adds"],
        "exits": by_exit(early, outputs, labels),
        "images": len(labels),
        "threads": torch.get_num_threads(),
        "validation": {**chosen_on, **{key: early.calibration[key] for key in ("plain_error", "error")}},
        "curve": curve,
        "model": digest(run),
    }
    watch("speed measured", 4, 4)
    keep(run, record, model, test, outputs)
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
    return torch.cat([model.normalize(images) for images in in_batches(to_tensor(part.images))])


def in_batches(images: Tensor, size: int = 500) -> list[Tensor]:
    """Return images in batches that fit into memory."""
    return [images[start : start + size] for start in range(0, len(images), size)]


def plain_scores(early: EarlyExit, images: Tensor) -> Tensor:
    with torch.inference_mode():
        return torch.cat([early.scores(early.model(part)) for part in in_batches(images)])


def measured_curve(early: EarlyExit, model: Model, images: Tensor, batch: int) -> list[dict[str, Any]]:
    """Return the curve of the calibration, with the time of each point measured instead of predicted."""
    curve = []
    for point in early.calibration["curve"]:
        other = EarlyExit(model.net, point["thresholds"], early.temperatures)
        speed = measure_speed(other, (images,), batch, rounds=5).median if other.active else 1.0
        curve.append({**point, "cost": 1 / speed, "batch": batch})
    return curve


def by_exit(early: EarlyExit, outputs: Sequence[EarlyOutput], labels: Tensor) -> dict[str, dict[str, float]]:
    """Return, for each exit, the percentage of the images that leave there and their error in percent."""
    exits, labels_given = torch.cat([each.exits for each in outputs]), torch.cat([each.labels for each in outputs])
    record = {}
    for number, name in enumerate(early.names):
        here = exits == number
        wrong = (labels_given[here] != labels[here]).float().mean()
        record[name] = {"share": 100 * float(here.float().mean()), "error": 100 * float(wrong.nan_to_num())}
    return record


def keep(run: RunFolder, record: dict[str, Any], model: Model, test: Part, outputs: Sequence[EarlyOutput]) -> None:
    """Write the record, and for each exit the first images that leave there."""
    exits = torch.cat([each.exits for each in outputs]).numpy()
    predictions = torch.cat([each.labels for each in outputs]).numpy()
    sure = torch.cat([each.confidences for each in outputs]).numpy()
    shown, rows = [], []
    for number, name in enumerate(outputs[0].names):
        for row in np.flatnonzero(exits == number)[:SHOWN].tolist():
            words = {"label": model.classes[test.labels[row]], "said": model.classes[predictions[row]]}
            shown.append({"exit": name, "index": row, "confidence": float(sure[row]), **words})
            rows.append(row)
    with whole_file(run.folder / "exits.npz") as file:
        np.savez_compressed(file, allow_pickle=False, images=np.ascontiguousarray(test.images[rows]))
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
    images = model.normalize(to_tensor(read_image_files([Path(file) for file in files], model.shape)))
    out = early(images)
    return [
        {
            "file": str(file),
            "label": model.classes[int(out.labels[row])],
            "confidence": float(out.confidences[row]),
            "exit": early.names[int(out.exits[row])],
        }
        for row, file in enumerate(files)
    ]
