"""The layout that the type of a layer implies: where its output has the channels.

channels_first   [B,C,H,W], [B,C,L]   convolutions, batch norms, poolings
channels_last    [B,H,W,C], [B,N,D]   linear layers, layer norms, attention, recurrent layers
"""

from typing import Any, Literal

import torch
from torch import nn

Layout = Literal["channels_first", "channels_last"]

CHANNELS_FIRST = (
    nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
    nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm, nn.GroupNorm,
    nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d,
)  # fmt: skip
POOLINGS = "torch.nn.modules.pooling"  # all of them are channels first
CHANNELS_LAST = (
    nn.Linear, nn.Embedding, nn.EmbeddingBag, nn.RNNBase, nn.MultiheadAttention,
    nn.TransformerEncoderLayer, nn.TransformerDecoderLayer, nn.TransformerEncoder, nn.TransformerDecoder,
)  # fmt: skip
NORMS = (nn.LayerNorm, nn.RMSNorm)


def layout_of_type(layer: nn.Module, shape: torch.Size) -> Layout | None:
    """Return the layout that the type of a layer implies; None for types with any layout (activations, dropout)."""
    if isinstance(layer, CHANNELS_FIRST) or type(layer).__module__ == POOLINGS:
        return "channels_first"
    if isinstance(layer, CHANNELS_LAST):
        return "channels_last"
    return layout_of_norm(layer, shape) if isinstance(layer, NORMS) else None


def layout_of_norm(norm: Any, shape: torch.Size) -> Layout | None:
    """Return the layout of a layer norm: channels last, except for subclasses that permute (ConvNeXt's LayerNorm2d)."""
    if len(norm.normalized_shape) > 1:
        return None
    if type(norm).forward in (nn.LayerNorm.forward, nn.RMSNorm.forward):
        return "channels_last"
    first, last = (axis == norm.normalized_shape[0] for axis in (shape[1], shape[-1]))
    return None if first == last else "channels_first" if first else "channels_last"
