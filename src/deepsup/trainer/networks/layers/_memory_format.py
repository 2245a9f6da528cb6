"""Keep the memory format of a layer's input for its output."""

import torch
from torch import Tensor


def keep_format(output: Tensor, source: Tensor) -> Tensor:
    """Return ``output`` [B, C, H, W] in channels_last if ``source`` is, else contiguous.

    Gathers and batched products return their own memory order; a network in channels_last would then pay for a
    conversion at every later layer.
    """
    last = torch.channels_last
    is_last = source.is_contiguous(memory_format=last) and not source.is_contiguous()
    return output.contiguous(memory_format=last if is_last else torch.contiguous_format)
