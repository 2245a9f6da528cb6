"""The sections of a page about a run with a score per pixel: its metrics, and what every side output says."""

from typing import Any

import numpy as np

from deepsup.trainer.data import palette
from deepsup.trainer.report._html import PageTable, Picture, Section
from deepsup.trainer.report._insight_figures import picture_uri
from deepsup.trainer.report._read import RunRecord
from deepsup.trainer.report._style import MOST_PICTURES, number

METRICS = (
    "The error of a run with a score per pixel is 100 % minus its mean IoU. A side output is upsampled to the image's "
    "size before it is measured."
)
SIDES = (
    "Test images: the image, its true mask, what every side output says, from the lowest resolution up, and the output."
)


def dense_sections(run: RunRecord) -> list[Section]:
    """Return the metrics and the pictures of a dense run; none for other runs."""
    return [metrics(run), side_outputs(run)] if run.insight.get("dense") else []


def metrics(run: RunRecord) -> Section:
    """Return mean IoU, Dice and wrong pixels of each output, and the IoU of every class."""
    outputs: dict[str, dict[str, Any]] = run.insight["dense"]
    edges = any("boundary_f" in each for each in outputs.values())
    rows = [
        [name, *(share(each.get(key)) for key in ("miou", "dice", "pixel_error")),
         *([share(each.get("boundary_f", {}).get("f"))] if edges else [])]
        for name, each in outputs.items()
    ]  # fmt: skip
    header = ["output", "mean IoU", "Dice", "wrong pixels", *(["boundary F (ODS)"] if edges else [])]
    classes = [str(each) for each in run.insight.get("classes", [])]
    by_class = [
        [name, *(share(each.get("iou_per_class", {}).get(name)) for each in outputs.values())] for name in classes
    ]
    return Section(
        "What each output says",
        METRICS,
        tables=[PageTable(header, rows), PageTable(["class, IoU", *outputs], by_class)],
    )


def side_outputs(run: RunRecord) -> Section:
    """Return, for some test images, the image, its mask, every side output and the final one."""
    section = Section("Side outputs", SIDES, legend=legend(run))
    scenes, truth = run.arrays.get("scenes", ())[:MOST_PICTURES], run.arrays.get("truth", ())
    names = [name for name in run.insight["dense"] if f"said/{name}" in run.arrays]
    section.columns = 2 + len(names)
    masks = {name: run.arrays[f"said/{name}"] for name in names}
    for index, (scene, mask) in enumerate(zip(scenes, truth, strict=False)):
        shown = {"image": scene, "truth": coloured(mask)}
        shown |= {name: coloured(masks[name][index]) for name in names}
        for name, picture in shown.items():
            alt = f"Test image {index}: {name}"
            section.pictures.append(Picture(picture_uri(picture), alt, [name, f"test image {index}"]))
    return section


def legend(run: RunRecord) -> list[tuple[str, str]]:
    """Return the colour and the name of each class."""
    classes = [str(each) for each in run.insight.get("classes", [])]
    return [(f"rgb({r}, {g}, {b})", name) for (r, g, b), name in zip(palette().tolist(), classes, strict=False)]


def coloured(mask: np.ndarray) -> np.ndarray:
    """Return class numbers [H,W] as a picture [3,H,W]."""
    colours: np.ndarray = palette()[mask]
    return colours.transpose(2, 0, 1)


def share(value: Any) -> str:
    """Return a percentage as text, or a dash."""
    return f"{value:.2f} %" if np.isfinite(number(value)) else "-"
