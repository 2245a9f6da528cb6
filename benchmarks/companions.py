"""What companions cost: a supervised training step over a plain one, all gated, and stripped inference over plain.

Sides take turns within one run, medians of ratios, so that a noisy machine cancels out. ``--json`` for one JSON object.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from deepsup import Companion, DeeplySupervised, Objective, create_network, supervise

BATCH, ROUNDS = 64, 7


def trained(net: DeeplySupervised, objective: Objective, images: Tensor, labels: Tensor) -> Callable[[], None]:
    """Return a function that takes one training step."""
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        objective(net(images), labels).total.backward()
        optimizer.step()

    return step


def ratios(sides: dict[str, Callable[[], None]], base: str) -> dict[str, float]:
    """Time every side in turn, round after round; return the median of each side's time over the base's."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for run in sides.values():
        run()  # warm up
    for _ in range(ROUNDS):
        for name, run in sides.items():
            began = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - began)
    return {
        name: statistics.median(a / b for a, b in zip(each, times[base], strict=True))
        for name, each in times.items()
        if name != base
    }


def net_of(name: str, taps: str | tuple[str, ...], pool: str, example: Tensor) -> DeeplySupervised:
    """Return a supervised network in channels_last."""
    network = create_network(name).to(memory_format=torch.channels_last)
    return supervise(network, at=taps, num_classes=10, example=example, companion=Companion(pool=pool))


def measure(name: str) -> dict[str, float]:
    """Return the ratios for one network."""
    images = torch.randn(BATCH, 3, 32, 32).to(memory_format=torch.channels_last)
    labels = torch.arange(BATCH) % 10
    taps = create_network(name).taps
    plain, flat, pooled = (net_of(name, *how, images) for how in (((), "none"), (taps, "none"), (taps, "avg")))
    found = ratios(
        {
            "plain": trained(plain, Objective(plain, norms=False), images, labels),
            "supervised_over_plain_step": trained(flat, Objective(flat, norms=False), images, labels),
            "pooled_supervised_over_plain_step": trained(pooled, Objective(pooled, norms=False), images, labels),
            "gated_over_plain_step": trained(flat, Objective(flat, gamma=1e9, norms=False), images, labels),
        },
        "plain",
    )
    bare, stripped = plain.strip().eval(), pooled.strip().eval()
    with torch.no_grad():
        inference = ratios({"plain": lambda: bare(images), "stripped": lambda: stripped(images)}, "plain")
    return found | {"stripped_over_plain_inference": inference["stripped"]}


def main() -> None:
    """Measure, and print a table or JSON."""
    torch.manual_seed(0)
    found = {name: measure(name) for name in ("nin-cifar10", "fast")}
    if "--json" in sys.argv:
        print(json.dumps(found))
        return
    for name, each in found.items():
        print(f"{name}, batch {BATCH}, {torch.get_num_threads()} threads, median of {ROUNDS} rounds")
        for what, ratio in each.items():
            print(f"  {what:36} {ratio:.3f}")


if __name__ == "__main__":
    main()
