"""Named data sets that are some of the classes of another, with labels from 0; and the names of all data sets."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from deepsup.trainer.data._dataset import Dataset, Part
from deepsup.trainer.data._known_sets import KNOWN
from deepsup.trainer.data._scenes import COMPOSED


@dataclass(frozen=True)
class Half:
    """The classes ``first`` to ``last - 1`` of a named data set whose classes have equally many images."""

    name: str
    of: str
    first: int
    last: int

    @property
    def about(self) -> str:
        """What it is, in words."""
        return f"classes {self.first + 1} to {self.last} of {self.of}"

    @property
    def classes(self) -> tuple[str, ...]:
        return KNOWN[self.of].classes[self.first : self.last]

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of one image: [C,H,W]."""
        return KNOWN[self.of].shape

    @property
    def counts(self) -> dict[str, int]:
        """Part -> its number of images."""
        whole = KNOWN[self.of]
        return {part: count * len(self.classes) // len(whole.classes) for part, count in whole.counts.items()}

    def take(self, data: Dataset) -> Dataset:
        """Return its classes of the whole data set."""
        return replace(
            data, name=self.name, classes=self.classes, train=self._part(data.train), test=self._part(data.test)
        )

    def _part(self, part: Part) -> Part:
        half = part.take(np.flatnonzero((part.labels >= self.first) & (part.labels < self.last)))
        return Part(half.images, half.labels - self.first)


HALVES = {
    each.name: each
    for each in (Half("cifar100-first50", "cifar100", 0, 50), Half("cifar100-last50", "cifar100", 50, 100))
}
"""The halves of CIFAR-100's classes, which are in alphabetical order: to train on one and tune on the other."""
NAMED = (*KNOWN, *COMPOSED, *HALVES)
"""The names of all data sets that are not files of the user's own."""
