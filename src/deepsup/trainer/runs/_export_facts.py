"""A finished run -> what ``deepsup.export`` needs of it: its net, its preprocessing, and what its model card says."""

from pathlib import Path
from typing import Any

import numpy as np

from deepsup.exporting import Exportable, Facts, Trial, noise, table
from deepsup.trainer.data import KNOWN, subset
from deepsup.trainer.preprocess import Normalizer
from deepsup.trainer.runs._evaluate import check_fits
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.runs._model import Model, load_model
from deepsup.trainer.runs._run import Preprocess
from deepsup.trainer.runs._run_data import data_of

CALIBRATION = 250
"""Training images on which the ranges of an int8 file are set."""

STEPS = {
    "standardize": "subtract the mean of each channel and divide by its deviation, both of the training images",
    "gcn": "global contrast normalization: subtract the mean of the image and scale it to one norm",
    "zca": "ZCA whitening, fitted on the training images",
    "lcn": "local contrast normalization",
}


def exportable(run: RunFolder, example: Any) -> Exportable:
    """Return the net of a run, what its card says, images to compare on, and the run's preprocessing."""
    model = load_model(run)
    facts = Facts(
        run.config.network.name,
        model.classes,
        ("values from 0 to 255 are divided by 255", *steps_of(model.normalize)),
        tuple(training_of(run)),
        run.config.to_dict() | {"data": source_name(run.config.data.source)},
    )
    images = noise(model.shape) if example is None else example
    preprocess = Preprocess(model.normalize, model.shape)
    return Exportable(model.net, facts, images, preprocess, lambda: trial_of(run, model))


def trial_of(run: RunFolder, model: Model) -> Trial:
    """Return training images to calibrate on, a stratified sample, and the test images."""
    data = data_of(run, model.config)
    check_fits(run, model, data.name, data.classes, data.test)
    sample = subset(data.train, min(CALIBRATION, len(data.train)))
    return Trial(*map(np.ascontiguousarray, (sample.images, data.test.images, data.test.labels)))


def steps_of(normalize: Normalizer) -> list[str]:
    """Return the steps of the normalization in words, with the numbers of the small ones."""
    lines = []
    for step, arrays in zip(normalize.steps, normalize.arrays, strict=True):
        small = {name: array.tolist() for name, array in arrays.items() if array.numel() <= 4}
        values = "".join(f"; {name} {[round(value, 6) for value in each]}" for name, each in small.items())
        lines.append(f"{STEPS.get(step.name, step.name)} ({step}{values})")
    return lines


def training_of(run: RunFolder) -> list[str]:
    """Return what the net was trained on and how often it is wrong, as paragraphs."""
    result, config = run.result, run.config
    data = (
        f"Trained on {count(result.get('train_images'))} of `{source_name(config.data.source)}`, {result['epochs']} "
        f"{'epoch' if result['epochs'] == 1 else 'epochs'}, seed {config.run.seed}."
    )
    if result["error"] is None:
        return [data, "Not tested."]
    errors = {"output": result["error"], **result["companions"]}
    kind = "error in percent (100 minus the mean IoU)" if result.get("metrics") else "error in percent"
    tested = f"Test {kind}, on {count(result.get('test_images'))} that it was not trained on:"
    return [data, tested, table(["layer", "error %"], [(name, f"{each:.2f}") for name, each in errors.items()])]


def count(images: int | None) -> str:
    """Return a number of images in words; old runs do not record it."""
    return "images" if images is None else f"{images:,} images"


def source_name(source: str) -> str:
    """Return the name of a data set; of a path only the last part, which says nothing about the machine."""
    return source if source in KNOWN else Path(source).name
