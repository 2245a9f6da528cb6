"""The strongest activations of a layer, as the paper shows them in Fig. 3.

N images, C channels, H W map.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

KEPT = 0.3


@dataclass(frozen=True, eq=False)
class FeatureMaps:
    """The top activations of one layer: the highest 30 % of each image's C x H x W values; all others are 0."""

    merged: Tensor
    """[N,H,W], the mean over all channels."""
    strongest: Tensor
    """[N,c,H,W], the c channels with the highest remaining activation, strongest first."""
    channels: list[int]
    """The indices of these channels."""


def feature_maps(output: Tensor, most: int = 8, kept: float = KEPT) -> FeatureMaps:
    """Keep the top activations of [N,C,H,W], relative to their threshold, so they are never below 0."""
    threshold = torch.quantile(output.flatten(1), 1 - kept, dim=1)[:, None, None, None]
    left = (output - threshold).clamp(min=0)
    channels = left.mean((0, 2, 3)).argsort(descending=True, stable=True)[:most]
    return FeatureMaps(left.mean(1), left[:, channels], channels.tolist())


def first_convolution(model: nn.Module) -> str | None:
    """Return the name of the first 2d convolution, or None."""
    return next((name for name, layer in model.named_modules() if isinstance(layer, nn.Conv2d)), None)
