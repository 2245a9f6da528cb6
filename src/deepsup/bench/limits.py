"""A network's name -> the arithmetic it does a second, over that of a large matrix product on the same machine."""

from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from deepsup.bench.companion_cost import batch_of, net_of, step_of
from deepsup.bench.timing import Turn, ratio, take_turns
from deepsup.training.memory import kept_memory


def flops_of(turn: Turn) -> int:
    """Return the floating-point operations of convolutions and matrix products, 2 a multiply-add, as torch counts."""
    with FlopCounterMode(display=False) as counter:
        turn()
    return int(counter.get_total_flops())


def measure_limits(name: str, batch: int, rounds: int, size: int) -> dict[str, Any]:
    """Return ``train_flops_over_matmul`` and ``forward_flops_over_matmul``, and the rates themselves in GFLOP/s."""
    images, labels = batch_of(batch)
    net = net_of(name, ())
    a, b, product = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
    step = step_of(net, images, labels)

    def forward() -> None:
        with torch.no_grad():
            net.trunk(images)

    def matmul() -> None:
        torch.mm(a, b, out=product)

    sides: dict[str, Turn] = {"train": step, "forward": forward, "matmul": matmul}
    work = {side: flops_of(turn) for side, turn in sides.items()}
    with kept_memory():
        seconds = take_turns(sides, rounds)
    rates = {side: [work[side] / each for each in held] for side, held in seconds.items()}
    return {
        "ratios": {f"{side}_flops_over_matmul": ratio(rates[side], rates["matmul"]) for side in ("train", "forward")},
        "gflops": {side: float(np.median(held)) / 1e9 for side, held in rates.items()},
        "gflop_an_image": {side: work[side] / batch / 1e9 for side in ("train", "forward")},
    }
