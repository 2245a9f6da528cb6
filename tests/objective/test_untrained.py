"""Companions left out of the optimizer are noticed, once; nothing else is mistaken for it."""

import copy
import pickle
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from nets import CLASSES, LEARNED, ConvNet, images, labels
from torch import Tensor, nn

from deepsup import DeeplySupervised, Objective, supervise
from deepsup.objective._untrained import STEPS

SETTINGS: dict[str, Any] = {"loss": "softmax", "alpha": 0.3, "schedule": "constant", "norms": False}
LEFT_OUT = r"trained the model for 5 steps but not its companions at conv1, conv2; expected .*net\.parameters\(\)"


def small_net(**settings: Any) -> DeeplySupervised:
    return supervise(ConvNet(), at=["conv1", "conv2"], num_classes=CLASSES, example=images(1), **settings)


def train(
    net: nn.Module,
    parameters: Iterator[nn.Parameter],
    make: Callable[..., Any] = torch.optim.SGD,
    objective: Objective | None = None,
    accumulate: int = 1,
    steps: int = 3 * STEPS,
) -> int:
    """Train as users do; return how often the objective warned."""
    optimizer = make(list(parameters), lr=0.01)
    objective = objective or Objective(net, **SETTINGS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(steps):
            optimizer.zero_grad()
            for _ in range(accumulate):
                objective(net(images()), labels()).total.backward()
            optimizer.step()
            with torch.no_grad():
                objective(net(images()), labels())
    assert all("net.parameters()" in str(each.message) for each in caught)
    assert all(each.category is UserWarning and each.filename == __file__ for each in caught)
    return len(caught)


def step(objective: Objective, parameters: Iterable[nn.Parameter], times: int) -> None:
    """Train as others do: put all gradients to None, those of the companions too."""
    optimizer = torch.optim.SGD(parameters, lr=0.01)
    for _ in range(times):
        objective.net.zero_grad(set_to_none=True)
        objective(objective.net(images()), labels()).total.backward()
        optimizer.step()


def test_the_warning_says_what_to_do() -> None:
    net = small_net()
    objective = Objective(net, **SETTINGS)
    step(objective, net.trunk.parameters(), STEPS)
    with pytest.warns(UserWarning, match=LEFT_OUT):
        objective(net(images()), labels())


def fused(parameters: list[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=lr, fused=True)


def foreach(parameters: list[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=lr, foreach=True)


def old_fashioned(parameters: list[nn.Parameter], lr: float) -> Any:
    """An optimizer that writes into .data, which autograd does not count."""

    class Plain(torch.optim.Optimizer):
        def step(self) -> None:  # type: ignore[override]
            for p in self.param_groups[0]["params"]:
                p.data.sub_(lr * p.grad)

    return Plain(parameters, {})


def mixed(parameters: list[nn.Parameter], lr: float) -> Any:
    """The model by an optimizer whose steps are counted, the companions by one whose steps are not."""

    class Two:
        def __init__(self) -> None:
            self.both = [torch.optim.SGD(parameters[:-4], lr=lr), fused(parameters[-4:], lr)]

        def zero_grad(self) -> None:
            for each in self.both:
                each.zero_grad()

        def step(self) -> None:
            for each in self.both:
                each.step()

    return Two()


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW, foreach])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_companions_left_out_of_the_optimizer(make: Callable[..., Any], accumulate: int) -> None:
    net = small_net()
    assert train(net, net.trunk.parameters(), make, accumulate=accumulate) == 1
    assert train(net, net.trunk.parameters(), make) == 1  # a new objective tells it again


def test_one_companion_left_out() -> None:
    net = small_net()
    given = [*net.trunk.parameters(), *net.head("conv1").parameters()]
    objective = Objective(net, **SETTINGS)
    with pytest.warns(UserWarning, match=r"not its companions at conv2;"):
        step(objective, given, STEPS + 1)


def test_gradients_put_to_none_in_the_whole_net() -> None:
    net = small_net()
    with pytest.warns(UserWarning, match="not its companions"):
        step(Objective(net, **SETTINGS), net.trunk.parameters(), STEPS + 1)


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW, foreach, fused, old_fashioned, mixed])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_no_false_alarm_by_any_optimizer(make: Callable[..., Any], accumulate: int) -> None:
    net = small_net()
    assert train(net, net.parameters(), make, accumulate=accumulate) == 0


