"""What the network tests share: a small image set that can be learned, here alone, so that digits can replace it."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

Images = tuple[Tensor, Tensor]


@pytest.fixture(scope="session")
def learnable() -> Images:
    """2,000 grey images [2000, 1, 28, 28] in [0, 1] of 10 classes: white blobs on black, shifted, a little noise."""
    generator = torch.Generator().manual_seed(7)
    noise = F.avg_pool2d(torch.randn(10, 1, 38, 38, generator=generator), 7, 1)  # [10, 1, 32, 32]
    templates = (noise > noise.flatten(1).quantile(0.75, dim=1).view(10, 1, 1, 1)).float()
    labels = torch.arange(2000) % 10
    shifts = torch.randint(0, 5, (2000, 2), generator=generator).tolist()
    images = torch.stack(
        [templates[k, :, y : y + 28, x : x + 28] for k, (y, x) in zip(labels.tolist(), shifts, strict=True)]
    )
    return (images + 0.1 * torch.randn(images.shape, generator=generator)).clamp(0, 1), labels
