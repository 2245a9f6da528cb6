"""FLOP/s of a network relative to a large matrix product on the same machine."""

from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from deepsup.exits import Turn, ratio, take_turns
from deepsup.paper.bench.companion_cost import batch_of, net_of, step_of, summed
from deepsup.trainer.training import kept_memory


def flops_of(turn: Turn) -> int:
    """Return the FLOPs of convolutions and matrix products as torch counts them, 2 per multiply-add."""
    with FlopCounterMode(display=False) as counter:
        turn()
    return int(counter.get_total_flops())


def measure_limits(name: str, batch: int, rounds: int, size: int) -> dict[str, Any]:
    """Return ``train_flops_over_matmul`` and ``forward_flops_over_matmul``, and the rates in GFLOP/s."""
    images, labels = batch_of(batch)
    net = net_of(name, ())
    a, b, product = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
    step = step_of(summed(net), images, labels)

    def forward() -> None:
        with torch.no_grad():
            net.trunk(images)

    def matmul() -> None:
        torch.mm(a, b, out=product)

    turns: dict[str, Turn] = {"train": step, "forward": forward, "matmul": matmul}
    work = {which: flops_of(turn) for which, turn in turns.items()}
    with kept_memory():
        seconds = take_turns(turns, rounds)
    rates = {which: [work[which] / each for each in values] for which, values in seconds.items()}
    return {
        "ratios": {
            f"{which}_flops_over_matmul": ratio(rates[which], rates["matmul"]) for which in ("train", "forward")
        },
        "gflops": {which: float(np.median(values)) / 1e9 for which, values in rates.items()},
        "gflop_an_image": {which: work[which] / batch / 1e9 for which in ("train", "forward")},
    }
