"""Small models of common kinds, for the check that companions do no harm.

They are plain ``nn.Module`` classes, independent of deepsup. B batch, C channels, H W map, N tokens, D features,
K classes.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

CLASSES = 10
VOCABULARY = 200
LENGTH = 32


def convnet(norm: Callable[[int], nn.Module] | None = None) -> nn.Module:
    """Return a CNN of five 3x3 convolutions, with or without a norm layer after each."""
    layers: list[nn.Module] = []
    for before, after, pool in ((1, 16, False), (16, 32, True), (32, 32, False), (32, 64, True), (64, 64, False)):
        layers += [nn.Conv2d(before, after, 3, padding=1), *([norm(after)] if norm else []), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if pool else []
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES))


def lenet() -> nn.Module:
    """Return LeNet: two convolutions and two linear layers, no norm layers."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, CLASSES),
    )  # fmt: skip


def mlp(width: int = 256) -> nn.Module:
    """Return three hidden layers on the pixels."""
    hidden = [layer for _ in range(2) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), nn.Linear(784, width), nn.ReLU(), *hidden, nn.Linear(width, CLASSES))


class Residual(nn.Module):
    """Two 3x3 convolutions with BatchNorm and a skip connection: [B,C,H,W] -> [B,C',H/s,W/s]."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        same = stride == 1 and before == after
        self.short = nn.Identity() if same else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of both branches."""
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.short(x))


class ResNet(nn.Module):
    """A ResNet of three stages: [B,1,28,28] -> [B,K]."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.layer1 = Residual(width, width, 1)
        self.layer2 = Residual(width, 2 * width, 2)
        self.layer3 = Residual(2 * width, 4 * width, 2)
        self.fc = nn.Linear(4 * width, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores."""
        scores: Tensor = self.fc(self.layer3(self.layer2(self.layer1(self.stem(images)))).mean((2, 3)))
        return scores


class ViT(nn.Module):
    """A vision transformer on 4x4 patches: [B,1,28,28] -> [B,K]."""

    def __init__(self, width: int = 48, depth: int = 4) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, 4, 4)
        self.position = nn.Parameter(0.02 * torch.randn(1, 49, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores."""
        tokens = self.patches(images).flatten(2).transpose(1, 2) + self.position  # [B,49,D]
        scores: Tensor = self.head(self.encoder(tokens).mean(1))
        return scores


class TextTransformer(nn.Module):
    """A transformer on word indices, where 0 is padding: [B,N] -> [B,K]."""

    def __init__(self, width: int = 48, depth: int = 3) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width, padding_idx=0)
        self.position = nn.Parameter(0.02 * torch.randn(1, LENGTH, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, text: Tensor) -> Tensor:
        """Return the scores; padding is masked."""
        padding = text == 0
        tokens = self.encoder(self.words(text) + self.position, src_key_padding_mask=padding)
        kept = (~padding)[..., None]
        scores: Tensor = self.head((tokens * kept).sum(1) / kept.sum(1))
        return scores


class ConvNeXtBlock(nn.Module):
    """A depthwise convolution and two linear layers on the channels, added to the input: [B,C,H,W] -> [B,C,H,W]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 5, padding=2, groups=width)
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum."""
        y: Tensor = self.mlp(self.norm(self.depthwise(x).permute(0, 2, 3, 1)))
        return x + y.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """Three stages of ConvNeXt blocks: [B,1,28,28] -> [B,K]."""

    def __init__(self, widths: Sequence[int] = (24, 48, 96)) -> None:
        super().__init__()
        before = (1, *widths)
        self.down = nn.ModuleList(nn.Conv2d(before[i], width, 2, 2) for i, width in enumerate(widths))
        self.blocks = nn.ModuleList(ConvNeXtBlock(width) for width in widths)
        self.norm = nn.LayerNorm(widths[-1])
        self.head = nn.Linear(widths[-1], CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores."""
        x = images
        for down, block in zip(self.down, self.blocks, strict=True):
            x = block(down(x))
        scores: Tensor = self.head(self.norm(x.mean((2, 3))))
        return scores


def plain(depth: int, init: str, widths: Sequence[int] = (8, 16, 32)) -> nn.Module:
    """Return 3x3 convolutions in three equal groups with nothing that helps the gradient: He's or torch's weights."""
    layers: list[nn.Module] = []
    before = 1
    for index in range(depth):
        group = index * len(widths) // depth
        if index and group > (index - 1) * len(widths) // depth:
            layers.append(nn.MaxPool2d(2))
        layers += [nn.Conv2d(before, before := widths[group], 3, padding=1), nn.ReLU()]
    for layer in layers if init == "He" else ():
        if isinstance(layer, nn.Conv2d) and layer.bias is not None:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, CLASSES))


def tanh_net() -> nn.Module:
    """Return six convolutions with tanh and average pooling."""
    layers: list[nn.Module] = []
    for before, after, pool in ((1, 12, False), (12, 12, True), (12, 24, False), (24, 24, True), (24, 32, False)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.Tanh(), *([nn.AvgPool2d(2)] if pool else [])]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 49, CLASSES))


