"""The batch stream: seeded, shuffled or in order, split over processes.

The images are one uint8 tensor; each batch is gathered, normalized and augmented as a whole, in this process.
Legend: N images, B batch, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from deepsup.errors import DataError
from deepsup.trainer.preprocess import Augment

# The purpose of a random stream; part of its seed, so that no two streams are equal.
_ORDER, _COINS = 0, 1


@dataclass(frozen=True, eq=False)
class Batches:
    """The batches of each epoch, determined by the seed and the epoch alone.

    ``batch_size`` counts the images of all processes together. Each process gets its share of every batch: no
    image is repeated or lost, and all take the same number of steps. Training does not depend on their number.
    """

    images: Tensor
    """[N,C,H,W], uint8; or float32 if it was normalized beforehand (``Normalizer.apply_all``)."""
    labels: Tensor
    """[N] int64."""
    batch_size: int
    seed: int = 0
    shuffle: bool = True
    normalize: Callable[[Tensor], Tensor] | None = None
    augment: Augment | None = None
    side: Callable[[int], int | None] = lambda _: None
    """Epoch -> the height to which its images are scaled; None: they are not scaled."""
    rank: int = 0
    world: int = 1

    def __post_init__(self) -> None:
        # once for all batches; a tensor that already has this memory order is not copied
        object.__setattr__(self, "images", self.images.contiguous(memory_format=torch.channels_last))
        if len(self.images) != len(self.labels):
            raise DataError(f"{len(self.images):,} images but {len(self.labels):,} labels; expected the same number")
        if self.seed < 0:
            raise DataError(f"seed {self.seed}; expected 0 or more")
        if not 0 <= self.rank < self.world:
            raise DataError(f"rank {self.rank} of {self.world} processes; expected 0 to {self.world - 1}")
        if self.batch_size < self.world or len(self.images) < self.world:
            raise DataError(
                f"batches of {self.batch_size:,} out of {len(self.images):,} images for {self.world} processes; "
                "expected at least one image for each"
            )

    def __len__(self) -> int:
        """The number of batches per epoch."""
        return len(self.bounds())

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (images [B,C,H,W] in channels_last, labels [B]) of this process's share of each batch."""
        if epoch < 0:
            raise DataError(f"epoch {epoch}; expected 0 or more")
        count = len(self.images)
        generator = _generator(self.seed, _ORDER, epoch)
        order = torch.randperm(count, generator=generator) if self.shuffle else torch.arange(count)
        coins = torch.randint(2, (count,), generator=_generator(self.seed, _COINS))
        side = self.side(epoch)
        for start, end in self.bounds():
            batch = order[start:end]
            mine = self._share(len(batch))
            images = _rows(self.images, batch[mine])
            if self.normalize is not None:
                images = self.normalize(images)
            if self.augment is not None:
                # drawn for the whole batch, so that the stream is the same in all processes
                images = self.augment(images, self.augment.draw(coins[batch], epoch, generator).of(mine))
            if side is not None:
                images = scaled(images, side)
            yield images.contiguous(memory_format=torch.channels_last), self.labels[batch[mine].to(self.labels.device)]

    def bounds(self) -> list[tuple[int, int]]:
        """Return where each batch begins and ends; a rest with fewer images than processes joins the last batch."""
        count, size = len(self.images), self.batch_size
        starts = list(range(0, count, size))
        if len(starts) > 1 and count - starts[-1] < self.world:
            starts.pop()
        return list(zip(starts, [*starts[1:], count], strict=True))

    def _share(self, count: int) -> slice:
        return slice(self.rank * count // self.world, (self.rank + 1) * count // self.world)


def scaled(images: Tensor, side: int) -> Tensor:
    """Scale images [B,C,H,W] to a height of ``side``, the width in proportion; each new pixel averages old ones."""
    height, width = images.shape[2:]
    if side == height:
        return images
    size = (side, max(1, round(side * width / height)))
    return F.interpolate(images, size=size, mode="bilinear", antialias=True)


def _rows(images: Tensor, which: Tensor) -> Tensor:
    """Gather images; each is contiguous in memory, and a view that shows it lets torch copy six times faster."""
    count, channels, height, width = images.shape
    flat = images.permute(0, 2, 3, 1).reshape(count, -1)
    return flat.index_select(0, which.to(images.device)).view(-1, height, width, channels).permute(0, 3, 1, 2)


def _generator(*words: int) -> torch.Generator:
    """Return a random generator whose seed is a hash of all words."""
    seed = int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0])
    return torch.Generator().manual_seed(seed)
