"""A batch of images in, the batch shifted and mirrored out: whole batches at once, each image by its own draw.

What to do is drawn first and for all images of a batch, then applied to those that this process has: so the same images
come out however many processes share them. Legend: B batch, C channels, H height, W width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from deepsup.errors import DataError


@dataclass(frozen=True, eq=False)
class Draw:
    """What happens to each image: where its window begins in the padded image, and whether it is mirrored."""

    top: Tensor
    left: Tensor
    mirrored: Tensor

    def of(self, which: slice) -> Draw:
        """Return the draw of some of the images."""
        return Draw(self.top[which], self.left[which], self.mirrored[which])


@dataclass(frozen=True)
class Augment:
    """Pad, cut a window of the original size out at random, mirror; after normalisation, where 0 is the mean."""

    pad: int = 4
    border: Literal["zero", "reflect"] = "zero"
    offsets: int | None = None
    """The window begins at 0..offsets-1; None: anywhere in the padded image, 0..2*pad."""
    flip: Literal["random", "alternating", "none"] = "random"
    """random: a coin for each image and epoch; alternating: a coin for each image, then the other side every epoch."""

    def __post_init__(self) -> None:
        if self.pad < 0 or not 1 <= self.places <= 2 * self.pad + 1:
            raise DataError(f"{self}; expected a pad of 0 or more, and offsets of 1 to 2*pad+1")
        if self.border not in ("zero", "reflect"):
            raise DataError(f"border {self.border!r}; expected 'zero' or 'reflect'")
        if self.flip not in ("random", "alternating", "none"):
            raise DataError(f"flip {self.flip!r}; expected 'random', 'alternating' or 'none'")

    @property
    def places(self) -> int:
        """In how many places along each side a window can begin."""
        return 2 * self.pad + 1 if self.offsets is None else self.offsets

    def draw(self, coins: Tensor, epoch: int, generator: torch.Generator) -> Draw:
        """Draw for B images; ``coins`` [B] in {0, 1} are the images' own, the same in every epoch."""
        count = (len(coins),)
        top = torch.randint(self.places, count, generator=generator)
        left = torch.randint(self.places, count, generator=generator)
        if self.flip == "random":
            mirrored = torch.randint(2, count, generator=generator)
        elif self.flip == "alternating":
            mirrored = (coins + epoch) % 2
        else:
            mirrored = torch.zeros_like(coins)
        return Draw(top, left, mirrored.bool())

    def __call__(self, images: Tensor, draw: Draw) -> Tensor:
        """[B,C,H,W] -> the same shape in channels_last, window and mirror of each image as drawn."""
        height, width = images.shape[2:]
        if self.border == "reflect" and self.pad >= min(height, width):
            raise DataError(f"cannot reflect {self.pad} pixels of images {height}x{width}; expected a smaller pad")
        mode = "constant" if self.border == "zero" else "reflect"
        padded = F.pad(images, [self.pad] * 4, mode=mode) if self.pad else images
        # One gather does both: row indices [B,H,1], and column indices [B,1,W] that run backwards where mirrored.
        device = images.device
        rows = (draw.top[:, None] + torch.arange(height)).to(device)[:, :, None]
        columns = torch.arange(width).expand(len(draw.left), width)
        columns = torch.where(draw.mirrored[:, None], width - 1 - columns, columns)
        columns = (draw.left[:, None] + columns).to(device)[:, None, :]
        which = torch.arange(len(images), device=device)[:, None, None]
        pixels = padded.permute(0, 2, 3, 1)[which, rows, columns]  # [B,H,W,C]
        return pixels.permute(0, 3, 1, 2)


AUGMENTATIONS: dict[str, Augment | None] = {
    "none": None,
    "crop-flip": Augment(),
    "crop-flip-reflect": Augment(border="reflect"),
    "crop-alternating": Augment(border="reflect", flip="alternating"),
    "crop": Augment(flip="none"),
    "caffe": Augment(offsets=8),
}
"""crop-flip is the paper's, caffe what its authors' code did (offsets 0..7 of 0..8), crop is for digits."""
