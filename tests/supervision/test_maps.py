"""Heads on maps: the same scores and gradients as flattening first, in the map's own memory order."""

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from deepsup import Companion, Objective, create_network, supervise
from deepsup.supervision import companions, maps
from deepsup.supervision.companions import Head

CHANNELS_LAST, PLAIN = torch.channels_last, torch.contiguous_format


@pytest.fixture(autouse=True)
def any_size_counts_as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "LARGE", 0)


def head_for(features: Tensor, companion: Companion) -> Head:
    head = Head("tap", companion, 5).to(features.dtype)
    head.size(features.detach())
    return head


def a_map(order: torch.memory_format, batch: int = 11, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(batch, 6, 4, 3, dtype=dtype).to(memory_format=order).requires_grad_()


@pytest.mark.parametrize("order", [PLAIN, CHANNELS_LAST])
@pytest.mark.parametrize("pool", ["none", "avg"])
def test_value_and_gradients_are_those_of_flattening(order, pool, monkeypatch):
    features = a_map(order)
    head = head_for(features, Companion(pool=pool))
    weighed = torch.randn(11, 5, dtype=torch.float64)

    def both() -> tuple[Tensor, ...]:
        scores = head(features)
        return scores, *torch.autograd.grad((scores * weighed).sum(), [features, *head.parameters()])

    found = both()
    assert found[1].stride() == features.stride()  # else the trunk's backward would bring it into order first
    monkeypatch.setattr(companions, "stays_in_place", lambda _: False)
    for mine, slow in zip(found, both(), strict=True):
        torch.testing.assert_close(mine, slow, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("order", [PLAIN, CHANNELS_LAST])
@pytest.mark.parametrize("pool", ["none", "avg"])
def test_gradients_of_gradients(order, pool):
    features = a_map(order, batch=2)
    head = head_for(features, Companion(pool=pool))
    assert torch.autograd.gradcheck(head, (features,))
    assert torch.autograd.gradgradcheck(head, (features,))
    weights = [each.detach().requires_grad_() for each in head.parameters()]

    def of_weights(weight: Tensor, bias: Tensor) -> Tensor:
        return torch.func.functional_call(head, {"classifier.weight": weight, "classifier.bias": bias}, (features,))

    assert torch.autograd.gradcheck(of_weights, weights)


def test_a_gradient_that_someone_keeps_is_never_written_over():
    features = a_map(CHANNELS_LAST)
    head = head_for(features, Companion())
    (first,) = torch.autograd.grad(head(features).sum(), [features])
    kept = first.clone()
    (second,) = torch.autograd.grad(2 * head(features).sum(), [features])
    assert first.data_ptr() != second.data_ptr()
    torch.testing.assert_close(first, kept, rtol=0, atol=0)
    torch.testing.assert_close(second, 2 * kept)
    place = second.data_ptr()
    view = second[:1]  # also a view of it counts
    del second
    (third,) = torch.autograd.grad(head(features).sum(), [features])
    assert third.data_ptr() != place
    del first, view
    place = third.data_ptr()
    del third
    (fourth,) = torch.autograd.grad(head(features).sum(), [features])
    assert fourth.data_ptr() == place


def test_a_gated_companion_has_gradients_of_zero():
    features = a_map(CHANNELS_LAST)
    head = head_for(features, Companion())
    head(features).sum().backward()  # so that the memory kept is not zero by chance
    head.zero_grad()
    features.grad = None
    (0 * head(features)).sum().backward()
    assert not features.grad.any()
    assert all(weight.grad is not None and not weight.grad.any() for weight in head.parameters())


@pytest.mark.parametrize("shape", [(3, 7, 4), (3, 2, 3, 4, 2), (3, 4)], ids=str)
def test_other_shapes(shape):
    features = torch.randn(shape, requires_grad=True)
    head = head_for(features, Companion())
    expected = features.flatten(1) @ head.classifier.weight.t() + head.classifier.bias
    torch.testing.assert_close(head(features), expected)


def test_what_lies_in_no_order_takes_the_slow_way():
    features = torch.randn(3, 4, 5, 6).transpose(1, 3)
    assert not maps.stays_in_place(features)
    head = head_for(features, Companion())
    torch.testing.assert_close(head(features), head.classifier(features.flatten(1)))


def test_hooks_and_parametrizations_of_the_classifier_still_count():
    features = a_map(CHANNELS_LAST)
    head = head_for(features, Companion())
    called = []
    handle = head.classifier.register_forward_hook(lambda *_: called.append(1))
    head(features)
    assert called == [1]
    handle.remove()
    parametrizations.weight_norm(head.classifier)
    torch.testing.assert_close(head(features), head.classifier(features.flatten(1)))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # torch's own forward mode
def test_function_transforms_still_work():
    features = a_map(CHANNELS_LAST).detach()
    head = head_for(features, Companion())
    gradient = torch.func.grad(lambda x: head(x).sum())(features)
    torch.testing.assert_close(gradient, torch.func.jacrev(lambda x: head(x).sum())(features))
    _, tangent = torch.func.jvp(head, (features,), (features,))
    torch.testing.assert_close(tangent, head(features) - head.classifier.bias)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(features, features)
        assert torch.autograd.forward_ad.unpack_dual(head(dual)).tangent is not None


def test_copies_and_pickles_share_no_memory():
    features = a_map(CHANNELS_LAST)
    head = head_for(features, Companion())
    head(features).sum().backward()
    for other in (copy.deepcopy(head), pickle.loads(pickle.dumps(head))):
        assert other._scratch is not head._scratch
        torch.testing.assert_close(other(features), head(features))
    assert len(pickle.dumps(maps.Scratch())) < 200


def test_a_frozen_trunk_gets_no_gradient():
    features = a_map(CHANNELS_LAST).detach()
    head = head_for(features, Companion())
    head(features).sum().backward()
    assert head.classifier.weight.grad is not None
    head.requires_grad_(False)
    features.requires_grad_()
    (gradient,) = torch.autograd.grad(head(features).sum(), [features])
    assert gradient.stride() == features.stride()


@pytest.mark.parametrize("pool", ["none", "avg"])
def test_a_step_of_a_net_copies_no_map(pool):
    """The trunk's backward gets the sum of both gradients in its own order: no operation copies as much as a map."""
    images = torch.randn(4, 3, 32, 32).to(memory_format=CHANNELS_LAST).requires_grad_()
    network = create_network("nin-cifar10").to(memory_format=CHANNELS_LAST)
    net = supervise(network, at=["conv1"], num_classes=10, example=images, companion=Companion(pool=pool))
    strides = []
    handle = network.conv1.register_full_backward_pre_hook(lambda _, given: strides.append(given[0].stride()))
    Objective(net, norms=False)(net(images), torch.arange(4)).total.backward()
    handle.remove()
    assert strides == [torch.empty(4, 192, 32, 32, memory_format=CHANNELS_LAST).stride()]
    assert isinstance(net.strip(), nn.Module)


def test_a_small_map_is_flattened_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    features = a_map(CHANNELS_LAST)
    assert maps.stays_in_place(features)
    monkeypatch.setattr(maps, "LARGE", features[0].numel())
    assert maps.stays_in_place(features)
    monkeypatch.setattr(maps, "LARGE", features[0].numel() + 1)
    assert not maps.stays_in_place(features)
