"""What the network tests share: real digits to learn from."""

import numpy as np
import pytest
import torch
from torch import Tensor

from deepsup.trainer.data import load_data

Images = tuple[Tensor, Tensor]


@pytest.fixture(scope="session")
def learnable() -> Images:
    """2,000 digits of the embedded MNIST, all for training: images [2000, 1, 28, 28] in [0, 1], labels [2000]."""
    digits = load_data("mnist-mini")
    images = np.concatenate([digits.train.images, digits.test.images])[:2000]
    labels = np.concatenate([digits.train.labels, digits.test.labels])[:2000]
    return torch.from_numpy(images).float().reshape(2000, 1, 28, 28) / 255, torch.from_numpy(labels).long()
