"""Nets and test images -> the few images that the page offers, the most telling first, as PNG text.

N images, K classes.
"""

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from deepsup.insight import Measurement, measure
from deepsup.sampling import stratified
from deepsup.trainer.data import Images, Part
from deepsup.trainer.demo._demo_nets import DemoNet
from deepsup.trainer.preprocess import to_tensor

SHOWN = 40
TESTED = 2000
"""Test images that the strip is chosen from."""
MOST_BYTES = 300_000
"""Of all images of the strip together, as PNG."""
DARK = 40
"""The mean of the border of images that are drawn bright on dark, as digits are."""


def strip_of(nets: Sequence[DemoNet]) -> list[dict[str, Any]]:
    """Return images with their label and how the layers differ: those first on which most answers differ.

    The classes take turns, so that the first images are not all of one class.
    """
    part = tested_part(nets[0].data.test)
    answers = answers_of(nets, part)
    right = answers[len(nets[0].net.taps)] == part.labels
    different = np.array([len(set(row)) for row in answers.T])
    wrong = (answers != part.labels).sum(0)
    order = np.lexsort((-wrong, -different))
    turns = taking_turns(order, part.labels)
    shown: list[dict[str, Any]] = []
    used = 0
    for index in turns[:SHOWN]:
        text = png(part.images[index])
        used += len(text)
        if used > MOST_BYTES and shown:
            break
        about = {"label": int(part.labels[index]), "answers": int(different[index]), "right": bool(right[index])}
        shown.append({"png": text, **about})
    return shown


def tested_part(part: Part) -> Part:
    """Return the test images to choose from, stratified by class."""
    return part if len(part) <= TESTED else part.take(stratified(part.strata, TESTED))


def answers_of(nets: Sequence[DemoNet], part: Part) -> np.ndarray:
    """Return [layers of all nets, N]: the class that each layer and each output answers."""
    rows = []
    for each in nets:
        measured = measured_on(each, part)
        rows += [scores.argmax(1).numpy() for scores in (*measured.companions.values(), measured.scores)]
    return np.stack(rows)


def measured_on(each: DemoNet, part: Part) -> Measurement:
    """Return the scores of all layers of a net on images."""
    return measure(each.net, to_tensor(part.images), torch.from_numpy(part.labels), each.model.normalize)


def taking_turns(order: np.ndarray, labels: np.ndarray) -> list[int]:
    """Return the indices of an order such that each class has its first image before any has its second.

    >>> taking_turns(np.array([3, 1, 0, 2]), np.array([0, 1, 0, 1]))
    [3, 0, 1, 2]
    """
    rank: dict[int, int] = {}
    turns = []
    for index in order.tolist():
        label = int(labels[index])
        turns.append((rank.get(label, 0), index))
        rank[label] = rank.get(label, 0) + 1
    return [index for _, index in sorted(turns, key=lambda turn: turn[0])]


def png(image: Images) -> str:
    """Return an image [C,H,W] as base64 text of a PNG."""
    from PIL import Image

    pixels = image[0] if len(image) == 1 else image[:3].transpose(1, 2, 0)
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, format="PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def is_ink(images: Images) -> bool:
    """Whether images are grey and bright on a dark ground, so that they can be drawn."""
    if images.shape[1] != 1:
        return False
    first = images[:500, 0].astype(np.float32)
    border = np.concatenate([first[:, 0], first[:, -1], first[:, :, 0], first[:, :, -1]], axis=1)
    return float(border.mean()) < DARK
