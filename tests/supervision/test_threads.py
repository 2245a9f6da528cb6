"""One supervised net in several threads at once: every call has the answers that it has alone."""

import copy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from nets import CLASSES, LEARNED, ConvNet, TokenNet, images
from threads import hammer, restless
from torch import Tensor, nn

from deepsup import DeeplySupervised, supervise

CALLS = 400


@pytest.fixture(autouse=True)
def often() -> Iterator[None]:
    with restless():
        yield


def test_two_threads_never_mix_their_images() -> None:
    net = supervise(
        ConvNet().eval(), at=["conv1", "pool1", "conv2"], num_classes=CLASSES, companion=LEARNED, example=images(1)
    )
    assert hammer(net, [images(2) for _ in range(8)], CALLS) == 0


def test_two_threads_on_tokens() -> None:
    model, example = TokenNet().eval(), torch.zeros(1, 7, 8)
    net = supervise(model, at=["layers.0", "layers.1"], num_classes=CLASSES, companion=LEARNED, example=example)
    assert hammer(net, [torch.randn(2, 7, 8) for _ in range(4)], CALLS // 4) == 0


def test_the_first_forward_of_an_unsized_net_from_many_threads() -> None:
    for _ in range(10):
        model = ConvNet().train()
        net = supervise(model, at=["conv1", "conv2"], num_classes=CLASSES, companion=LEARNED)
        net.trunk.drop.p = 0.0
        inputs, start = [images(2) for _ in range(4)], Barrier(4)

        def first(x: Tensor, net: DeeplySupervised = net, start: Barrier = start) -> list[Tensor]:
            start.wait()
            return list(net(x).companions.values())

        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(first, inputs))
        for mine, x in zip(found, inputs, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(mine, net(x).companions.values(), strict=True))
        assert all(module.training for module in net.modules())
        assert not any(module._forward_hooks for module in net.strip().modules())


class Twice(nn.Module):
    """A model that asks a supervised net of its own within its forward, and runs one of its layers in the middle."""

    def __init__(self, inner: DeeplySupervised) -> None:
        super().__init__()
        self.inner, self.conv, self.fc = inner, nn.Conv2d(2, 2, 3, padding=1), nn.Linear(CLASSES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        out = self.inner(self.conv(x))
        scores: Tensor = self.fc(out.scores + out.companions["conv1"])
        return scores


def test_a_supervised_net_inside_another() -> None:
    """Both tap layers of the inner model; neither takes the other's."""
    inner = supervise(ConvNet().eval(), at=["conv1"], num_classes=CLASSES, companion=LEARNED, example=images(1))
    model = Twice(inner)
    taps = ["conv", "inner.trunk.conv1", "inner.trunk.conv2"]
    net = supervise(model, at=taps, num_classes=CLASSES, companion=LEARNED, example=images(1))
    x = images()
    z = model.conv(x)
    first = inner.trunk.conv1(z)
    second = inner.trunk.conv2(inner.trunk.pool1(first.relu()))
    out = net(x)
    for name, features in zip(taps, (z, first, second), strict=True):
        torch.testing.assert_close(out.companions[name], net.head(name)(features))
    assert hammer(net, [images(2) for _ in range(4)], 20) == 0


def test_a_net_called_within_its_own_forward() -> None:
    """The call inside keeps its catch apart from that of the call around it."""
    net = supervise(ConvNet().eval(), at=["conv1", "conv2"], num_classes=CLASSES, companion=LEARNED, example=images(1))
    x, other = images(), images(2)
    expected, inside = net(x), []
    alone = net(other)

    def call_again(_layer: nn.Module, args: tuple[Tensor, ...]) -> None:
        if not inside:
            inside.append(None)
            inside.append(net(other))

    net.trunk.pool1.register_forward_pre_hook(call_again)
    out = net(x)
    for name in net.taps:
        assert torch.equal(out.companions[name], expected.companions[name])
        assert torch.equal(inside[1].companions[name], alone.companions[name])


def test_data_parallel_replicas_share_taps_but_no_catch() -> None:
    """nn.DataParallel runs shallow copies in threads: their layers call the same tap objects."""
    net = supervise(ConvNet().eval(), at=["conv1"], num_classes=CLASSES, companion=LEARNED, example=images(1))
    twin = copy.copy(net)
    twin.__dict__ = net.__dict__.copy()
    x = [images(2), images(2)]
    expected = [net(each).companions["conv1"] for each in x]
    with ThreadPoolExecutor(2) as pool:
        for _ in range(CALLS // 4):
            found = list(pool.map(lambda pair: pair[0](pair[1]).companions["conv1"], zip((net, twin), x, strict=True)))
            assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
