"""Labels of every position meet scores of another resolution: labels shrink to the scores, or scores grow.

B batch, K classes, P positions of the labels ([L], [H,W] or [D,H,W]), p those of the scores.

    probability   each cell of p gets the shares of the classes among its pixels: nothing vanishes
    nearest       each cell gets the label of its middle pixel (nnU-Net, MONAI)
    upsample      the scores are interpolated to P (mmsegmentation)

A position has a weight: 0 if its label is ignored. The weight of a cell is the sum of those of its pixels, so a mean
over cells is a mean over pixels.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from deepsup.supervision import resized

TargetMode = Literal["probability", "nearest", "upsample"]
TARGET_MODES: tuple[TargetMode, ...] = ("probability", "nearest", "upsample")


class Aligned(NamedTuple):
    """Scores and labels in one resolution."""

    scores: Tensor
    """[B,K,p]."""
    labels: Tensor
    """Class numbers [B,p], or a map [B,C,p], such as class probabilities."""
    weights: Tensor | None
    """[B,p]; None: all weigh the same."""

    @property
    def are_numbers(self) -> bool:
        """Whether the labels are class numbers."""
        return self.labels.ndim < self.scores.ndim

    @property
    def chances(self) -> Tensor:
        """The labels as class probabilities [B,K,p]."""
        return as_chances(self.labels, self.scores) if self.are_numbers else self.labels.to(self.scores.dtype)

    def weighed(self, class_weights: Tensor) -> "Aligned":
        """Return the same with every pixel weighted by its class [K]."""
        if self.are_numbers:
            by_class = class_weights[self.labels]
            return self._replace(weights=by_class if self.weights is None else self.weights * by_class)
        shares = self.chances * class_weights.reshape(-1, *[1] * (self.scores.ndim - 2))
        total = shares.sum(1)
        labels = shares / torch.where(total > 0, total, 1.0)[:, None]
        return self._replace(labels=labels, weights=total if self.weights is None else self.weights * total)


class DenseTargets:
    """The labels of one batch, for scores of any resolution up to their own.

    labels: class numbers [B,P], or maps [B,C,P].
    weights: [B,P], the weight of each position; None: all weigh the same.
    samples: [B], the weight of each sample, for losses that give one number per sample.
    channel: whether class numbers were given as [B,1,P].
    """

    def __init__(
        self, labels: Tensor, weights: Tensor | None, samples: Tensor | None, how: TargetMode, channel: bool = False
    ) -> None:
        self.labels, self.weights, self.samples, self.how, self.channel = labels, weights, samples, how, channel
        self._shrunk: dict[tuple[int, ...], tuple[Tensor, Tensor | None]] = {}

    @classmethod
    def of(
        cls, labels: Tensor, scores: Tensor, weights: Tensor | None, ignore_index: int | None, how: TargetMode
    ) -> "DenseTargets":
        """Make them from labels as given, [B,P], [B,1,P] or [B,C,P], and weights [B] or [B,P]; both are checked."""
        whole = not (labels.is_floating_point() or labels.is_complex())
        channel = whole and labels.ndim == scores.ndim and labels.shape[1] == 1
        labels = (labels[:, 0] if channel else labels).long() if whole else labels
        samples = weights if weights is not None and weights.ndim == 1 else None
        positions = labels.shape[labels.ndim - scores.ndim + 2 :]
        if samples is not None:
            weights = samples.reshape(-1, *[1] * len(positions)).expand(-1, *positions)
        if ignore_index is not None:
            kept = labels != ignore_index
            labels, weights = torch.where(kept, labels, 0), kept * (1.0 if weights is None else weights)
        if weights is not None and samples is None:
            samples = (weights.flatten(1).sum(1) > 0).to(scores.dtype)
        elif weights is not None and samples is not None:
            samples = samples * (weights.flatten(1).sum(1) > 0)
        return cls(labels, weights, samples, how, channel)

    def align(self, scores: Tensor) -> Aligned:
        """Return scores [B,K,p] and labels in one resolution."""
        whole = self.labels.shape[self.first_position(scores) :]
        size = tuple(scores.shape[2:])
        if size == tuple(whole):
            return Aligned(scores, self.labels, self.weights)
        if self.how == "upsample":
            return Aligned(resized(scores, whole), self.labels, self.weights)
        if size not in self._shrunk:
            self._shrunk[size] = self.shrink(scores)
        return Aligned(scores, *self._shrunk[size])

    def first_position(self, scores: Tensor) -> int:
        """Return the first dimension of the labels that is a position."""
        return 1 if self.labels.ndim < scores.ndim else 2

    def shrink(self, scores: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return labels and weights in the resolution of the scores."""
        size, first = tuple(scores.shape[2:]), self.first_position(scores)
        if self.how == "nearest":
            return nearest(self.labels, size, first), None if self.weights is None else nearest(self.weights, size, 1)
        weights = None if self.weights is None else self.weights.to(scores.dtype)
        sums = (
            summed(self.labels, weights, size, scores) if first == 1 else averaged(self.labels, weights, size, scores)
        )
        total = cell_weights(weights, size, self.labels, first, scores)
        shares = sums / torch.where(total > 0, total, 1.0)[:, None]
        even = weights is None and not any(p % s for p, s in zip(self.labels.shape[first:], size, strict=True))
        return shares, None if even else total


