"""Scenes composed of the embedded digits: several digits of different sizes on one canvas, with a label per pixel.

N scenes, H W canvas.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from deepsup.trainer.data._dataset import Images, Part

BACKGROUND = "background"
EDGES = ("no edge", "edge")
INK = 96  # a pixel of a digit is one that is brighter
NOISE = 24.0  # the deviation of the background's noise
Masks = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Composed:
    """A named set of scenes."""

    name: str
    about: str
    classes: tuple[str, ...]
    sizes: tuple[int, int]
    """The smallest and the largest digit, in pixels."""
    canvas: int = 64
    """The height and width of a scene."""
    digits: tuple[int, int] = (3, 8)
    """The smallest and the largest number of digits in a scene."""
    counts: dict[str, int] = field(default_factory=lambda: {"train": 1_000, "test": 500})
    edges: bool = False
    """Whether the labels are the edges of the digits instead of their classes."""


_DIGITS = (BACKGROUND, *"0123456789")
COMPOSED = {
    each.name: each
    for each in (
        Composed("digits-scenes", "scenes of digits of 10 to 28 pixels, a class per pixel", _DIGITS, (10, 28)),
        Composed("digits-scenes-small", "scenes of digits of 8 to 12 pixels", _DIGITS, (8, 12), 32, (2, 4)),
        Composed("digits-scenes-edges", "the edges of the digits of digits-scenes", EDGES, (10, 28), edges=True),
    )
}
"""Composed in memory from mnist-mini: they need no download."""


def compose(part: Part, count: int, like: Composed, seed: int = 0) -> Part:
    """Return scenes [N,1,H,W] with masks [N,H,W], drawn from the digits of a part; the seed determines them.

    The digits of a scene do not overlap. Each has its own size and brightness. The background is noisy.

    >>> from deepsup.trainer.data._load import load_data
    >>> scenes = compose(load_data().train, 2, COMPOSED["digits-scenes"])
    >>> scenes.images.shape, scenes.labels.shape, scenes.labels.dtype
    ((2, 1, 64, 64), (2, 64, 64), dtype('uint8'))
    """
    random = np.random.default_rng(seed)
    shape = (like.canvas, like.canvas)
    scenes, masks = np.zeros((count, *shape)), np.zeros((count, *shape), np.uint8)
    for scene, mask in zip(scenes, masks, strict=True):
        taken = np.zeros(shape, bool)
        for _ in range(random.integers(like.digits[0], like.digits[1] + 1)):
            _place(scene, mask, taken, part, like.sizes, random)
    scenes += np.abs(random.normal(0, NOISE, scenes.shape))
    images: Images = scenes.clip(0, 255).astype(np.uint8)[:, None]
    return Part(images, edges_of(masks) if like.edges else masks)


def _place(scene: npt.NDArray[np.float64], mask: Masks, taken: npt.NDArray[np.bool_], part: Part,
           sizes: tuple[int, int], random: np.random.Generator) -> None:  # fmt: skip
    """Draw one digit at a free place; after a few tries without one, draw nothing."""
    index, size = random.integers(len(part)), int(random.integers(sizes[0], sizes[1] + 1))
    digit = _resized(part.images[index, 0], size)
    bright = random.uniform(0.5, 1.0)
    for _ in range(20):
        y, x = random.integers(0, len(scene) - size + 1, 2)
        place = slice(y, y + size), slice(x, x + size)
        if not taken[place].any():
            taken[place] = True
            scene[place] = bright * digit
            mask[place][digit > INK] = part.labels[index] + 1
            return


def _resized(digit: Images, size: int) -> npt.NDArray[np.float64]:
    from PIL import Image

    return np.asarray(Image.fromarray(digit).resize((size, size), Image.Resampling.BILINEAR), np.float64)


def edges_of(masks: Masks) -> Masks:
    """Return 1 where a pixel's class differs from that of the pixel below it or to its right, else 0."""
    edges = np.zeros_like(masks)
    edges[:, :-1] |= masks[:, :-1] != masks[:, 1:]
    edges[:, :, :-1] |= masks[:, :, :-1] != masks[:, :, 1:]
    return edges
