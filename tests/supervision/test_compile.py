"""torch.compile of the net and of a whole step: same results, and nothing is compiled again as gates and alpha move."""

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from nets import CLASSES, LEARNED, ConvNet, TokenNet, images, labels, mlp, objective_of
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter, CompileCounterWithBackend

from deepsup import Companion, DeeplySupervised, Objective, supervise

AOT = "aot_eager"  # compiles backward too, without generating code


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def small_net(companion: Companion = LEARNED) -> DeeplySupervised:
    taps = ["conv1", "pool1"]
    return supervise(ConvNet().eval(), at=taps, num_classes=CLASSES, companion=companion, example=images(1))


@pytest.mark.slow
def test_a_compiled_net_gives_the_same_outputs() -> None:
    net, counter = small_net(), CompileCounterWithBackend("inductor")
    compiled = torch.compile(net, backend=counter, fullgraph=True)
    x = images()
    expected = net(x)
    for _ in range(2):
        out = compiled(x)
        assert type(out) is type(expected)
        torch.testing.assert_close(out.scores, expected.scores, atol=1e-5, rtol=1e-5)
        for name in net.taps:
            torch.testing.assert_close(out.companions[name], expected.companions[name], atol=1e-5, rtol=1e-5)
    assert counter.frame_count == 1
    objective_of(compiled)(compiled(x), labels()).total.backward()
    assert net.trunk.conv1.weight.grad is not None


def test_a_net_that_never_ran_is_compiled_once() -> None:
    net, counter = small_net(), CompileCounter()
    compiled = torch.compile(net, backend=counter, fullgraph=True)
    inputs = [images() for _ in range(4)]
    found = [compiled(x) for x in inputs]
    assert counter.frame_count == 1
    for x, out in zip(inputs, found, strict=True):
        torch.testing.assert_close(out.companions["conv1"], net(x).companions["conv1"])
    compiled(inputs[0])
    assert counter.frame_count == 1  # calls that are not compiled change nothing


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # of torch itself
@pytest.mark.parametrize("whole", [False, True])
def test_layers_that_are_compiled_in_place_are_traced_as_they_are(whole: bool) -> None:
    counter, model, x, y = CompileCounter(), ConvNet().eval(), images(), labels()
    plain = copy.deepcopy(model)
    (model if whole else model.conv1).compile(backend=counter)
    nets = [
        supervise(each, ["conv1", "pool1"], num_classes=CLASSES, companion=LEARNED, example=images(1))
        for each in (model, plain)
    ]
    assert counter.frame_count == 0
    nets[1].heads.load_state_dict(nets[0].heads.state_dict())
    for net in nets:
        objective_of(net)(net(x), y).total.backward()
    assert counter.frame_count > 0
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert ours.grad is not None
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_a_compiled_net_in_two_threads() -> None:
    net, counter = small_net(), CompileCounter()
    compiled = torch.compile(net, backend=counter, fullgraph=True)
    inputs = [images() for _ in range(8)]
    expected = [compiled(x).companions["pool1"] for x in inputs]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda x: compiled(x).companions["pool1"], 10 * inputs))
    assert all(torch.equal(a, b) for a, b in zip(found, 10 * expected, strict=True))
    assert counter.frame_count == 1


@pytest.mark.parametrize("schedule", ["paper", "cut:0.5", lambda t: (1 - t) ** 2])
def test_a_compiled_step_is_compiled_once(schedule: str) -> None:
    net, counter = small_net(Companion.paper()), CompileCounter()  # not scaled, so that larger inputs move the gates
    x, y = images(), labels()
    bracket = objective_of(net)(net(x), y).companions["conv1"].item()
    objective = objective_of(net, gamma={"conv1": bracket, "pool1": 0.0}, schedule=schedule)

    def step(x: Tensor, y: Tensor, progress: Tensor) -> tuple[Tensor, Tensor]:
        loss = objective(net(x), y, progress=progress)
        return loss.total, loss.active["conv1"]

    compiled = torch.compile(step, backend=counter, fullgraph=True)
    gates = set()
    for scale in (1.0, 3.0, 0.01, 1.0):  # larger inputs lift the bracket above gamma
        for progress in (0.0, 0.3, 0.6, 1.0):
            t = torch.tensor(progress)
            total, active = compiled(scale * x, y, t)
            expected = objective(net(scale * x), y, progress=progress)
            torch.testing.assert_close(total, expected.total, atol=1e-5, rtol=1e-5)
            assert active == expected.active["conv1"]
            gates.add((bool(active), progress))
    assert {active for active, _ in gates} == {True, False}
    assert counter.frame_count == 1


KINDS: dict[str, tuple[Callable[[], nn.Module], list[str], Tensor]] = {
    "maps": (ConvNet, ["conv1", "pool1"], images()),
    "channels last": (ConvNet, ["conv1", "pool1"], images().to(memory_format=torch.channels_last)),
    "maps that no pooling divides": (ConvNet, ["conv1", "conv2"], torch.randn(4, 2, 11, 9)),
    "tokens": (TokenNet, ["layers.0", "layers.1"], torch.randn(4, 7, 8)),
    "vectors": (mlp, ["1", "3"], torch.randn(4, 6)),
}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind not in ("maps", "tokens"))) for kind in KINDS]
)
def test_training_by_the_defaults_is_compiled_once_and_learns_the_same(kind: str) -> None:
    build, taps, x = KINDS[kind]
    net, counter = supervise(build().eval(), at=taps, num_classes=CLASSES, example=x), CompileCounterWithBackend(AOT)
    twin, y = copy.deepcopy(net), labels()
    objective, slow = Objective(net), Objective(twin)
    compiled = torch.compile(lambda t: objective(net(x), y, progress=t).total, backend=counter, fullgraph=True)
    for step in range(4):
        t = torch.tensor(step / 4)
        losses = compiled(t), slow(twin(x), y, progress=t).total
        torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-6)
        for trained, total in zip((net, twin), losses, strict=True):
            trained.zero_grad()
            total.backward()
            torch.optim.SGD(trained.parameters(), lr=0.1).step()
        for (name, mine), other in zip(net.named_parameters(), twin.parameters(), strict=True):
            assert mine.grad is not None, name
            torch.testing.assert_close(mine.grad, other.grad, rtol=1e-4, atol=1e-6, msg=name)
        heads = [net.head(name).classifier.weight for name in taps]
        assert all(weight.any() for weight in heads)
    assert counter.frame_count == 1


def test_pooled_companions_compiled_for_maps_of_other_sizes() -> None:
    net = small_net()
    compiled = torch.compile(net, backend=AOT, fullgraph=True)
    for side in (8, 12, 6, 10):
        x = torch.randn(4, 2, side, side)
        torch.testing.assert_close(compiled(x).companions, net(x).companions)


@pytest.mark.parametrize(
    ("schedule", "times"),
    [
        ("linear", 2),
        pytest.param("constant", 2, marks=pytest.mark.slow),
        pytest.param("cut:0.5", 3, marks=pytest.mark.slow),
    ],
)
def test_progress_as_a_number_is_compiled_again_once_or_twice(schedule: str, times: int) -> None:
    net, counter = small_net(), CompileCounter()
    objective = objective_of(net, schedule=schedule)
    compiled = torch.compile(lambda x, y, t: objective(net(x), y, progress=t).total, backend=counter, fullgraph=True)
    x, y = images(), labels()
    for step in range(8):
        torch.testing.assert_close(compiled(x, y, step / 10), objective(net(x), y, progress=step / 10).total)
    assert counter.frame_count <= times
