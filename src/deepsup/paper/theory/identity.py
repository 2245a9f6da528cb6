"""Nothing in, Lemma 1 as nets out: what a layer's companion achieves, a layer above achieves too, if it can copy.

The lemma puts identity filters into every layer from m + 1 to m' and sets w_m' = w_m. That needs layers whose output
can equal their input. Each counter-case below is a layer that cannot, two images of two classes that a companion below
it tells apart, and a floor under |w|^2 + l above it that no filters and no w can pass.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from deepsup.objective import Objective, squared_hinge
from deepsup.supervision import Companion, supervise

LABELS = torch.tensor([0, 1])
STEPS, DRAWS = 100, 256


@dataclass(frozen=True)
class Counter:
    """A layer above which the lemma fails, and why."""

    name: str
    features: Tensor
    """[2,C,H,W]: what the tap at m gives for one image of each class."""
    above: nn.Module
    """What comes between it and the tap at m'."""
    floor: float
    why: str


def identity_layer(channels: int) -> nn.Sequential:
    """Return a 1x1 convolution that copies, and a ReLU, which leaves what is not negative as it is."""
    convolution = nn.Conv2d(channels, channels, 1)
    nn.init.dirac_(convolution.weight)
    nn.init.zeros_(convolution.bias)  # type: ignore[arg-type] # it has one
    return nn.Sequential(convolution, nn.ReLU())


def copied_brackets(depth: int, seed: int) -> tuple[float, float]:
    """Return |w|^2 + l at layer m and at m' = m + depth of one net, by the lemma's own construction."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        first = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU())
        layers = [first, *(identity_layer(6) for _ in range(depth))]
        trunk = nn.Sequential(*layers, nn.Flatten(), nn.Linear(6 * 5 * 5, 3))
        images, labels = torch.randn(12, 1, 5, 5), torch.arange(12) % 3
        net = supervise(trunk, ["0", str(depth)], num_classes=3, example=images, companion=Companion.paper())
    low, high = (net.head(name).classifier for name in net.taps)
    high.load_state_dict(low.state_dict())
    # gamma 0 and alpha 1: a companion's part of the objective is its whole bracket
    parts = Objective.paper(net, schedule="constant")(net(images), labels).companions
    return parts["0"].item(), parts[str(depth)].item()


def bracket(features: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    """Return |w|^2 + the mean squared hinge of features [B, ...] under w [K, features], as the paper writes it."""
    return weight.square().sum() + squared_hinge(features.flatten(1) @ weight.T, labels).mean()


def separable(sign: float = 1.0, wide: bool = False) -> tuple[Tensor, Tensor]:
    """Return features of two images, apart in their channels or (wide) in their places, and a w that tells them apart.

    Both margins are met exactly, so the bracket is |w|^2 = 0.01.
    """
    features = sign * 10 * torch.eye(2)
    weight = sign * 0.05 * torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    return features.reshape(2, 1, 1, 2) if wide else features.reshape(2, 2, 1, 1), weight


def counters() -> list[Counter]:
    """Return the layers that cannot copy. At a feature of 0 every score is 0, and the image loses 1 whatever w is."""
    channels, places, raw = separable()[0], separable(wide=True)[0], separable(sign=-1)[0]
    return [
        Counter(
            "a layer of fewer channels", channels, nn.Sequential(nn.Conv2d(2, 1, 1, bias=False), nn.ReLU()), 0.5,
            "one number that is not negative orders the classes alike for all images",
        ),
        Counter(
            "a pooling layer", places,
            nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.ReLU(), nn.MaxPool2d((1, 2))), 1.0,
            "both images pool to the same map",
        ),
        Counter(
            "a stride of 2", places, nn.Sequential(nn.Conv2d(1, 1, 1, stride=(1, 2), bias=False), nn.ReLU()), 0.5,
            "one image is stepped over",
        ),
        Counter(
            "a tap before the ReLU", raw, nn.Sequential(nn.ReLU(), nn.Conv2d(2, 2, 1, bias=False)), 1.0,
            "what told the images apart was negative",
        ),
        Counter(
            "dropout of 0.5 in training", channels, nn.Sequential(nn.Dropout(0.5), nn.Conv2d(2, 2, 1, bias=False)), 0.5,
            "half of the draws wipe the one feature of an image out, so in the mean over them",
        ),
    ]  # fmt: skip


def lowest_bracket(counter: Counter, seed: int) -> float:
    """Return the lowest |w|^2 + l above the layer that training of its filters and of w finds."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # many copies: dropout is met in the mean
        features, labels = counter.features.repeat(DRAWS, 1, 1, 1), LABELS.repeat(DRAWS)
        width = counter.above(features).flatten(1).shape[1]
        weight = (0.1 * torch.randn(2, width)).requires_grad_()
        for filters in counter.above.parameters():
            nn.init.uniform_(filters)  # not below 0: behind a ReLU that is shut nothing learns
        optimizer = torch.optim.Adam([*counter.above.parameters(), weight], lr=0.1)
        values = []
        for _ in range(STEPS):
            value = bracket(counter.above(features), weight, labels)
            optimizer.zero_grad()
            torch.autograd.backward(value)
            optimizer.step()
            values.append(value.item())
    # the mean of the end, not one lucky draw of dropout
    return sum(values[-20:]) / 20
