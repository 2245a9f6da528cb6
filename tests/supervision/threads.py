"""One supervised net, two threads -> how many answers were not those of one thread."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier

import torch
from torch import Tensor

from deepsup import DeeplySupervised


@contextmanager
def restless() -> Iterator[None]:
    """Python changes threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def answers(net: DeeplySupervised, x: Tensor) -> list[Tensor]:
    """The scores of one call, and the gradient of every parameter."""
    out = net(x)
    total = out.scores.square().sum() + sum(scores.square().sum() for scores in out.companions.values())
    return [out.scores, *out.companions.values(), *torch.autograd.grad(total, list(net.parameters()))]


def hammer(net: DeeplySupervised, inputs: list[Tensor], calls: int) -> int:
    """Call the net from two threads, each with its own inputs; return how many answers were not those of one thread."""
    with torch.no_grad():
        expected = [list(net(x).companions.values()) for x in inputs]
    gradients = [answers(net, x) for x in inputs]
    start = Barrier(2)

    def work(index: int) -> int:
        wrong = 0
        start.wait()
        for call in range(calls):
            which = (2 * call + index) % len(inputs)
            if call % 4:
                with torch.no_grad():
                    found, right = list(net(inputs[which]).companions.values()), expected[which]
            else:
                found, right = answers(net, inputs[which]), gradients[which]
            wrong += not all(torch.equal(a, b) for a, b in zip(found, right, strict=True))
        return wrong

    with ThreadPoolExecutor(2) as pool:
        return sum(pool.map(work, range(2)))
