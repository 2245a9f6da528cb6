"""Small nets that the tests supervise: one with maps, one with tokens, one with vectors."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from deepsup import Companion, Objective

CLASSES = 3
LEARNED = Companion(pool=4)
"""The default companion as a model with norm layers has it: on a grid of 4x4."""


def linear(pool: Any = "none", **settings: Any) -> Companion:
    """The paper's companion behind a pooling: a linear classifier with torch's weights, nothing scaled."""
    return replace(Companion.paper(), pool=pool, **settings)


def objective_of(net: nn.Module, loss: Any = "squared_hinge", **settings: Any) -> Objective:
    """An objective with every setting named, whatever the library's defaults are."""
    return Objective(
        net, loss, **({"alpha": 1.0, "gamma": 0.0, "schedule": "constant", "norms": True, "average": False} | settings)
    )


class ConvNet(nn.Module):
    """Maps [B,C,H,W]: two stages and a linear output."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(2, 4, 3, padding=1)
        self.pool1 = nn.MaxPool2d(2)
        self.conv2 = nn.Conv2d(4, 5, 3, padding=1)
        self.pool2 = nn.AdaptiveAvgPool2d(1)
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(5, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        z = self.pool1(self.conv1(images).relu())
        z = self.pool2(self.conv2(z).relu())
        scores: Tensor = self.fc(self.drop(z.flatten(1)))
        return scores


class TokenNet(nn.Module):
    """Sequences [B,N,D]: three encoder layers, the mean token, a linear output."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0) for _ in range(3))
        )
        self.fc = nn.Linear(8, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.fc(self.layers(tokens).mean(1))
        return scores


def mlp() -> nn.Sequential:
    """Vectors [B,D]."""
    return nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, CLASSES))


def images(batch: int = 4, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(batch, 2, 8, 8, dtype=dtype)


def labels(batch: int = 4) -> Tensor:
    return torch.arange(batch) % CLASSES


class LogitsNet(nn.Module):
    """Returns its scores as the field of an object, as transformers do."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.conv1, self.fc = nn.Conv2d(1, 2, 3, stride=3), nn.Linear(162, num_classes)

    def forward(self, images: Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self.fc(self.conv1(images).relu().flatten(1)))


def logits_net(num_classes: int) -> LogitsNet:
    return LogitsNet(num_classes)
