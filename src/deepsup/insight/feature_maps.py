"""What a layer puts out for images in, the part of it that the paper shows (Fig. 3) out: the strongest activations.

N images, C channels, H W map.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

KEPT = 0.3


@dataclass(frozen=True, eq=False)
class FeatureMaps:
    """The top activations of one layer: of every image's C x H x W values the highest 30 %, the others 0."""

    merged: Tensor
    """[N,H,W], the mean over all channels."""
    strongest: Tensor
    """[N,c,H,W], those channels alone in which most is left, strongest first."""
    channels: list[int]
    """Their numbers."""


def feature_maps(output: Tensor, most: int = 8, kept: float = KEPT) -> FeatureMaps:
    """Keep the top activations of [N,C,H,W]; what is kept is counted from the threshold up, so it is never below 0."""
    threshold = torch.quantile(output.flatten(1), 1 - kept, dim=1)[:, None, None, None]
    left = (output - threshold).clamp(min=0)
    channels = left.mean((0, 2, 3)).argsort(descending=True, stable=True)[:most]
    return FeatureMaps(left.mean(1), left[:, channels], channels.tolist())


def first_convolution(model: nn.Module) -> str | None:
    """Return the name of the first 2d convolution, or nothing where there is none."""
    return next((name for name, layer in model.named_modules() if isinstance(layer, nn.Conv2d)), None)
