"""Weights -> integers whose rounding errors cancel in the outputs of their layers, on inputs like those seen.

Inputs of a layer are correlated: neighbours on a map, and maps of the same place. So the weights that are rounded later
make up for the error of each one (as in GPTQ, Frantar et al., 2023). O rows of a weight, D columns, N inputs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

MOST_COLUMNS = 512
"""Columns that make up for each other."""
MOST_WEIGHTS = 2**18
"""Weights of a layer; larger ones are rounded plainly, since feedback would take minutes."""
MOST_ROWS = 4096
"""Inputs of a layer that its correlations are taken from: of convolutions, the windows."""
RIDGE = 3e-3
"""Of the mean variance of the inputs: directions in which the inputs hardly vary count this much."""
STABLE = 1e-9
"""Of the mean square of the inputs: the least with which matrices can be inverted."""


@dataclass(frozen=True, eq=False)
class Block:
    """B groups of D columns of a weight, and how an error at each is spread over those after it."""

    columns: Tensor
    """[B,D]."""
    spread: Tensor
    """[B,D,D], upper triangular: the Cholesky factors of the inverses of the inputs' second moments."""
    unseen: Tensor
    """[B,D,D]: what of a row the inputs do not see, since they do not vary in its direction."""


Blocks = tuple[Block, ...]
Feedback = Mapping[str, Blocks]
"""Weight -> its blocks."""


def feedback_of(net: nn.Module, images: Tensor) -> Feedback:
    """Return the blocks of the weights of all linear layers and plain convolutions, by their names in the state."""
    found: dict[str, Blocks] = {}

    def hook(name: str) -> Any:
        def catch(layer: Any, given: tuple[Tensor, ...]) -> None:
            if name not in found:  # of a layer that runs several times, the first inputs
                found[name] = blocks_of(rows_of(layer, given[0]), columns_of(layer, given[0]))

        return catch

    layers = [(name, layer) for name, layer in net.named_modules() if can_have_feedback(layer)]
    handles = [layer.register_forward_pre_hook(hook(f"{name}.weight")) for name, layer in layers]
    try:
        with torch.no_grad():
            net(images)
    finally:
        for handle in handles:
            handle.remove()
    return found


def can_have_feedback(layer: nn.Module) -> bool:
    """Whether a layer multiplies its inputs by a weight of a size that is worth it."""
    if isinstance(layer, nn.Conv2d):
        plain = layer.groups == 1 and not isinstance(layer.padding, str)
        return plain and layer.weight.numel() <= MOST_WEIGHTS
    return isinstance(layer, nn.Linear) and layer.weight.numel() <= MOST_WEIGHTS


def rows_of(layer: nn.Linear | nn.Conv2d, given: Tensor) -> Tensor:
    """Return inputs of a layer, [N,D]; those of a convolution are the windows that it sees."""
    rows = given
    if isinstance(layer, nn.Conv2d):
        kept = given[:: max(1, given.shape[0] * given.shape[2] * given.shape[3] // (8 * MOST_ROWS))]
        padding: Any = layer.padding  # not a word: can_have_feedback
        rows = F.unfold(kept, layer.kernel_size, layer.dilation, padding, layer.stride).mT
    rows = rows.reshape(-1, layer.weight[0].numel())
    return rows[:: max(1, len(rows) // MOST_ROWS)].float()


def columns_of(layer: nn.Linear | nn.Conv2d, given: Tensor) -> list[Tensor]:
    """Return groups of columns; of a layer that gets flattened maps, a square of all maps each."""
    columns = torch.arange(layer.weight[0].numel())
    if isinstance(layer, nn.Conv2d) or given.ndim != 4 or given[0].numel() != len(columns):
        return list(torch.split(columns, MOST_COLUMNS))
    maps = columns.reshape(given.shape[1:])
    side = max(1, int((MOST_COLUMNS / len(maps)) ** 0.5))
    squares = (square for band in torch.split(maps, side, 1) for square in torch.split(band, side, 2))
    return [part for square in squares for part in torch.split(square.flatten(), MOST_COLUMNS)]


def blocks_of(rows: Tensor, groups: list[Tensor]) -> Blocks:
    """Return the blocks of columns, those of the same size together, from inputs [N,D]."""
    least = STABLE * float(rows.square().mean())
    ridge = max(RIDGE * float(rows.var(0, correction=0).mean()), least) or 1.0
    blocks = []
    for size in {len(each) for each in groups}:
        columns = torch.stack([each for each in groups if len(each) == size])
        part = rows[:, columns].transpose(0, 1).double()
        moments = part.mT @ part / len(rows)  # in double precision: rounded, they may have negative eigenvalues
        moments.diagonal(dim1=1, dim2=2).add_(ridge)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(moments))
        blocks.append(Block(columns, torch.linalg.cholesky(inverse).mT.float(), (ridge * inverse).float()))
    return tuple(blocks)


def rounded_rows(rows: Tensor, blocks: Blocks, seen: bool = False) -> Tensor:
    """Return [O,D] rounded to integers such that the errors of each row cancel as far as they can.

    seen: round only what the inputs see of the rows; the rest becomes 0.
    """
    out = rows.round()
    for block in blocks:
        left = rows[:, block.columns].transpose(0, 1).float()  # [B,O,D]
        if seen:
            left -= left @ block.unseen
        for place in range(left.shape[2]):
            value, spread = left[:, :, place], block.spread[:, None, place]
            error = (value - value.round()) / spread[..., place]
            left[:, :, place + 1 :] -= error[..., None] * spread[..., place + 1 :]
            left[:, :, place].round_()
        out[:, block.columns] = left.transpose(0, 1).to(out.dtype)
    return out
