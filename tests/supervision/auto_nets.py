"""Nets of many kinds, written for the table of ``at="auto"``: recurrent, sequence-first, one-dimensional, vectors."""

from itertools import pairwise
from typing import Any

import torch
from nets import CLASSES
from torch import Tensor, nn

WORDS = 50
WIDTH = 16


class Recurrent(nn.Module):
    """Word indices [B,L] -> embedding -> recurrent layers, one after the other -> the last step -> scores [B,K]."""

    def __init__(self, kind: type[nn.RNNBase] = nn.LSTM, modules: int = 1, **settings: Any) -> None:
        super().__init__()
        settings = {"batch_first": True} | settings
        self.first = settings["batch_first"]
        wide = WIDTH * (2 if settings.get("bidirectional") else 1)
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.rnns = nn.ModuleList(kind(wide if i else WIDTH, WIDTH, **settings) for i in range(modules))
        self.drop = nn.Dropout(0.1)
        self.fc = nn.Linear(wide, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        z = self.embedding(words)
        z = z if self.first else z.transpose(0, 1)
        for rnn in self.rnns:
            z, _ = rnn(z)
        scores: Tensor = self.fc(self.drop(z[:, -1] if self.first else z[-1]))
        return scores


class NamedRecurrent(nn.Module):
    """Two LSTMs as attributes, the last state, two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.lstm1 = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.lstm2 = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.fc1, self.relu, self.fc2 = nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        z, _ = self.lstm1(self.words(words))
        _, (state, _) = self.lstm2(z)
        scores: Tensor = self.fc2(self.relu(self.fc1(state[-1])))
        return scores


class CellLoop(nn.Module):
    """A GRU cell that runs once per word: no layer has a single output."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.cell, self.fc = nn.Embedding(WORDS, WIDTH), nn.GRUCell(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        state = torch.zeros(len(words), WIDTH)
        for step in self.words(words).unbind(1):
            state = self.cell(step, state)
        scores: Tensor = self.fc(state)
        return scores


class SignalRecurrent(nn.Module):
    """A convolution over a signal [B,C,L], then an LSTM over its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(2, 8, 5, stride=2, padding=2), nn.ReLU())
        self.lstm, self.fc = nn.LSTM(8, 32, batch_first=True), nn.Linear(32, CLASSES)

    def forward(self, signal: Tensor) -> Tensor:
        steps, _ = self.lstm(self.conv(signal).transpose(1, 2))
        scores: Tensor = self.fc(steps[:, -1])
        return scores


class TextReader(nn.Module):
    """A CRNN: convolutions with two poolings over a line of text, then a smaller LSTM over its columns."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        self.conv1, self.pool1 = nn.Conv2d(1, 16, 3, padding=1), nn.MaxPool2d(2)
        self.conv2, self.pool2 = nn.Conv2d(16, 32, 3, padding=1), nn.MaxPool2d(2)
        self.conv3 = nn.Conv2d(32, 32, 3, padding=1)
        self.lstm, self.fc = nn.LSTM(32, wide, batch_first=True), nn.Linear(wide, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        z = self.pool1(self.conv1(images).relu())
        z = self.conv3(self.pool2(self.conv2(z).relu())).relu()
        scores: Tensor = self.fc(self.lstm(z.mean(2).transpose(1, 2))[0][:, -1])
        return scores


class Transformer(nn.Module):
    """Word indices -> embedding -> encoder layers -> mean -> scores; with or without the batch first inside."""

    def __init__(self, layers: int, batch_first: bool = True, words_first: bool = True) -> None:
        super().__init__()
        self.batch_first, self.turn = batch_first, words_first and not batch_first
        self.embedding = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=batch_first)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm, self.fc = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        z = self.embedding(words)
        z = self.encoder(z.transpose(0, 1) if self.turn else z)
        scores: Tensor = self.fc(self.norm(z.mean(1 if self.batch_first else 0)))
        return scores


class OwnBlock(nn.Module):
    """Attention with three projections, then two linear layers, both added to the tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, z: Tensor) -> Tensor:
        z = z + nn.functional.scaled_dot_product_attention(self.q(z), self.k(z), self.v(z))
        out: Tensor = z + self.mlp(z)
        return out


class OneBlock(nn.Module):
    """A transformer of one block, which is no element of a list."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.block, self.fc = nn.Embedding(WORDS, WIDTH), OwnBlock(), nn.Linear(WIDTH, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        scores: Tensor = self.fc(self.block(self.embedding(words)).mean(1))
        return scores


class TwoBlocks(nn.Module):
    """A transformer with an embedding, a list of blocks and a head, each an ``nn.Sequential``."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(6, WIDTH), nn.LayerNorm(WIDTH))
        self.body = nn.Sequential(OwnBlock(), OwnBlock())
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES))

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.head(self.body(self.embed(tokens)).mean(1))
        return scores


class SameBlock(nn.Module):
    """One block that runs four times (a universal transformer)."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.block, self.fc = nn.Linear(6, WIDTH), OwnBlock(), nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        z = self.enter(tokens)
        for _ in range(4):
            z = self.block(z)
        scores: Tensor = self.fc(z.mean(1))
        return scores


class TextConvolutions(nn.Module):
    """Convolutions of several widths side by side on the same words: no stages."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.convs = nn.ModuleList(nn.Conv1d(WIDTH, 8, size) for size in (2, 3, 4))
        self.fc = nn.Linear(24, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        z = self.embedding(words).transpose(1, 2)
        scores: Tensor = self.fc(torch.cat([conv(z).relu().amax(2) for conv in self.convs], 1))
        return scores


class MeanWords(nn.Module):
    """The mean of the embeddings, then hidden linear layers (a deep averaging network), or none (fastText)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(WORDS, WIDTH)
        layers = [each for _ in range(hidden) for each in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
        self.fc = nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES))

    def forward(self, words: Tensor) -> Tensor:
        scores: Tensor = self.fc(self.words(words))
        return scores


