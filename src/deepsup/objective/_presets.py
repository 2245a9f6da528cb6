"""Weights of side outputs that people know by name: the number of outputs -> the weight of each, the finest first.

nnunet      1, 1/2, 1/4, ..., the coarsest 0; they sum to 1
exp         1, 1/2, 1/4, ..., at least 1/16 (MONAI)
same        1, 1, 1, ... (MONAI)
two         1, 1/2, 1/2, ... (MONAI)
"""

import math
from collections.abc import Callable, Mapping, Sequence

from deepsup.errors import ObjectiveError, nearest


def nnunet(outputs: int) -> list[float]:
    """Return nnU-Net's weights; a single output keeps its weight.

    >>> nnunet(4)
    [0.5714285714285714, 0.2857142857142857, 0.14285714285714285, 0.0]
    """
    halved = [0.5**level for level in range(outputs)]
    if outputs > 1:
        halved[-1] = 0.0
    return [weight / sum(halved) for weight in halved]


MONAI: dict[str, Callable[[int], list[float]]] = {
    "exp": lambda outputs: [max(0.5**level, 0.0625) for level in range(outputs)],
    "same": lambda outputs: [1.0] * outputs,
    "two": lambda outputs: [1.0, *[0.5] * (outputs - 1)],
}


def monai(mode: str) -> Callable[[int], list[float]]:
    """Return the weights of a ``weight_mode`` of MONAI's ``DeepSupervisionLoss``."""
    if mode not in MONAI:
        raise ObjectiveError(f"mode={mode!r}; {nearest(str(mode), MONAI)}")
    return MONAI[mode]


def finest_first(outputs: Sequence[str], sizes: Mapping[str, Sequence[int]]) -> list[str]:
    """Return side outputs by falling resolution; of one resolution, the later one first.

    sizes: tap -> the size of its map. An output without one, the fused one, has the resolution of the model's.
    """
    if not sizes and outputs:
        raise ObjectiveError(
            "weights by resolution for a net without maps of scores, or one that has not run yet; expected a model "
            "with one score per position; give example= to supervise, or alpha= with one number per tap"
        )
    area = {name: math.prod(sizes[name]) if name in sizes else math.inf for name in outputs}
    return sorted(outputs, key=lambda name: (-area[name], -outputs.index(name)))
