"""Write the metrics of a dense net, and its predictions for some test images, to two files of its run folder."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deepsup.errors import DataError
from deepsup.insight import DenseMeasurement
from deepsup.io import disk_errors_named, whole_file
from deepsup.trainer.data import EDGES, open_image, palette, read_image_files
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.runs._model import Model

SHOWN = 6


def write_scenes(
    run: RunFolder, measured: DenseMeasurement, images: npt.NDArray[np.uint8], classes: Sequence[str]
) -> dict[str, Any]:
    """Write ``insight.json`` and ``insight.npz`` with the first test images; return the metrics of the output."""
    shown = slice(min(SHOWN, len(images)))
    arrays = {f"said/{name}": prediction[shown].numpy() for name, prediction in measured.predictions.items()}
    arrays |= {"scenes": np.ascontiguousarray(images[shown]), "truth": measured.labels[shown].numpy()}
    with whole_file(run.folder / "insight.npz") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    metrics = {name: named_metrics(each, classes) for name, each in measured.scored.items()}
    run.write_json("insight.json", {"dense": metrics, "classes": list(classes)})
    return {"metrics": metrics["output"]}


def named_metrics(metrics: Mapping[str, Any], classes: Sequence[str]) -> dict[str, Any]:
    """Return the metrics with the names of the classes; those of edges only where the classes are edges."""
    left_out = () if tuple(classes) == EDGES else ("boundary_f",)
    facts = {key: value for key, value in metrics.items() if key not in left_out}
    for key in ("iou_per_class", "dice_per_class"):
        facts[key] = dict(zip(classes, facts[key], strict=True))
    return facts


def predict_masks(model: Model, files: Sequence[str | os.PathLike[str]], out: Path) -> list[dict[str, Any]]:
    """Write a mask of each image's own size as a palette PNG; return its path and the share of each class."""
    paths = [Path(file) for file in files]
    stems = [path.stem for path in paths]
    if len(set(stems)) < len(stems):
        twice = next(stem for stem in stems if stems.count(stem) > 1)
        raise DataError(f"two files are called {twice!r}; expected one name per mask; predict them one by one, --out")
    masks = model.measure_dense(read_image_files(paths, model.shape)).predictions["output"].numpy()
    with disk_errors_named(out):
        out.mkdir(parents=True, exist_ok=True)
    answers = []
    for index, path in enumerate(paths):
        mask = out / f"{path.stem}.png"
        write_mask(mask, masks[index], open_image(path).size)
        shares = np.bincount(masks[index].ravel(), minlength=len(model.classes)) / masks[index].size
        by_class = {name: round(float(share), 6) for name, share in zip(model.classes, shares, strict=True) if share}
        answers.append({"file": str(path), "mask": str(mask), "classes": by_class})
    return answers


def write_mask(path: Path, classes: npt.NDArray[np.uint8], size: tuple[int, int]) -> None:
    """Write class numbers [H,W] as a palette PNG of a size (width, height)."""
    from PIL import Image

    image = Image.fromarray(classes).resize(size, Image.Resampling.NEAREST)
    image.putpalette(palette().ravel().tolist())
    with whole_file(path) as file:
        image.save(file, format="PNG")