@pytest.mark.parametrize("settings", [{"alpha": 0.0}, {"gamma": 1e6}, {"alpha": {"conv1": 0.0, "conv2": 1.0}}])
def test_no_false_alarm_where_companions_have_no_gradient(settings: dict[str, Any]) -> None:
    net = small_net()
    before = [p.detach().clone() for p in net.head("conv1").parameters()]
    assert train(net, net.parameters(), objective=Objective(net, **(SETTINGS | settings))) == 0
    assert all(torch.equal(p, old) for p, old in zip(net.head("conv1").parameters(), before, strict=True))


def test_no_false_alarm_with_frozen_parts() -> None:
    net = small_net()
    net.heads.requires_grad_(False)
    assert train(net, net.trunk.parameters()) == 0
    net = small_net()
    net.trunk.requires_grad_(False)
    assert train(net, net.heads.parameters()) == 0


def test_no_false_alarm_where_one_companion_is_trained_alone() -> None:
    """A phase of greedy training: only the gradient of one companion's term is asked for."""
    net = small_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    objective = Objective(net, **SETTINGS)
    for _ in range(3 * STEPS):
        optimizer.zero_grad()
        objective(net(images()), labels()).companions["conv1"].backward()
        optimizer.step()


def test_no_alarm_without_steps_or_without_gradients() -> None:
    net = small_net()
    objective = Objective(net, **SETTINGS)
    for _ in range(3 * STEPS):
        objective(net(images()), labels()).total.backward()
    for _ in range(3 * STEPS):
        with torch.no_grad():
            net.trunk.conv1.weight.add_(0.1)
            objective(net(images()), labels())


def test_companions_sized_on_the_first_forward() -> None:
    net = supervise(ConvNet(), at=["conv1", "conv2"], num_classes=CLASSES)
    assert train(net, net.parameters()) == 0
    net = supervise(ConvNet(), at=["conv1", "conv2"], num_classes=CLASSES)
    assert train(net, net.trunk.parameters()) == 1


def test_a_net_that_is_cast_in_the_middle() -> None:
    net = small_net()
    objective = Objective(net, **SETTINGS)
    step(objective, net.trunk.parameters(), 2)
    net.double()
    total = objective(net(images(dtype=torch.float64)), labels()).total
    assert total.dtype == torch.float64


@pytest.fixture
def one_process() -> Iterator[None]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize(("whole", "warnings_"), [(True, 0), (False, 1)])
def test_distributed_training(whole: bool, warnings_: int) -> None:
    net = small_net()
    parallel = nn.parallel.DistributedDataParallel(net)
    objective = Objective(parallel, **SETTINGS)
    assert train(parallel, (net if whole else net.trunk).parameters(), objective=objective) == warnings_


def test_compiled_steps_are_left_alone() -> None:
    torch._dynamo.reset()
    net = small_net()
    objective = Objective(net, **SETTINGS)
    optimizer = torch.optim.SGD(net.trunk.parameters(), lr=0.01)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return objective(net(x), y).total

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    for _ in range(2 * STEPS):
        compiled(images(), labels()).backward()
        optimizer.step()


def test_objectives_can_be_copied_and_pickled_in_the_middle() -> None:
    net = small_net()
    objective = Objective(net, **SETTINGS)
    train(net, net.trunk.parameters(), objective=objective, steps=2)
    for twin in (copy.deepcopy(objective), pickle.loads(pickle.dumps(objective))):
        assert twin(twin.net(images()), labels()).total.isfinite()


def test_function_transforms_still_work() -> None:
    net = small_net(companion=LEARNED).eval()
    x, y = images(), labels()
    objective = Objective(net, **SETTINGS)
    weights = dict(net.named_parameters())

    def total(given: dict[str, Tensor]) -> Tensor:
        return objective(torch.func.functional_call(net, given, (x,)), y).total

    gradients = torch.func.grad(total)(weights)
    total(weights).backward()
    torch.testing.assert_close(gradients["trunk.conv1.weight"], net.trunk.conv1.weight.grad)
