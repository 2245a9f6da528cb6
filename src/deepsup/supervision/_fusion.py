"""Fuse side outputs of several resolutions into one map of scores, as HED does.

B batch, K classes, M side outputs.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LINEAR = {3: "linear", 4: "bilinear", 5: "trilinear"}
FUSE = "fuse"
"""The name of the fused output among the companions."""


class Fusion(nn.Module):
    """A learned 1x1 convolution on the scores of the output and of all companions, in the output's resolution.

    It starts as their mean. ``classifier`` is the convolution, as a linear layer from (M + 1) K scores to K.
    """

    def __init__(self, parts: int, num_classes: int) -> None:
        super().__init__()
        self.classifier = nn.Linear(parts * num_classes, num_classes)
        with torch.no_grad():
            self.classifier.weight.copy_(torch.eye(num_classes).repeat(1, parts) / parts)
            self.classifier.bias.zero_()

    def forward(self, scores: Tensor, companions: Mapping[str, Tensor]) -> Tensor:
        """Scores [B,K, ...] of the output and of companions of any resolution -> fused scores [B,K, ...]."""
        maps = torch.cat([scores, *(resized(each, scores.shape[2:]) for each in companions.values())], 1)
        fused: Tensor = self.classifier(maps.movedim(1, -1)).movedim(-1, 1)
        return fused


def resized(scores: Tensor, size: Sequence[int]) -> Tensor:
    """Interpolate scores [B,K, ...] linearly to a size."""
    if tuple(scores.shape[2:]) == tuple(size):
        return scores
    return F.interpolate(scores, size=tuple(size), mode=LINEAR[scores.ndim], align_corners=False)
