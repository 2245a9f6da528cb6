"""A layer's output and its input -> the output laid out in memory as the input is (B C H W, or channels last)."""

import torch
from torch import Tensor


def keep_format(output: Tensor, source: Tensor) -> Tensor:
    """Return ``output`` [B, C, H, W] in channels_last if ``source`` is, else contiguous.

    Gathers and batched products answer in an order of their own; a network in channels_last would pay for a
    conversion at every later layer.
    """
    last = torch.channels_last
    is_last = source.is_contiguous(memory_format=last) and not source.is_contiguous()
    return output.contiguous(memory_format=last if is_last else torch.contiguous_format)