class Residual1d(nn.Module):
    """A residual block on a signal [B,C,L]."""

    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv1d(before, after, 3, stride, 1), nn.BatchNorm1d(after)
        self.conv2, self.norm2 = nn.Conv1d(after, after, 3, 1, 1), nn.BatchNorm1d(after)
        self.short = nn.Conv1d(before, after, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm2(self.conv2(self.norm1(self.conv1(x)).relu()))
        return (y + self.short(x)).relu()


class ResNet1d(nn.Module):
    """A ResNet on signals: four stages, each half as long as the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv1d(2, 8, 7, padding=3)
        self.layer1 = nn.Sequential(Residual1d(8, 8), Residual1d(8, 8))
        self.layer2 = nn.Sequential(Residual1d(8, 16, 2), Residual1d(16, 16))
        self.layer3 = nn.Sequential(Residual1d(16, 32, 2), Residual1d(32, 32))
        self.layer4 = nn.Sequential(Residual1d(32, 64, 2), Residual1d(64, 64))
        self.fc = nn.Linear(64, CLASSES)

    def forward(self, signal: Tensor) -> Tensor:
        z = self.layer4(self.layer3(self.layer2(self.layer1(self.stem(signal).relu()))))
        scores: Tensor = self.fc(z.mean(2))
        return scores


def plain_signals() -> nn.Module:
    """A VGG on signals: two convolutions before each of two poolings, one after."""
    layers: list[nn.Module] = []
    for before, after, pool in ((2, 8, False), (8, 8, True), (8, 16, False), (16, 16, True), (16, 32, False)):
        layers += [nn.Conv1d(before, after, 3, padding=1), nn.BatchNorm1d(after), nn.ReLU()]
        layers += [nn.MaxPool1d(2)] if pool else []
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, CLASSES))


def causal() -> nn.Module:
    """A temporal convolution network: six dilated blocks of one length."""
    blocks = (nn.Sequential(nn.Conv1d(8, 8, 3, padding=2**i, dilation=2**i), nn.ReLU()) for i in range(6))
    return nn.Sequential(
        nn.Conv1d(2, 8, 1), nn.Sequential(*blocks), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, CLASSES)
    )


def perceptron(hidden: int, *after: Any) -> nn.Sequential:
    """Hidden linear layers on vectors, each with ``after``, and the output layer."""
    layers: list[nn.Module] = []
    for _ in range(hidden):
        layers += [nn.Linear(WIDTH, WIDTH), *(make() for make in after)]
    return nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES))


class NamedPerceptron(nn.Module):
    """Layers as attributes and functional activations."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.out(self.fc3(self.fc2(self.fc1(x).relu()).relu()).relu())
        return scores


class ResidualVectors(nn.Module):
    """A residual block on vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.b(self.a(x).relu())
        return out


def residual_perceptron() -> nn.Module:
    return nn.Sequential(
        nn.Linear(8, WIDTH), *(ResidualVectors() for _ in range(6)), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)
    )


def unpadded() -> nn.Module:
    """A small CNN of convolutions without padding, as in many tutorials: 34, 32 | 16, 14, 12 | 6, 4 pixels."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, CLASSES),
    )  # fmt: skip


def one_hidden_convolution() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3600, 16), nn.ReLU(), nn.Linear(16, CLASSES)
    )


class Points(nn.Module):
    """PointNet: the same layers at every point [B,3,N], the maximum, two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 16, 32, 64)
        self.shared = nn.Sequential(
            *(each for a, b in pairwise(widths) for each in (nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU()))
        )
        self.head = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, CLASSES))

    def forward(self, points: Tensor) -> Tensor:
        scores: Tensor = self.head(self.shared(points).amax(2))
        return scores
