"""Heads on maps in any memory order: scores and gradients are those of flattening first, under every transform."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from nets import linear
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from deepsup import Companion, Objective, create_network, supervise
from deepsup.supervision import _slow_linear
from deepsup.supervision._companions import Head

# torch's own forward mode
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
CHANNELS_LAST, PLAIN = torch.channels_last, torch.contiguous_format
COMPANIONS = {
    "paper": linear("none"), "avg": linear("avg"), "grid": linear(4), "scaled": linear("none", length=8.0)
}  # fmt: skip


@pytest.fixture(autouse=True)
def every_map_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of the memory is kept for large maps only; here also for those of the tests."""
    monkeypatch.setattr(_slow_linear, "LARGE", 0)


@pytest.mark.parametrize("pool", ["none", "avg", 2])
def test_small_maps_are_flattened_as_they_always_were(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the digit, whatever their order in memory."""
    monkeypatch.undo()
    features = a_map(CHANNELS_LAST)
    assert features[0].numel() < _slow_linear.LARGE
    head = head_for(features, linear(pool))
    flat = {"none": lambda x: x, "avg": lambda x: x.mean((2, 3)), 2: lambda x: F.adaptive_avg_pool2d(x, (2, 2))}[pool]
    expected = F.linear(flat(features).flatten(1), head.classifier.weight, head.classifier.bias)
    assert torch.equal(head(features), expected)


def head_for(features: Tensor, companion: Companion) -> Head:
    head = Head("tap", companion, 5).to(features.dtype)
    head.size(features.detach())
    return head


def a_map(order: torch.memory_format, batch: int = 11, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(batch, 6, 4, 3, dtype=dtype).to(memory_format=order).requires_grad_()


def slowly(head: Head, features: Tensor) -> Tensor:
    """The definition: everything contiguous, pooled, flattened, scaled, and multiplied."""
    flat = features.contiguous()
    if head.companion.pool == "avg":
        flat = flat.flatten(2).mean(2)
    elif head.companion.pool != "none":
        flat = F.adaptive_avg_pool2d(flat, head.grid)
    flat = flat.reshape(len(features), -1)
    if head.companion.length is not None:
        norm = flat.square().sum(1, keepdim=True).sqrt()
        flat = head.companion.length * flat / (norm * norm.detach()).sqrt()  # half of the gradient of the norm
    return flat @ head.classifier.weight.t() + head.classifier.bias


def gradients(scores: Tensor, features: Tensor, head: Head) -> tuple[Tensor, ...]:
    weighed = torch.linspace(-1, 2, scores.numel(), dtype=scores.dtype).view_as(scores)
    return torch.autograd.grad((scores * weighed).sum(), [features, *head.parameters()])


@pytest.mark.parametrize("order", [PLAIN, CHANNELS_LAST])
@pytest.mark.parametrize("companion", COMPANIONS.values(), ids=COMPANIONS.keys())
def test_value_and_gradients_are_those_of_flattening(order: torch.memory_format, companion: Companion) -> None:
    features = a_map(order)
    head = head_for(features, companion)
    scores, slow = head(features), slowly(head, features)
    torch.testing.assert_close(scores, slow, rtol=1e-12, atol=1e-12)
    found, expected = gradients(scores, features, head), gradients(slow, features, head)
    if companion.pool != "avg":
        assert found[0].stride() == features.stride()  # else the trunk's backward would bring it into order first
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("order", [PLAIN, CHANNELS_LAST])
@pytest.mark.parametrize("companion", COMPANIONS.values(), ids=COMPANIONS.keys())
def test_gradients_of_gradients(order: torch.memory_format, companion: Companion) -> None:
    features = a_map(order, batch=2)
    head = head_for(features, companion)
    if companion.length is None:
        assert torch.autograd.gradcheck(head, (features,), check_batched_grad=True, check_forward_ad=True)
        assert torch.autograd.gradgradcheck(head, (features,))
    else:  # finite differences would see the whole gradient of the norm
        twice = []
        for scores in (head(features), slowly(head, features)):
            (once,) = torch.autograd.grad(scores.square().sum(), [features], create_graph=True)
            twice.append(torch.autograd.grad(once.square().sum(), [features])[0])
        torch.testing.assert_close(*twice, rtol=1e-10, atol=1e-10)
    weights = [each.detach().requires_grad_() for each in head.parameters()]

    def of_weights(weight: Tensor, bias: Tensor) -> Tensor:
        return torch.func.functional_call(head, {"classifier.weight": weight, "classifier.bias": bias}, (features,))

    assert torch.autograd.gradcheck(of_weights, weights, check_batched_grad=True)


def lose_strides(saved: Tensor) -> Tensor:
    return saved.contiguous().clone()


HOOKS: dict[str, Callable[[], Any]] = {
    "save_on_cpu": lambda: torch.autograd.graph.save_on_cpu(pin_memory=True),
    "contiguous": lambda: torch.autograd.graph.saved_tensors_hooks(lose_strides, lambda packed: packed),
    "bytes": lambda: torch.autograd.graph.saved_tensors_hooks(pickle.dumps, pickle.loads),
}


@pytest.mark.parametrize("hooks", HOOKS)
@pytest.mark.parametrize("order", [PLAIN, CHANNELS_LAST])
@pytest.mark.parametrize("companion", COMPANIONS.values(), ids=COMPANIONS.keys())
def test_gradients_under_hooks_that_lose_strides(order: torch.memory_format, companion: Companion, hooks: str) -> None:
    features = torch.randn(8, 192, 16, 16).to(memory_format=order).requires_grad_()
    head = head_for(features, companion)
    expected = gradients(slowly(head, features), features, head)
    with HOOKS[hooks]():
        scores = head(features)
    for mine, other in zip(gradients(scores, features, head), expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(3, 7, 4), (3, 2, 3, 4, 2), (3, 4), (3, 5, 1, 1), (3, 1, 4, 4)], ids=str)
def test_other_shapes_in_every_order(shape: tuple[int, ...]) -> None:
    contiguous = torch.randn(shape, requires_grad=True)
    head = head_for(contiguous, Companion.paper())
    last = contiguous.movedim(1, -1).contiguous().movedim(-1, 1)
    for features in (contiguous, last, last[:, :, :1].expand_as(last) if len(shape) > 2 else last):
        expected = F.linear(features.contiguous().flatten(1), head.classifier.weight, head.classifier.bias)
        torch.testing.assert_close(head(features), expected)


@pytest.mark.parametrize("order", [PLAIN, CHANNELS_LAST])
def test_hidden_layers_and_every_pooling(order: torch.memory_format) -> None:
    features = a_map(order)
    for pool in ("none", "avg", "max", 2):
        head = head_for(features, Companion(pool=pool, hidden=(4,), init="torch"))  # type: ignore[arg-type]
        torch.testing.assert_close(head(features), head(features.contiguous()), rtol=1e-12, atol=1e-12)


def test_hooks_and_parametrizations_of_the_classifier_count() -> None:
    features = a_map(CHANNELS_LAST)
    head = head_for(features, Companion.paper())
    assert isinstance(head.classifier, nn.Linear)
    called: list[int] = []
    handle = head.classifier.register_forward_hook(lambda *_: called.append(1))
    head(features)
    assert called == [1]
    handle.remove()
    parametrizations.weight_norm(head.classifier)
    expected = features.flatten(1) @ head.classifier.weight.t() + head.classifier.bias
    torch.testing.assert_close(head(features), expected)


@pytest.mark.parametrize("companion", COMPANIONS.values(), ids=COMPANIONS.keys())
def test_function_transforms(companion: Companion) -> None:
    features = a_map(CHANNELS_LAST).detach()
    head = head_for(features, companion)
    gradient = torch.func.grad(lambda x: head(x).sum())(features)
    torch.testing.assert_close(gradient, torch.func.jacrev(lambda x: head(x).sum())(features))
    slow = torch.autograd.functional.jacobian(lambda x: slowly(head, x), features)
    torch.testing.assert_close(torch.autograd.functional.jacobian(head, features, vectorize=True), slow)
    direction = torch.randn_like(features)
    _, tangent = torch.func.jvp(head, (features,), (direction,))
    torch.testing.assert_close(tangent, torch.tensordot(slow, direction, dims=4))
    each = torch.func.vmap(lambda x: head(x[None])[0])(features)
    torch.testing.assert_close(each, head(features))


def test_copies_and_pickles() -> None:
    features = a_map(CHANNELS_LAST)
    head, unsized = head_for(features, Companion.paper()), Head("tap", Companion.paper(), 5).double()
    for other in (copy.deepcopy(head), pickle.loads(pickle.dumps(head)), copy.deepcopy(unsized)):
        other.size(features.detach())
        torch.testing.assert_close(other(features), slowly(other, features))


def test_a_frozen_trunk_gets_no_gradient() -> None:
    features = a_map(CHANNELS_LAST).detach()
    head = head_for(features, Companion.paper())
    head(features).sum().backward()
    assert head.classifier.weight.grad is not None
    head.requires_grad_(False)
    features.requires_grad_()
    (gradient,) = torch.autograd.grad(head(features).sum(), [features])
    assert gradient.stride() == features.stride()


@pytest.mark.parametrize("companion", COMPANIONS.values(), ids=COMPANIONS.keys())
def test_the_trunk_gets_its_gradient_in_its_own_order(companion: Companion) -> None:
    """The sum of both gradients, the trunk's and the companion's: else the convolution would copy it."""
    images = torch.randn(4, 3, 32, 32).to(memory_format=CHANNELS_LAST).requires_grad_()
    network = create_network("nin-cifar10").to(memory_format=CHANNELS_LAST)  # type: ignore[call-overload]
    net = supervise(network, at=["conv1"], num_classes=10, example=images, companion=companion)
    strides: list[tuple[int, ...]] = []
    handle = network.conv1.register_full_backward_pre_hook(lambda _, given: strides.append(given[0].stride()))
    Objective(net, "softmax", schedule="constant")(net(images), torch.arange(4)).total.backward()
    handle.remove()
    assert strides == [torch.empty(4, 192, 32, 32, memory_format=CHANNELS_LAST).stride()]
