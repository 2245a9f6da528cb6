"""What a user calls data -> inputs of a model with their labels, which can be split and taken in batches.

N samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deepsup.errors import DataError
from deepsup.sampling import stratified
from deepsup.supervision import as_call

MOST_CLASSES = 2**24
MOST_SAMPLES = 10_000
MOST_VALUES = 2**28
"""What is read of a loader: 10,000 samples, or inputs of 1 GiB."""


@dataclass(frozen=True, eq=False)
class ProbeData:
    """Inputs of a model, N of each, and their labels."""

    args: tuple[Tensor, ...]
    kwargs: dict[str, Tensor]
    labels: Tensor
    """[N], int64."""

    def __post_init__(self) -> None:
        for each in (*self.args, *self.kwargs.values()):
            if len(each) != len(self.labels):
                raise DataError(f"data has {len(each):,} inputs but {len(self.labels):,} labels; expected as many")
        if len(self.labels) < 2:
            raise DataError(f"data has {len(self.labels)} samples; expected at least 2, to fit on and to test on")
        lowest, highest = int(self.labels.min()), int(self.labels.max())
        if lowest < 0:
            raise DataError(f"a label is {lowest}; expected the numbers of classes, 0 or more")
        if highest >= MOST_CLASSES:  # they are counted
            raise DataError(f"a label is {highest:,}; expected the numbers of classes, below {MOST_CLASSES:,}")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def inputs(self) -> tuple[Tensor, ...] | dict[str, Tensor]:
        """What the model is called with."""
        return self.args or self.kwargs

    def take(self, places: Any) -> ProbeData:
        """Return some of the samples."""
        return ProbeData(
            tuple(each[places] for each in self.args),
            {name: each[places] for name, each in self.kwargs.items()},
            self.labels[places],
        )

    def batches(self, size: int, like: Tensor) -> Iterator[tuple[tuple[Tensor, ...], dict[str, Tensor]]]:
        """Yield the arguments of each call, on the device and in the precision of the model."""
        for start in range(0, len(self), size):
            here = slice(start, start + size)
            args = tuple(fitting(each[here], like) for each in self.args)
            yield args, {name: fitting(each[here], like) for name, each in self.kwargs.items()}


def fitting(tensor: Tensor, like: Tensor) -> Tensor:
    """Move a tensor to the device of the model; floats get its precision."""
    return tensor.to(like.device, like.dtype) if tensor.is_floating_point() else tensor.to(like.device)


def read_data(data: Any) -> ProbeData:
    """Return inputs and labels of (inputs, labels), or of a loader that yields such batches."""
    batches = (tuple, list, Mapping)  # what a list of batches holds
    if isinstance(data, tuple | list) and len(data) == 2 and (are_labels(data[1]) or not isinstance(data[1], batches)):
        return one_batch(data)
    if not isinstance(data, Iterable) or isinstance(data, str | Mapping | Tensor | np.ndarray):
        raise DataError(
            f"data is a {type(data).__name__}; expected (images, labels), or a DataLoader that yields such batches"
        )
    every: list[ProbeData] = []
    for batch in data:
        every.append(one_batch(batch))
        values = sum(each.numel() for part in every for each in (*part.args, *part.kwargs.values()))
        if sum(map(len, every)) >= MOST_SAMPLES or values >= MOST_VALUES:
            break
    return joined_batches(every)


def one_batch(batch: Any) -> ProbeData:
    """Return the samples of (inputs, labels), or of a mapping with the key ``labels`` or ``label``."""
    if isinstance(batch, Mapping):
        name = next((name for name in ("labels", "label") if name in batch), None)
        inputs, labels = {key: value for key, value in batch.items() if key != name}, batch[name] if name else None
    else:
        inputs, labels = batch if isinstance(batch, tuple | list) and len(batch) == 2 else (batch, None)
    if labels is None or not are_labels(labels):
        shape = f" of shape {list(labels.shape)}" if isinstance(labels, Tensor | np.ndarray) else ""
        raise DataError(
            f"data gives labels that are a {type(labels).__name__}{shape}; expected (inputs, labels) with one whole "
            f"number per sample"
        )
    args, kwargs = as_call(inputs)
    return ProbeData(
        tuple(map(as_tensor, args)), {key: as_tensor(each) for key, each in kwargs.items()}, as_tensor(labels).long()
    )


def are_labels(labels: Any) -> bool:
    """Whether an object is a list, an array or a tensor [N] of whole numbers."""
    if isinstance(labels, list):
        return bool(labels) and all(isinstance(each, int | np.integer) for each in labels)
    if isinstance(labels, np.ndarray):
        return labels.ndim == 1 and labels.dtype.kind in "iu"
    whole = isinstance(labels, Tensor) and not (labels.is_floating_point() or labels.is_complex())
    return whole and labels.ndim == 1


def as_tensor(value: Any) -> Tensor:
    """Return a tensor of its own memory order; arrays and lists are converted."""
    if isinstance(value, Tensor):
        return value.detach()
    try:
        return torch.as_tensor(np.array(value))
    except (TypeError, ValueError) as error:
        raise DataError(f"data gives a {type(value).__name__} ({error}); expected tensors or arrays") from error


def joined_batches(batches: list[ProbeData]) -> ProbeData:
    if not batches:
        raise DataError("data is empty; expected samples; a loader that was used up must be made again")
    try:
        return ProbeData(
            tuple(torch.cat(column) for column in zip(*(part.args for part in batches), strict=True)),
            {name: torch.cat([part.kwargs[name] for part in batches]) for name in batches[0].kwargs},
            torch.cat([part.labels for part in batches]),
        )
    except (RuntimeError, ValueError, KeyError) as error:
        raise DataError(
            f"the batches of data do not fit together ({error}); expected inputs of one shape; pad or resize them"
        ) from error


def split_data(data: ProbeData, test: Any) -> tuple[ProbeData, ProbeData]:
    """Return the samples to fit on and those to test on; ``test``: a fraction, or data of its own."""
    if not isinstance(test, float | int):
        return data, read_data(test)
    count = round(test * len(data))
    if not 0 < test < 1 or not 0 < count < len(data):
        raise DataError(
            f"test={test!r} of {len(data):,} samples; expected a fraction between 0 and 1 with samples on both sides, "
            f"or (images, labels)"
        )
    chosen = torch.zeros(len(data), dtype=torch.bool)
    chosen[torch.from_numpy(stratified(data.labels.cpu().numpy(), count))] = True
    return data.take(~chosen), data.take(chosen)
