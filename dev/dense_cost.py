"""Measure what dense companions add to a training step of a U-Net: plain and supervised steps in turns, best of each.

    python dev/dense_cost.py

Prints one line per net and kind of target: the time of both steps and their ratio. The bar is 1.10.
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepsup import Objective, create_network, supervise

NETS = {"unet-small": (16, 24, 32, 48), "unet of widths 32 to 256": (32, 64, 128, 256)}


def network(widths: tuple[int, ...]) -> nn.Module:
    """Return a U-Net of these widths."""
    torch.manual_seed(0)
    net: nn.Module = create_network("unet-small", num_classes=11, widths=widths)
    return net.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return] # not in torch's stubs


def plain_step(model: nn.Module, x: Tensor, y: Tensor) -> Callable[[], None]:
    """Return a training step without companions."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def supervised_step(model: nn.Module, x: Tensor, y: Tensor, targets: str) -> Callable[[], None]:
    """Return a training step with companions at the decoder's stages."""
    net = supervise(model, num_classes=11, example=x[:1])
    objective = Objective(net, targets=targets)  # type: ignore[arg-type] # a str of the loop
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        objective(net(x), y, progress=0.0).total.backward()
        optimizer.step()

    return step


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--batch", type=int, default=8)
    given = parser.parse_args()
    torch.set_num_threads(1)
    x = torch.randn(given.batch, 1, 64, 64).contiguous(memory_format=torch.channels_last)
    y = torch.randint(11, (given.batch, 64, 64))
    for name, widths in NETS.items():
        steps = {"plain": plain_step(network(widths), x, y)}
        steps |= {how: supervised_step(network(widths), x, y, how) for how in ("probability", "nearest", "upsample")}
        times: dict[str, list[float]] = {each: [] for each in steps}
        for turn in range(given.turns + 2):
            for each, step in steps.items():
                start = time.process_time()  # not the clock: other programs may run
                step()
                if turn >= 2:
                    times[each].append(time.process_time() - start)
        best = {each: min(found) for each, found in times.items()}
        for each in ("probability", "nearest", "upsample"):
            print(f"{name}, {each}: {1000 * best[each]:.1f} ms, plain {1000 * best['plain']:.1f} ms, "  # noqa: T201 - a script
                  f"ratio {best[each] / best['plain']:.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
