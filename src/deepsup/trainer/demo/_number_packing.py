"""Weights -> bytes with as few bits per number as the scores allow; a float for what is small.

The first axis of a tensor is its row. Each row has its own step, so that small numbers lose nothing to large ones.
"""

import base64
from bisect import bisect_left
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

FLOAT = 32
SMALL = 2048
"""Values up to which a tensor is kept as 32-bit floats: biases, normalizations, small layers."""
BITS = range(4, 21)

Packed = dict[str, dict[str, Any]]


def rounded(weight: Tensor, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a weight as integers of some bits, [rows, values], and the step of each row, float32."""
    rows = weight.reshape(len(weight), -1).double()
    steps = (rows.abs().amax(1) / (2 ** (bits - 1) - 1)).float()
    steps = torch.where(steps > 0, steps, 1.0)
    integers = (rows / steps[:, None].double()).round().clamp(1 - 2 ** (bits - 1), 2 ** (bits - 1) - 1)
    return integers.numpy().astype(np.int32), steps.numpy()


def restored_weight(weight: Tensor, bits: int) -> Tensor:
    """Return what the browser makes of a weight."""
    if not is_rounded(weight, bits):
        return weight
    integers, steps = rounded(weight, bits)
    return torch.from_numpy(integers.astype(np.float32) * steps[:, None]).reshape(weight.shape)


def is_rounded(weight: Tensor, bits: int) -> bool:
    """Whether a weight is kept as integers."""
    return bits < FLOAT and weight.numel() > SMALL and weight.ndim > 1


def packed_weights(weights: Mapping[str, Tensor], bits: Mapping[str, int]) -> tuple[Packed, str]:
    """Return name -> where and how a weight lies, and all of them as base64 text; ``bits``: name -> bits, or floats."""
    entries: Packed = {}
    content = bytearray()
    for name, weight in weights.items():
        entry: dict[str, Any] = {"shape": list(weight.shape), "at": len(content)}
        if is_rounded(weight, bits.get(name, FLOAT)):
            integers, steps = rounded(weight, bits[name])
            entries[name] = entry | {"bits": bits[name], "rows": len(steps)}
            content += steps.astype("<f4").tobytes() + in_bits(integers, bits[name])
        else:
            entries[name] = entry | {"bits": FLOAT}
            content += weight.contiguous().numpy().astype("<f4").tobytes()
    return entries, base64.b64encode(bytes(content)).decode()


def in_bits(integers: np.ndarray, bits: int) -> bytes:
    """Return integers as a stream of bits, most significant bit first, the middle of the range for 0."""
    positive = (integers.ravel() + 2 ** (bits - 1)).astype(">u4")
    table = np.unpackbits(positive.view(np.uint8).reshape(-1, 4), axis=1)[:, 32 - bits :]
    return np.packbits(table.ravel()).tobytes()


def fewest_bits(
    weights: Mapping[str, Tensor], difference: Callable[[Mapping[str, int]], float], most: float
) -> dict[str, int]:
    """Return name -> the fewest bits of each weight with which no score differs by more than ``most``.

    difference: bits by name, floats where there is none -> the largest difference of a score. Each weight gets its
    share of ``most`` as if the differences were independent; if they turn out not to be, all get more bits.
    """
    names = [name for name, weight in weights.items() if is_rounded(weight, BITS[0])]
    share = most / max(1, len(names)) ** 0.5
    chosen = {}
    for name in names:
        # more bits never differ more, give or take a rounding: halving finds the fewest
        enough: Callable[[int], bool] = partial(is_enough, difference, share, name)
        place = bisect_left(BITS, True, key=enough)
        chosen[name] = BITS[place] if place < len(BITS) else FLOAT
    while chosen and difference(chosen) > most:
        chosen = {name: bits + 1 if bits < BITS[-1] else FLOAT for name, bits in chosen.items()}
    return chosen


def is_enough(difference: Callable[[Mapping[str, int]], float], most: float, name: str, bits: int) -> bool:
    """Whether a weight may be rounded to so many bits, all others left as they are."""
    return difference({name: bits}) <= most