def as_chances(labels: Tensor, scores: Tensor) -> Tensor:
    """Class numbers [B,P] -> class probabilities [B,K,P]; with one score per position, that of class 1."""
    if scores.shape[1] == 1:
        return labels[:, None].to(scores.dtype)
    return F.one_hot(labels, scores.shape[1]).movedim(-1, 1).to(scores.dtype)


def summed(labels: Tensor, weights: Tensor | None, size: Sequence[int], scores: Tensor) -> Tensor:
    """Return the weight of each class in each cell, [B,K,p]; with one score per position, that of class 1."""
    batch, classes, cells = len(labels), max(2, scores.shape[1]), math.prod(size)
    index = labels.flatten(1) * cells + cell_of(labels.shape[1:], size, labels.device)
    ones = torch.ones_like(index, dtype=scores.dtype) if weights is None else weights.flatten(1)
    counted = torch.zeros(batch, classes * cells, dtype=scores.dtype, device=scores.device).scatter_add(1, index, ones)
    return counted.reshape(batch, classes, *size)[:, -scores.shape[1] :]


def averaged(labels: Tensor, weights: Tensor | None, size: Sequence[int], scores: Tensor) -> Tensor:
    """Return the weighted sum of maps [B,C,P] in each cell, [B,C,p]."""
    values = labels.to(scores.dtype) * (1.0 if weights is None else weights[:, None])
    cell = cell_of(labels.shape[2:], size, labels.device)
    empty = torch.zeros(*labels.shape[:2], math.prod(size), dtype=scores.dtype, device=scores.device)
    return empty.index_add(2, cell, values.flatten(2)).reshape(*labels.shape[:2], *size)


def cell_weights(weights: Tensor | None, size: Sequence[int], labels: Tensor, first: int, scores: Tensor) -> Tensor:
    """Return the sum of the weights of the pixels of each cell, [B,p]."""
    cell = cell_of(labels.shape[first:], size, labels.device)
    empty = torch.zeros(1 if weights is None else len(labels), math.prod(size), dtype=scores.dtype, device=cell.device)
    each = torch.ones_like(cell, dtype=scores.dtype)[None] if weights is None else weights.flatten(1)
    return empty.index_add(1, cell, each).reshape(-1, *size).expand(len(labels), *size)


def cell_of(whole: Sequence[int], size: Sequence[int], device: torch.device) -> Tensor:
    """Return the cell of every pixel, flat [P]: each pixel is in exactly one."""
    cell = torch.zeros(1, dtype=torch.long, device=device)
    for pixels, cells in zip(whole, size, strict=True):
        along = torch.arange(pixels, device=device) * cells // pixels
        cell = (cell[:, None] * cells + along).flatten()
    return cell


def nearest(values: Tensor, size: Sequence[int], first: int) -> Tensor:
    """Return the value of the pixel in the middle of each cell; torch's ``nearest-exact``, for any type of number."""
    for dim, cells in enumerate(size, first):
        middle = (2 * torch.arange(cells, device=values.device) + 1) * values.shape[dim] // (2 * cells)
        values = values.index_select(dim, middle)
    return values
