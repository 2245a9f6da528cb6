"""A small residual net as a user might bring it: it knows nothing of deepsup."""

from torch import Tensor, nn


class Block(nn.Module):
    """A residual block [B,C,H,W] -> [B,C',H/2,W/2]."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.short = nn.Conv2d(before, after, 1, stride=2, bias=False)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, maps: Tensor) -> Tensor:
        """Add the shortcut."""
        inner = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(maps)))))
        return self.relu(inner + self.short(maps))


class OwnResNet(nn.Module):
    """Images [B,3,H,W] -> scores [B,K]."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.layer1, self.layer2 = Block(8, 16), Block(16, 32)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(32, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Average the last maps."""
        scores: Tensor = self.fc(self.pool(self.layer2(self.layer1(self.stem(images)))).flatten(1))
        return scores
