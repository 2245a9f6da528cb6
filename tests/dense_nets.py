"""Small dense models that the tests supervise: one U-Net for signals, images and volumes."""

from typing import Any

import torch
from nets import CLASSES
from torch import Tensor, nn
from torch.nn import functional as F

from deepsup import Companion, DeeplySupervised, supervise

CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
POOL: dict[int, Any] = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
LEARNED = Companion(init="torch")


class UNet(nn.Module):
    """Three resolutions; the decoder's stages are ``up2`` (a quarter of them) and ``up1``."""

    def __init__(self, dims: int = 2, classes: int = CLASSES) -> None:
        super().__init__()
        conv: Any = CONV[dims]
        self.dims = dims
        self.down1, self.down2, self.down3, self.low = (
            conv(a, b, 3, padding=1) for a, b in ((1, 4), (4, 6), (6, 8), (8, 8))
        )
        self.up3, self.up2, self.up1 = (conv(a, b, 3, padding=1) for a, b in ((16, 6), (12, 5), (9, 4)))
        self.scores = conv(4, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.down1(x).relu()
        b = self.down2(POOL[self.dims](a, 2)).relu()
        c = self.down3(POOL[self.dims](b, 2)).relu()
        z = self.low(POOL[self.dims](c, 2)).relu()
        z = self.up3(torch.cat([c, self.grow(z)], 1)).relu()
        z = self.up2(torch.cat([b, self.grow(z)], 1)).relu()
        z = self.up1(torch.cat([a, self.grow(z)], 1)).relu()
        scores: Tensor = self.scores(z)
        return scores

    def grow(self, z: Tensor) -> Tensor:
        return F.interpolate(z, scale_factor=2, mode="nearest")


def dense_net(dims: int = 2, classes: int = CLASSES, side: int = 16, **settings: Any) -> DeeplySupervised:
    settings = {"companion": LEARNED} | settings
    return supervise(UNet(dims, classes), num_classes=classes, example=torch.zeros(1, 1, *[side] * dims), **settings)


def pictures(batch: int = 3, dims: int = 2, side: int = 16) -> Tensor:
    return torch.randn(batch, 1, *[side] * dims)


def masks(batch: int = 3, dims: int = 2, side: int = 16, classes: int = CLASSES) -> Tensor:
    return torch.randint(classes, (batch, *[side] * dims))
