"""The cost of companions: supervised, gated and plain training steps, and inference after ``strip()``."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import Tensor, nn

from deepsup.exits import Ratio, Turn, ratio, take_turns
from deepsup.objective import Objective
from deepsup.supervision import Companion, DeeplySupervised, supervise
from deepsup.trainer.networks import Network, create_network
from deepsup.trainer.training import kept_memory

CLASSES = 10
INFERENCE_ROUNDS = 3
"""Per round of steps: a pass is shorter, and the expected difference is smaller."""
BARELY = 1e-6
"""A learning rate at which nothing changes: every step is the same work."""


def batch_of(count: int) -> tuple[Tensor, Tensor]:
    """Return random images of CIFAR-10's shape, in channels_last, and labels."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(count, 3, 32, 32, generator=generator).to(memory_format=torch.channels_last)
    return images, torch.arange(count) % CLASSES


def network_of(name: str) -> Network:
    """Return a network for images of CIFAR-10's shape."""
    return create_network(name, num_classes=CLASSES, in_channels=3, image_size=32)


FLAT = Companion.paper()
POOLED = replace(FLAT, pool="avg")


def net_of(name: str, taps: Iterable[str], companion: Companion = FLAT) -> DeeplySupervised:
    """Return a supervised network in channels_last."""
    torch.manual_seed(0)
    network = network_of(name).to(memory_format=torch.channels_last)  # type: ignore[call-overload] # torch's stubs
    return supervise(network, at=taps, num_classes=CLASSES, example=batch_of(2)[0], companion=companion)


def summed(net: DeeplySupervised, gamma: float = 0.0) -> Objective:
    """Return the objective of the authors' code, companions on to the end; it needs no progress."""
    return Objective.caffe(net, gamma=gamma if net.taps else 0.0, schedule="constant")


def step_of(objective: Objective, images: Tensor, labels: Tensor) -> Callable[[], None]:
    """Return a function that takes one training step in the middle of the training."""
    net = objective.net.train()
    optimizer = torch.optim.SGD(net.parameters(), lr=BARELY, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        objective(net(images), labels, progress=0.5).total.backward()  # type: ignore[no-untyped-call] # torch leaves it untyped
        optimizer.step()

    return step


def measure_companions(name: str, batch: int, rounds: int) -> dict[str, Ratio]:
    """Return the ratios for one network with its own taps."""
    images, labels = batch_of(batch)
    taps = network_of(name).taps
    plain, pooled = net_of(name, ()), net_of(name, taps, POOLED)
    objectives = {
        "plain": summed(plain),
        "default": Objective(net_of(name, taps, Companion())),
        "supervised": summed(net_of(name, taps)),
        "pooled_supervised": summed(pooled),
        "gated": summed(net_of(name, taps), gamma=1e9),
    }
    turns: dict[str, Turn] = {each: step_of(objective, images, labels) for each, objective in objectives.items()}
    with kept_memory():  # as in training, for all variants: page faults of new memory are noise here
        seconds = take_turns(turns, rounds)
    ratios = {f"{name}_over_plain_step": ratio(each, seconds["plain"]) for name, each in seconds.items()}
    del ratios["plain_over_plain_step"]
    return ratios | {"stripped_over_plain_inference": inference(plain, pooled, images, rounds)}


def inference(plain: DeeplySupervised, supervised: DeeplySupervised, images: Tensor, rounds: int) -> Ratio:
    """Return the inference time of a stripped net over that of one that never had companions."""
    bare, stripped = plain.strip().eval(), supervised.strip().eval()
    stripped.load_state_dict(bare.state_dict())

    def pass_through(model: nn.Module) -> Callable[[], None]:
        def turn() -> None:
            model(images)

        return turn

    with torch.no_grad():
        seconds = take_turns(
            {"plain": pass_through(bare), "stripped": pass_through(stripped)}, INFERENCE_ROUNDS * rounds
        )
    return ratio(seconds["stripped"], seconds["plain"])
