"""Figures of what a net knows: confusion matrix, feature maps, filters.

C channels, H height, W width, K classes.
"""

import base64
import io
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from PIL import Image

from deepsup.trainer.report._names import width
from deepsup.trainer.report._read import RunRecord
from deepsup.trainer.report._style import INK, MOST_PICTURES, Drawing

KEPT = 30  # percent of the activations in a feature map, as in the paper's Fig. 3
TILE, GAP = 54, 6  # pixels of a small picture, and between two
MOST_CLASSES = 2048  # of a confusion matrix: its colours take 128 MiB
NUMBERED_CLASSES = 12  # a confusion matrix of more classes shows only shades
MISTAKES = "#9c2a00"
WHITE_FROM = 0.68  # opacity above which white numbers are more readable, on light and dark backgrounds


def draw_confusion(run: RunRecord) -> Drawing | None:
    """Draw the confusion matrix of the output: true classes in rows, predicted classes in columns."""
    counts = np.array(run.insight.get("layers", {}).get("output", {}).get("confusion", []), dtype=float)
    classes = [str(each) for each in run.insight.get("classes", [])]
    if counts.ndim != 2 or len(classes) != len(counts) or len(classes) > MOST_CLASSES:
        return None
    most = worst_confusion(counts, classes)
    side = min(8.0, max(2.6, 1.6 + 0.3 * len(classes)))
    drawing = Drawing("confusion", f"Confusion matrix of {run.name}, {len(classes)} classes. {most}", (side, side))
    with drawing as axes:
        shades = confusion_shades(counts)
        axes.imshow(shades, interpolation="nearest")
        if len(classes) <= NUMBERED_CLASSES:
            for (row, column), count in np.ndenumerate(counts):
                colour = "white" if row != column and shades[row, column, 3] > WHITE_FROM else INK
                weight = "bold" if row == column else "normal"
                text = f"{count:g}" if count else ""
                axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=8, fontweight=weight)
        every = max(1, len(classes) // 25)
        names, places = classes[::every], range(0, len(classes), every)
        drawing.name_ticks(axes.yaxis, places, names)
        drawing.name_ticks(axes.xaxis, places, names, turned=max(map(width, names)) > 2)
        axes.set_xlabel("predicted class")
        axes.set_ylabel("true class")
    return drawing


def confusion_shades(counts: np.ndarray) -> np.ndarray:
    """Return the colours [K,K,4] of counts [K,K]: mistakes are red, by their share of the class; the diagonal is grey.

    The largest share of mistakes is fully opaque, for any diagonal; cells without mistakes are transparent.
    """
    rows = counts.sum(1, keepdims=True)
    share = np.divide(counts, rows, out=np.zeros_like(counts), where=rows > 0)  # a class may have no test image
    right = np.eye(len(counts), dtype=bool)
    share[right] = 0
    shades = np.zeros((*counts.shape, 4))
    shades[..., :3], shades[right, :3] = mpl.colors.to_rgb(MISTAKES), mpl.colors.to_rgb("#888888")
    shades[..., 3] = np.where(share > 0, 0.12 + 0.88 * share / (share.max() or 1), 0)
    shades[right, 3] = 0.3
    return shades


def worst_confusion(counts: np.ndarray, classes: Sequence[str]) -> str:
    """Return which two classes are confused most often."""
    off = counts - np.diag(np.diag(counts))
    if not off.any():
        return "No image is misclassified."
    row, column = np.unravel_index(off.argmax(), off.shape)
    return f"Most frequent mistake: {int(off[row, column])} images of {classes[row]} classified as {classes[column]}."


def draw_maps(runs: Sequence[RunRecord]) -> Drawing | None:
    """Draw one image per class and the top 30 % of the layer's activations, for several nets side by side."""
    inspected = [run for run in runs if "merged" in run.arrays and "images" in run.arrays]
    if not inspected:
        return None
    layer, labels = inspected[0].insight["maps"]["layer"], inspected[0].insight["maps"]["labels"]
    labels = labels[:MOST_PICTURES]
    images, channels = inspected[0].arrays["images"][:MOST_PICTURES], 3 if len(inspected) > 1 else 6
    rows = [("image", [tile(coloured(as_picture(image), "gray")) for image in images])]
    for run in inspected:
        merged, maps = (run.arrays[name][:MOST_PICTURES] for name in ("merged", "maps"))
        rows.append((f"{run.label}, all", [tile(coloured(picture)) for picture in merged]))
        for place, channel in enumerate(run.insight["maps"]["channels"][:channels]):
            rows.append((f"map {channel}", [tile(coloured(each[place])) for each in maps]))
    nets = " and ".join(run.label for run in inspected)
    alt = f"Feature maps of {layer}, {nets}: one image of each of {len(images)} classes, its top {KEPT} % activations."
    drawing = Drawing("feature-maps", alt, (0.42 * len(images) + 1.9, 0.42 * len(rows) + 0.5))
    with drawing as axes:
        show_grid(axes, [pictures for _, pictures in rows])
        middles = [(TILE + GAP) * (place + 0.5) for place in range(max(len(rows), len(images)))]
        drawing.name_ticks(axes.yaxis, middles[: len(rows)], [name for name, _ in rows], limit=24, fontsize=9)
        names = [str(each) for each in labels]
        axes.xaxis.tick_top()
        turned = max(map(width, names)) > 5
        drawing.name_ticks(axes.xaxis, middles[: len(images)], names, limit=12, turned=turned, fontsize=9)
    return drawing


def draw_filters(run: RunRecord) -> Drawing | None:
    """Draw the filters of the first convolution."""
    if "filters" not in run.arrays:
        return None
    filters = run.arrays["filters"][:MOST_PICTURES]
    height, width = filters.shape[2:]
    alt = f"The {len(filters)} filters of the first convolution of {run.name}, {height} by {width}."
    pictures = [tile(coloured(as_picture(stretched(each)), "gray")) for each in filters]
    rows = [pictures[start : start + 10] for start in range(0, len(pictures), 10)]
    drawing = Drawing("filters", alt, (0.55 * len(rows[0]) + 0.1, 0.55 * len(rows) + 0.1))
    with drawing as axes:
        show_grid(axes, rows)
        axes.set_axis_off()
    return drawing


def tile(picture: np.ndarray) -> np.ndarray:
    """Return a picture [H,W,4] resized to a small square."""
    down, across = (np.arange(TILE) * size // TILE for size in picture.shape[:2])
    square: np.ndarray = picture[down][:, across]
    return square


def show_grid(axes: Any, rows: Sequence[Sequence[np.ndarray]]) -> None:
    """Show small squares in rows as one image, with transparent gaps."""
    side = TILE + GAP
    sheet = np.zeros((len(rows) * side, len(rows[0]) * side, 4), np.uint8)
    for top, row in enumerate(rows):
        for left, picture in enumerate(row):
            sheet[top * side : top * side + TILE, left * side : left * side + TILE] = picture
    axes.imshow(sheet, interpolation="nearest")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def coloured(picture: np.ndarray, shades: str = "cividis") -> np.ndarray:
    """Return a picture [H,W], scaled from its lowest to its highest value, or [H,W,3] unchanged, as uint8 [H,W,4]."""
    if picture.ndim == 3:
        return np.dstack([picture, np.full(picture.shape[:2], 255, np.uint8)])
    colours: np.ndarray = mpl.colormaps[shades](stretched(picture.astype(np.float32)), bytes=True)
    return colours


def stretched(values: np.ndarray) -> np.ndarray:
    """Return values as uint8, scaled from black (lowest) to white (highest)."""
    low, high = float(values.min()), float(values.max())
    stretch: np.ndarray = (255 * (values - low) / (high - low or 1)).astype(np.uint8)
    return stretch


def as_picture(image: np.ndarray) -> np.ndarray:
    """Return an image [C,H,W] as [H,W] or [H,W,3]; of other numbers of channels, the first ones."""
    return np.moveaxis(image[:3], 0, -1) if len(image) >= 3 else image[0]


def picture_uri(image: np.ndarray) -> str:
    """Return an image [C,H,W] of uint8 as a data URI with a PNG."""
    out = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(as_picture(image))).save(out, "PNG")
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()