def vgg(norm: bool) -> nn.Module:
    """Return a small VGG: pairs of convolutions, max pooling, two linear layers with dropout."""
    layers: list[nn.Module] = []
    for before, after in ((1, 16), (16, 32), (32, 48)):
        for channels in (before, after):
            layers += [nn.Conv2d(channels, after, 3, padding=1), *([nn.BatchNorm2d(after)] if norm else []), nn.ReLU()]
        layers.append(nn.MaxPool2d(2))
    head = [nn.Flatten(), nn.Linear(48 * 9, 64), nn.ReLU(), nn.Dropout(), nn.Linear(64, CLASSES)]
    return nn.Sequential(*layers, *head)


def strided() -> nn.Module:
    """Return convolutions of stride 2 with ELU, no pooling and no norm layers."""
    widths = (1, 16, 32, 64)
    layers = [
        layer for before, after in pairwise(widths)
        for layer in (nn.Conv2d(before, after, 3, 2, 1), nn.ELU(), nn.Conv2d(after, after, 3, 1, 1), nn.ELU())
    ]  # fmt: skip
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 16, CLASSES))


class Skips(nn.Module):
    """A residual net without norm layers, each branch scaled by 0.3: [B,1,28,28] -> [B,K]."""

    def __init__(self, width: int = 16, depth: int = 6) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1))
            for _ in range(depth)
        )
        self.fc = nn.Linear(width, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores."""
        x = self.stem(images)
        for index, block in enumerate(self.blocks):
            x = x + 0.3 * block(x)
            x = F.max_pool2d(x, 2) if index in (1, 3) else x
        scores: Tensor = self.fc(x.relu().mean((2, 3)))
        return scores


class Mixer(nn.Module):
    """An MLP-Mixer on 4x4 patches: [B,1,28,28] -> [B,K]."""

    def __init__(self, width: int = 48, depth: int = 4) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, 4, 4)
        self.blocks = nn.ModuleList(MixerBlock(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores."""
        tokens = self.patches(images).flatten(2).transpose(1, 2)  # [B,49,D]
        for block in self.blocks:
            tokens = block(tokens)
        scores: Tensor = self.head(self.norm(tokens).mean(1))
        return scores


class MixerBlock(nn.Module):
    """Mix tokens, then features: [B,49,D] -> [B,49,D]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = nn.Sequential(nn.Linear(49, 32), nn.GELU(), nn.Linear(32, 49))
        self.along = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the sum of all branches."""
        tokens = tokens + self.across(self.norm1(tokens).transpose(1, 2)).transpose(1, 2)
        mixed: Tensor = tokens + self.along(self.norm2(tokens))
        return mixed


class RowGRU(nn.Module):
    """Two GRUs over the rows of an image: [B,1,28,28] -> [B,K]."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.first = nn.GRU(28, width, batch_first=True)
        self.second = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores of the last row."""
        scores: Tensor = self.head(self.second(self.first(images[:, 0])[0])[0][:, -1])
        return scores


def deep_mlp() -> nn.Module:
    """Return eight narrow hidden layers on the pixels."""
    hidden = [layer for _ in range(7) for layer in (nn.Linear(64, 64), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), *hidden, nn.Linear(64, CLASSES))


def depthwise() -> nn.Module:
    """Return a small MobileNet: depthwise and pointwise convolutions with BatchNorm."""
    layers: list[nn.Module] = [nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6()]
    for before, after, stride in ((16, 32, 2), (32, 32, 1), (32, 64, 2), (64, 64, 1)):
        layers += [nn.Conv2d(before, before, 3, stride, 1, groups=before, bias=False), nn.BatchNorm2d(before)]
        layers += [nn.ReLU6(), nn.Conv2d(before, after, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU6()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES))


NINE: dict[str, Callable[[], nn.Module]] = {
    "CNN": convnet,
    "CNN, BatchNorm": lambda: convnet(nn.BatchNorm2d),
    "CNN, GroupNorm": lambda: convnet(lambda width: nn.GroupNorm(8, width)),
    "LeNet": lenet,
    "ResNet": ResNet,
    "ConvNeXt": ConvNeXt,
    "ViT": ViT,
    "MLP": mlp,
    "text transformer": TextTransformer,
}
PLAIN: dict[str, Callable[[], nn.Module]] = {
    f"plain, {depth} layers, {init}": partial(plain, depth, init) for depth in (6, 12, 21) for init in ("He", "torch")
}
OTHERS: dict[str, Callable[[], nn.Module]] = {
    "tanh CNN": tanh_net,
    "VGG": lambda: vgg(norm=False),
    "VGG, BatchNorm": lambda: vgg(norm=True),
    "strided CNN, ELU": strided,
    "residual, no norm layers": Skips,
    "MLP-Mixer": Mixer,
    "GRU": RowGRU,
    "MLP, 8 layers": deep_mlp,
    "MobileNet": depthwise,
    "plain, 9 layers, He": partial(plain, 9, "He", (12, 24, 24)),
    "plain, 15 layers, He": partial(plain, 15, "He", (12, 16, 24)),
}
"""Models that no default was chosen on."""
GROUPS = {"nine kinds": NINE, "plain nets": PLAIN, "others": OTHERS}
MODELS = NINE | PLAIN | OTHERS
