"""What was found inside a net in, pictures out: confusion, where images are first right, feature maps, filters.

C channels, H height, W width, K classes.
"""

import base64
import io
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from PIL import Image

from deepsup.figures.read import Story
from deepsup.figures.style import CYCLE, WIDTH, Drawing, number, tidy

KEPT = 30  # percent of activations that a feature map shows, as in the paper's Fig. 3
KINDS = {"agreement": "companions", "probe_agreement": "linear probes"}
TILE, GAP = 54, 6  # pixels of one small picture, and between two
NUMBERED_CLASSES = 12  # a confusion matrix of more classes shows shades alone


def draw_confusion(story: Story) -> Drawing | None:
    """Draw how often the output says each class (columns) of the images of each class (rows)."""
    counts = np.array(story.inside.get("layers", {}).get("output", {}).get("confusion", []), dtype=float)
    classes = [str(each) for each in story.inside.get("classes", [])]
    if counts.ndim != 2 or len(classes) != len(counts):
        return None
    rows = counts.sum(1, keepdims=True)
    share = np.divide(counts, rows, out=np.zeros_like(counts), where=rows > 0)  # a class may have no test image
    most = worst_confusion(counts, classes)
    side = min(8.0, max(3.2, 1.2 + 0.36 * len(classes)))
    drawing = Drawing("confusion", f"Confusion matrix of {story.name}, {len(classes)} classes. {most}", (side, side))
    with drawing as axes:
        axes.imshow(share, cmap="cividis", vmin=0, vmax=1, interpolation="nearest")
        if len(classes) <= NUMBERED_CLASSES:
            for (row, column), count in np.ndenumerate(counts):
                colour = "black" if share[row, column] > 0.55 else "white"
                axes.text(
                    column, row, f"{count:g}" if count else "", ha="center", va="center", color=colour, fontsize=8
                )
        every = max(1, len(classes) // 25)
        names = [each if len(each) < 13 else each[:12] + "…" for each in classes][::every]
        axes.set_yticks(range(0, len(classes), every), names)
        axes.set_xticks(range(0, len(classes), every), names, rotation=90 if max(map(len, names)) > 2 else 0)
        axes.set_xlabel("what the net says")
        axes.set_ylabel("what it is")
    return drawing


def worst_confusion(counts: np.ndarray, classes: Sequence[str]) -> str:
    """Say which two classes are mixed up most."""
    off = counts - np.diag(np.diag(counts))
    if not off.any():
        return "No image gets a wrong label."
    row, column = np.unravel_index(off.argmax(), off.shape)
    return f"Most often mixed up: {int(off[row, column])} images of {classes[row]} taken for {classes[column]}."


def draw_agreement(stories: Sequence[Story]) -> Drawing | None:
    """Draw, a run, at which layer images are first classified rightly and for good.

    By companions where every run has them, by linear probes otherwise.
    """
    key = next((key for key in KINDS if all(len(story.inside.get(key, {})) > 2 for story in stories)), None)
    if key is None:
        return None
    told = list(stories)
    layers = list(dict.fromkeys(layer for story in told for layer in story.inside[key]))
    alt = "; ".join(
        f"{story.name}: " + ", ".join(f"{layer} {n}" for layer, n in story.inside[key].items()) for story in told
    )
    drawing = Drawing(
        "agreement",
        f"Images by the layer from which on they are right, by {KINDS[key]}. {alt}.",
        (WIDTH, 1.5 + 0.45 * len(told)),
    )
    with drawing as axes:
        for place, story in enumerate(told):
            counts = story.inside[key]
            whole, left = sum(counts.values()) or 1, 0.0
            for index, layer in enumerate(layers):
                width = 100 * counts.get(layer, 0) / whole
                colour = "#999999" if layer == "never" else CYCLE[index % len(CYCLE)]
                label = ("never right" if layer == "never" else f"from {layer} on") if place == 0 else None
                axes.barh(place, width, left=left, color=colour, label=label, height=0.6)
                if width > 6:
                    axes.text(left + width / 2, place, f"{width:.0f}", ha="center", va="center", color="white")
                left += width
        axes.set_yticks(range(len(told)), [story.method if len(told) > 1 else "" for story in told])
        axes.invert_yaxis()
        tidy(axes, f"of 100 test images, by {KINDS[key]}", "")
        axes.grid(visible=False)
        if told:  # the runs of a comparison may have been moved away
            drawing.figure.legend(loc="outside upper center", ncols=2 if len(layers) > 3 else len(layers), fontsize=9)
    return drawing


def draw_layer_knowledge(stories: Sequence[Story]) -> Drawing | None:
    """Draw the test error of every layer, by its companion (filled) and by a linear probe (hollow)."""
    held = [story for story in stories if story.inside.get("layers") and layer_names(story)[1:]]
    if not held:
        return None
    names = [*dict.fromkeys(name for story in held for name in layer_names(story) if name != "output"), "output"]
    said = "; ".join(f"{story.method}: {told_layers(story)}" for story in held)
    drawing = Drawing("layer-knowledge", f"Test error of every layer, in percent. {said}.")
    with drawing as axes:
        for index, story in enumerate(held):
            colour = CYCLE[index % len(CYCLE)]
            kinds = (("probes", "probe", "--", "white"), ("layers", "companion", "-", colour))
            for key, kind, dashes, face in kinds:
                errors = {name: number(each.get("error")) for name, each in story.inside.get(key, {}).items()}
                if not errors or list(errors) == ["output"]:
                    continue
                if key == "probes":
                    errors["output"] = number(story.inside["layers"].get("output", {}).get("error"))
                axes.plot(
                    [names.index(name) for name in errors], list(errors.values()), dashes, marker="os^D"[index % 4],
                    color=colour, markerfacecolor=face, label=f"{story.method}, {kind}",
                )  # fmt: skip
        axes.set_xticks(range(len(names)), names)
        axes.set_ylim(bottom=0)
        tidy(axes, "layer", "test error, %")
        axes.legend(fontsize=9)
    return drawing


def layer_names(story: Story) -> list[str]:
    """Return the layers something is known of, in the net's order."""
    return list(dict.fromkeys([*story.inside.get("probes", {}), *story.inside.get("layers", {})]))


def told_layers(story: Story) -> str:
    """Say the error of every layer."""
    parts = [
        f"{name} {number(each.get('error')):.2f}{' (probe)' if key == 'probes' else ''}"
        for key in ("probes", "layers")
        for name, each in story.inside.get(key, {}).items()
    ]
    return ", ".join(parts)


def draw_maps(stories: Sequence[Story]) -> Drawing | None:
    """Draw one image of each class and what of it the layer lets through: the top 30 % of activations, nets beside."""
    held = [story for story in stories if "merged" in story.arrays and "images" in story.arrays]
    if not held:
        return None
    layer, labels = held[0].inside["maps"]["layer"], held[0].inside["maps"]["labels"]
    images, channels = held[0].arrays["images"], 3 if len(held) > 1 else 6
    rows = {"image": [coloured(as_picture(image), "gray") for image in images]}
    for story in held:
        rows[f"{story.method}, all"] = [coloured(picture) for picture in story.arrays["merged"]]
        chosen = story.inside["maps"]["channels"][:channels]
        for place, channel in enumerate(chosen):
            rows[f"{story.method}, map {channel}"] = [coloured(maps[place]) for maps in story.arrays["maps"]]
    names = " beside ".join(story.method for story in held)
    alt = f"Feature maps of {layer}, {names}: one image of each of {len(images)} classes, its top {KEPT} % activations."
    drawing = Drawing("feature-maps", alt, (0.42 * len(images) + 1.9, 0.42 * len(rows) + 0.3))
    with drawing as axes:
        show_grid(axes, list(rows.values()))
        axes.set_yticks([(TILE + GAP) * (row + 0.5) for row in range(len(rows))], list(rows), fontsize=9)
        places = [(TILE + GAP) * (column + 0.5) for column in range(len(images))]
        axes.set_xticks(places, [str(each)[:8] for each in labels], fontsize=9)
        axes.xaxis.tick_top()
    return drawing


def draw_filters(story: Story) -> Drawing | None:
    """Draw the filters of the first convolution."""
    if "filters" not in story.arrays:
        return None
    filters = story.arrays["filters"]
    height, width = filters.shape[2:]
    alt = f"The {len(filters)} filters of the first convolution of {story.name}, {height} by {width}."
    pictures = [coloured(as_picture(stretched(each)), "gray") for each in filters]
    rows = [pictures[start : start + 10] for start in range(0, len(pictures), 10)]
    drawing = Drawing("filters", alt, (0.55 * len(rows[0]) + 0.1, 0.55 * len(rows) + 0.1))
    with drawing as axes:
        show_grid(axes, rows)
        axes.set_axis_off()
    return drawing


def show_grid(axes: Any, rows: Sequence[Sequence[np.ndarray]]) -> None:
    """Show pictures [H,W,4] in rows as one image, each stretched to the same square, with clear gaps."""
    side = TILE + GAP
    sheet = np.zeros((len(rows) * side, len(rows[0]) * side, 4), np.uint8)
    for top, row in enumerate(rows):
        for left, picture in enumerate(row):
            down, across = (np.arange(TILE) * size // TILE for size in picture.shape[:2])
            sheet[top * side : top * side + TILE, left * side : left * side + TILE] = picture[down][:, across]
    axes.imshow(sheet, interpolation="nearest")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def coloured(picture: np.ndarray, shades: str = "cividis") -> np.ndarray:
    """Turn a picture [H,W], from its lowest value to its highest, or [H,W,3] as it is, into [H,W,4] of uint8."""
    if picture.ndim == 3:
        return np.dstack([picture, np.full(picture.shape[:2], 255, np.uint8)])
    colours: np.ndarray = mpl.colormaps[shades](stretched(picture.astype(np.float32)), bytes=True)
    return colours


def stretched(values: np.ndarray) -> np.ndarray:
    """Return values as uint8 from black, the lowest, to white, the highest."""
    low, high = float(values.min()), float(values.max())
    stretch: np.ndarray = (255 * (values - low) / (high - low or 1)).astype(np.uint8)
    return stretch


def as_picture(image: np.ndarray) -> np.ndarray:
    """Turn an image [C,H,W] into [H,W] or [H,W,3]; of more or fewer channels than a picture has, the first."""
    return np.moveaxis(image[:3], 0, -1) if len(image) >= 3 else image[0]


def picture_uri(image: np.ndarray) -> str:
    """Return an image [C,H,W] of uint8 as a PNG inside an address."""
    out = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(as_picture(image))).save(out, "PNG")
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()
