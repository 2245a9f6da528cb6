"""Small language models and nets with loops, written for these tests."""

from typing import Any

import torch
from torch import Tensor, nn

WORDS, WIDTH, LENGTH = 23, 16, 9


def words(batch: int = 3, length: int = LENGTH, seed: int = 0) -> Tensor:
    return torch.randint(0, WORDS, (batch, length), generator=torch.Generator().manual_seed(seed))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        past = x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]
        grown: Tensor = x + self.down(torch.tanh(self.up(self.norm(past))))
        return grown


class LanguageModel(nn.Module):
    """Word numbers [B,L] -> scores of the next word [B,L,K], as an object with ``logits`` or alone."""

    def __init__(self, depth: int = 4, classes: int = WORDS, first: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(depth))
        self.norm = nn.LayerNorm(WIDTH)
        self.unembed = nn.Linear(WIDTH, classes)
        self.first = first

    def forward(self, ids: Tensor) -> Any:
        x = self.embedding(ids)
        for block in self.h:
            x = block(x)
        scores = self.unembed(self.norm(x))
        return scores.movedim(-1, 1) if self.first else {"logits": scores, "hidden": x}


class Loop(nn.Module):
    """Vectors [B,D] -> one block, several times -> scores [B,K]; ``unrolled`` has a module per call, the same one."""

    def __init__(self, times: int = 3, unrolled: bool = False) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.enter, self.block, self.times = nn.Linear(6, WIDTH), nn.Linear(WIDTH, WIDTH), times
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4)
        self.calls = nn.ModuleList(Around(self.block) for _ in range(times if unrolled else 0))

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        for call in self.calls or [self.block] * self.times:
            x = torch.tanh(call(x))
        scores: Tensor = self.out(self.norm(x))
        return scores


class Around(nn.Module):
    """A module of its own around a shared layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y


class Steps(nn.Module):
    """Sequences [B,T,D] -> LSTM or GRU -> scores of the last time step [B,K]."""

    def __init__(self, kind: type[nn.RNNBase] = nn.LSTM, batch_first: bool = True) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.rnn: Any = kind(6, WIDTH, batch_first=batch_first)  # type: ignore[call-arg] # torch's stubs want a mode
        self.out, self.batch_first = nn.Linear(WIDTH, 4), batch_first

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.rnn(x if self.batch_first else x.movedim(1, 0))
        scores: Tensor = self.out(states[:, -1] if self.batch_first else states[-1])
        return scores
