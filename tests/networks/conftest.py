"""What the network tests share: a small image set that can be learned, here alone, so that digits can replace it."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

Images = tuple[Tensor, Tensor]


@pytest.fixture(scope="session")
def learnable() -> Images:
    """2,000 grey images [2000, 1, 28, 28] in [0, 1] of 10 classes: a blurred template each, shifted, plus noise."""
    generator = torch.Generator().manual_seed(7)
    templates = F.avg_pool2d(torch.rand(10, 1, 36, 36, generator=generator), 5, 1, 2)
    templates = (templates - templates.amin((2, 3), keepdim=True)) / (
        templates.amax((2, 3), keepdim=True) - templates.amin((2, 3), keepdim=True)
    )
    labels = torch.arange(2000) % 10
    shifts = torch.randint(2, 7, (2000, 2), generator=generator)
    images = torch.stack(
        [templates[k, :, y : y + 28, x : x + 28] for k, (y, x) in zip(labels.tolist(), shifts.tolist(), strict=True)]
    )
    noisy = images + 0.15 * torch.randn(images.shape, generator=generator)
    return noisy.clamp(0, 1), labels
