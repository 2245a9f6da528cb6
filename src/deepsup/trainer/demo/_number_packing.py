"""Weights -> text with as few bits per number as the scores allow; the weights of earlier epochs -> their changes.

The first axis of a tensor is its row. Each row has its own step, so that small numbers lose nothing to large ones. The
bytes of the same weight lie together, lowest ones first, and are then deflated, which browsers can undo.
"""

import base64
import zlib
from bisect import bisect_left
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deepsup.trainer.demo._error_feedback import Blocks, Feedback, rounded_rows

FLOAT = 32
SMALL = 2048
"""Values up to which a tensor is kept as 32-bit floats: biases, normalizations, small layers."""
BITS = range(2, 21)
SMALL_STEPS = 63
"""Steps that the largest change of a small tensor has from one epoch to another."""

Packed = dict[str, dict[str, Any]]
NO_FEEDBACK: Feedback = {}


def rounded(weight: Tensor, bits: int, blocks: Blocks = ()) -> tuple[np.ndarray, np.ndarray]:
    """Return a weight as integers of about so many bits, [rows, values], and the step of each row, float32."""
    rows = weight.reshape(len(weight), -1).double()
    steps = (rows.abs().amax(1) / (2 ** (bits - 1) - 1)).float()
    steps = torch.where(steps > 0, steps, 1.0)
    integers = rounded_rows(rows / steps[:, None].double(), blocks)
    return integers.numpy().astype(np.int64), steps.numpy()


def restored_weight(weight: Tensor, bits: int, blocks: Blocks = ()) -> Tensor:
    """Return what the browser makes of a weight."""
    if not is_rounded(weight, bits):
        return weight
    integers, steps = rounded(weight, bits, blocks)
    return torch.from_numpy(integers.astype(np.float32) * steps[:, None]).reshape(weight.shape)


def is_rounded(weight: Tensor, bits: int) -> bool:
    """Whether a weight is kept as integers."""
    return bits < FLOAT and weight.numel() > SMALL and weight.ndim > 1


def packed_weights(
    weights: Mapping[str, Tensor], bits: Mapping[str, int], feedback: Feedback = NO_FEEDBACK
) -> tuple[Packed, str]:
    """Return name -> where and how a weight lies, and all of them as text; ``bits``: name -> bits, or floats."""
    entries: Packed = {}
    content = bytearray()
    for name, weight in weights.items():
        entry: dict[str, Any] = {"shape": list(weight.shape), "at": len(content)}
        if is_rounded(weight, bits.get(name, FLOAT)):
            integers, steps = rounded(weight, bits[name], feedback.get(name, ()))
            entries[name] = entry | {"bits": bits_for(integers), "rows": len(steps)}
            content += steps.astype("<f4").tobytes() + in_planes(integers, bits_for(integers))
        else:
            entries[name] = entry | {"bits": FLOAT}
            content += weight.contiguous().numpy().astype("<f4").tobytes()
    return entries, as_text(content)


def packed_changes(
    weights: Mapping[str, Tensor],
    later: Mapping[str, Tensor],
    steps: Mapping[str, float],
    feedback: Feedback = NO_FEEDBACK,
) -> tuple[Packed, str, dict[str, Tensor]]:
    """Return how weights differ from those of a later epoch, in whole steps, and what the browser makes of both."""
    entries: Packed = {}
    content = bytearray()
    restored = dict(later)
    for name, weight in weights.items():
        step = np.float32(steps[name])
        changes = (weight.double() - later[name].double()).div(float(step)).reshape(len(weight), -1)
        integers = (
            rounded_rows(changes, feedback.get(name, ()), seen=True).reshape(weight.shape).numpy().astype(np.int64)
        )
        if not integers.any():
            continue
        bits = bits_for(integers)
        entries[name] = {"shape": list(weight.shape), "at": len(content), "bits": bits, "rows": 1}
        content += step.astype("<f4").tobytes() + in_planes(integers, bits)
        restored[name] = (later[name].double() + torch.from_numpy(integers).double() * float(step)).float()
    return entries, as_text(content), restored


def steps_between(
    weights: Mapping[str, Tensor], later: Mapping[str, Tensor], bits: Mapping[str, int], factor: float
) -> dict[str, float]:
    """Return weight -> the step of its changes: that of its bits, times a factor; of small ones, of their largest."""
    steps = {}
    for name, weight in weights.items():
        if is_rounded(weight, bits.get(name, FLOAT)):
            step = factor * float(rounded(weight, bits[name])[1].mean())
        else:
            step = min(factor, 1.0) * float((weight - later[name]).abs().max()) / SMALL_STEPS
        steps[name] = step or 1.0
    return steps


def bits_for(integers: np.ndarray) -> int:
    """Return the bits that integers take."""
    return max(BITS[0], int(np.abs(integers).max()).bit_length() + 1)


def in_planes(integers: np.ndarray, bits: int) -> bytes:
    """Return the lowest bytes of all integers, then the next ones; the middle of the range stands for 0."""
    positive = integers.ravel().astype(np.int64) + 2 ** (bits - 1)
    return b"".join((positive >> shift & 255).astype(np.uint8).tobytes() for shift in range(0, bits, 8))


def as_text(content: bytes | bytearray) -> str:
    """Return bytes as a page can hold them."""
    return base64.b64encode(zlib.compress(content, 9)).decode()


def fewest_bits(
    weights: Mapping[str, Tensor], difference: Callable[[Mapping[str, int]], float], most: float
) -> dict[str, int]:
    """Return name -> the fewest bits of each weight with which the scores differ by no more than ``most``.

    difference: bits by name, floats where there is none -> how much the scores differ. Each weight gets a share of
    ``most`` as if the differences were independent, a large weight more than a small one, since its bits cost more; if
    they turn out not to be, all get more bits.
    """
    sizes = {name: weight.numel() for name, weight in weights.items() if is_rounded(weight, BITS[0])}
    chosen = {}
    for name, size in sizes.items():
        # more bits never differ more, give or take a rounding: halving finds the fewest
        share = most * (size / sum(sizes.values())) ** 0.5
        enough: Callable[[int], bool] = partial(is_enough, difference, share, name)
        place = bisect_left(BITS, True, key=enough)
        chosen[name] = BITS[place] if place < len(BITS) else FLOAT
    while chosen and difference(chosen) > most:
        chosen = {name: bits + 1 if bits < BITS[-1] else FLOAT for name, bits in chosen.items()}
    return chosen


def is_enough(difference: Callable[[Mapping[str, int]], float], most: float, name: str, bits: int) -> bool:
    """Whether a weight may be rounded to so many bits, all others left as they are."""
    return difference({name: bits}) <= most
