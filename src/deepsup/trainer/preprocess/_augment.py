"""Augmentation: random shifts and flips of whole batches.

The random draws are made for all images of a batch first and then applied to those of this process, so the result does
not depend on the number of processes. Legend: B batch, C channels, H height, W width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from deepsup.errors import DataError


@dataclass(frozen=True, eq=False)
class Draw:
    """The random draw of each image: where its crop begins in the padded image, and whether it is flipped."""

    top: Tensor
    left: Tensor
    mirrored: Tensor

    def of(self, which: slice) -> Draw:
        """Return the draws of some of the images."""
        return Draw(self.top[which], self.left[which], self.mirrored[which])


@dataclass(frozen=True)
class Augment:
    """Pad, crop at random to the original size and flip; after normalization, where 0 is the mean."""

    pad: int = 4
    border: Literal["zero", "reflect"] = "zero"
    offsets: int | None = None
    """The crop begins at 0..offsets-1; None: anywhere in the padded image, 0..2*pad."""
    flip: Literal["random", "alternating", "none"] = "random"
    """random: drawn per image and epoch; alternating: drawn per image, then flipped every other epoch."""

    def __post_init__(self) -> None:
        if self.pad < 0 or not 1 <= self.places <= 2 * self.pad + 1:
            raise DataError(f"{self}; expected a pad of 0 or more, and offsets of 1 to 2*pad+1")
        if self.border not in ("zero", "reflect"):
            raise DataError(f"border {self.border!r}; expected 'zero' or 'reflect'")
        if self.flip not in ("random", "alternating", "none"):
            raise DataError(f"flip {self.flip!r}; expected 'random', 'alternating' or 'none'")

    @property
    def places(self) -> int:
        """The number of positions along each axis at which a crop can begin."""
        return 2 * self.pad + 1 if self.offsets is None else self.offsets

    def draw(self, coins: Tensor, epoch: int, generator: torch.Generator) -> Draw:
        """Draw for B images; ``coins`` [B] in {0, 1} belong to the images and are the same in every epoch."""
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
        """Crop and flip [B,C,H,W] as drawn -> the same shape in channels_last."""
        height, width = images.shape[2:]
        if self.border == "reflect" and self.pad >= min(height, width):
            raise DataError(f"cannot reflect {self.pad} pixels of images {height}x{width}; expected a smaller pad")
        pixels = self._windows(self._padded(images), draw, height, width)
        mirrored = draw.mirrored.nonzero()[:, 0].to(images.device)
        pixels.index_copy_(0, mirrored, pixels.index_select(0, mirrored).flip(2))
        return pixels.permute(0, 3, 1, 2)

    def _padded(self, images: Tensor) -> Tensor:
        """[B,C,H,W] -> [B,H+2p,W+2p,C], contiguous."""
        batch, channels, height, width = images.shape
        p, pixels = self.pad, images.permute(0, 2, 3, 1)
        bottom, right = p + height, p + width
        padded = images.new_zeros(batch, height + 2 * p, width + 2 * p, channels)
        padded[:, p:bottom, p:right] = pixels
        if self.border == "reflect" and p:
            padded[:, p:bottom, :p] = pixels[:, :, 1 : p + 1].flip(2)
            padded[:, p:bottom, right:] = pixels[:, :, -p - 1 : -1].flip(2)
            padded[:, :p] = padded[:, p + 1 : 2 * p + 1].flip(1)
            padded[:, bottom:] = padded[:, bottom - p - 1 : bottom - 1].flip(1)
        return padded

    def _windows(self, padded: Tensor, draw: Draw, height: int, width: int) -> Tensor:
        """[B,H+2p,W+2p,C] -> [B,H,W,C]. A row of a window lies in one piece, so each is one copy of W*C values."""
        batch, tall, wide, channels = padded.shape
        # Row p of this view begins at pixel p of the flat memory; rows overlap, and are only read.
        rows = padded.as_strided((batch * tall * wide - width + 1, width * channels), (channels, 1))
        line = torch.arange(batch)[:, None] * tall + draw.top[:, None] + torch.arange(height)  # [B,H]
        begin = (line * wide + draw.left[:, None]).flatten().to(padded.device)
        return rows.index_select(0, begin).view(batch, height, width, channels)


AUGMENTATIONS: dict[str, Augment | None] = {
    "none": None,
    "crop-flip": Augment(),
    "crop-flip-reflect": Augment(border="reflect"),
    "crop-alternating": Augment(border="reflect", flip="alternating"),
    "shift-alternating": Augment(pad=2, border="reflect", flip="alternating"),
    "crop": Augment(flip="none"),
    "caffe": Augment(offsets=8),
}
"""crop-flip is the paper's, caffe that of its authors' code (offsets 0..7 of 0..8), crop is for digits."""
