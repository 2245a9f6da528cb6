"""A layer that runs several times has a companion per call, or one for all; a recurrent layer one per time step."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from nets import objective_of
from token_nets import Loop, Steps
from torch import Tensor, nn
from torch.nn import functional as F

from deepsup import Companion, DeepsupError, Objective, supervise

VECTORS = torch.randn(5, 6, generator=torch.Generator().manual_seed(3))
LABELS = torch.tensor([0, 1, 2, 3, 0])
SIGNALS = torch.randn(5, 7, 6, generator=torch.Generator().manual_seed(4))


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: each.grad for name, each in model.named_parameters() if each.grad is not None}


@pytest.mark.parametrize("join", ["bounded", "sum"])
@pytest.mark.parametrize("shared", [False, True])
def test_companions_per_call_equal_an_unrolled_model(shared: bool, join: Any) -> None:
    companion = Companion(shared=shared, join=join)
    looped = supervise(Loop(), "block", num_classes=4, example=VECTORS, companion=companion)
    unrolled = supervise(Loop(unrolled=True), "calls.*", num_classes=4, example=VECTORS, companion=Companion(join=join))
    assert looped.taps == ("block#1", "block#2", "block#3")
    assert len([*looped.heads.children()]) == (1 if shared else 3)
    for call, place in enumerate(looped.taps):
        unrolled.head(f"calls.{call}").load_state_dict(looped.head(place).state_dict())
    out, other = looped(VECTORS), unrolled(VECTORS)
    assert all(map(torch.equal, out.companions.values(), other.companions.values()))
    objective_of(looped)(out, LABELS).total.backward()
    objective_of(unrolled)(other, LABELS).total.backward()
    ours, theirs = gradients(looped.trunk), gradients(unrolled.trunk)
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert torch.equal(ours[name], theirs[name])
    if shared:
        weights = [gradients(unrolled.head(name))["classifier.bias"] for name in unrolled.taps]
        torch.testing.assert_close(gradients(looped.head("block#1"))["classifier.bias"], sum(weights))


def test_one_call_of_several() -> None:
    net = supervise(Loop(), ["block#2"], num_classes=4)  # also without an example
    model = net.trunk
    expected = model.block(torch.tanh(model.block(model.enter(VECTORS))))
    out = net(VECTORS)
    assert torch.equal(out.companions["block#2"], net.head("block#2")(expected))
    assert torch.equal(net.strip(keep="block#2")(VECTORS), out.companions["block#2"])


def test_more_or_fewer_calls_than_before() -> None:
    net = supervise(Loop(), "block#*", num_classes=4, example=VECTORS)
    net.trunk.times = 4
    with pytest.raises(DeepsupError, match="layer 'block' ran 4 times; expected 3, as on the first batch"):
        net(VECTORS)
    net.trunk.times = 3
    assert len(net(VECTORS).companions) == 3


@pytest.mark.parametrize(
    ("at", "example", "message"),
    [
        ("block#7", VECTORS, "layer 'block' ran 3 times, the tap is 'block#7'"),
        ("block#*", None, r"at='block#\*' without example="),
        (["block", "block#2"], VECTORS, "at names 'block#2' more than once"),
        ("blok#2", VECTORS, "no layer 'blok#2' in Loop; did you mean 'block'"),
    ],
)
def test_calls_that_are_not_there(at: Any, example: Any, message: str) -> None:
    model = Loop()
    with pytest.raises(DeepsupError, match=message):
        supervise(model, at, num_classes=4, example=example)
    assert not any(layer._forward_hooks for layer in model.modules())


def test_a_looped_net_is_copied_saved_compiled_and_stripped(tmp_path: Path) -> None:
    model = Loop()
    plain = copy.deepcopy(model)
    net = supervise(model, "block", num_classes=4, example=VECTORS)
    twin = copy.deepcopy(net)
    assert all(map(torch.equal, twin(VECTORS).companions.values(), net(VECTORS).companions.values()))
    twin.load_state_dict(net.state_dict())
    compiled: Any = torch.compile(net, backend="eager", fullgraph=True)
    assert torch.equal(compiled(VECTORS).companions["block#3"], net(VECTORS).companions["block#3"])
    with pytest.raises(DeepsupError, match="the companion at 'block#1' is on one call of several"):
        net.save_pretrained(tmp_path / "net")
    stripped = net.strip()
    assert stripped is model
    assert list(stripped.state_dict()) == list(plain.state_dict())
    assert torch.equal(stripped(VECTORS), plain(VECTORS))
    assert not any(layer._forward_hooks for layer in model.modules())


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("batch_first", [True, False])
def test_time_steps_of_a_recurrent_layer(kind: type[nn.RNNBase], batch_first: bool) -> None:
    net = supervise(Steps(kind, batch_first), ["rnn#3", "rnn#7"], num_classes=4, example=SIGNALS)
    out = net(SIGNALS)
    states = net.trunk.rnn(SIGNALS if batch_first else SIGNALS.movedim(1, 0))[0]
    for step in (3, 7):
        expected = states[:, step - 1] if batch_first else states[step - 1]
        assert torch.equal(out.companions[f"rnn#{step}"], net.head(f"rnn#{step}")(expected))
    objective_of(net)(out, LABELS).total.backward()
    assert torch.equal(net.strip(keep="rnn#3")(SIGNALS), out.companions["rnn#3"])
    with pytest.raises(DeepsupError, match="the sequence has 5 time steps, the tap is 'rnn#7'; expected at least 7"):
        net(SIGNALS[:, :5])


def test_one_companion_for_all_time_steps() -> None:
    """Target replication: the mean loss of all steps, through one classifier."""
    companion = Companion(shared=True, join="sum", rate=1.0)
    net = supervise(Steps(), "rnn#*", num_classes=4, example=SIGNALS, companion=companion)
    assert net.taps == tuple(f"rnn#{step}" for step in range(1, 8))
    loss = Objective(net, alpha=0.5, schedule="constant")(net(SIGNALS), LABELS)
    loss.total.backward()
    ours = gradients(net.trunk)
    twin = copy.deepcopy(net.trunk)
    twin.zero_grad()
    states = twin.rnn(SIGNALS)[0]
    head = net.head("rnn#1").classifier
    expected = F.cross_entropy(twin.out(states[:, -1]), LABELS)
    for step in range(7):
        expected = expected + 0.5 * F.cross_entropy(head(states[:, step]), LABELS)
    expected.backward()
    torch.testing.assert_close(loss.total, expected)
    for name, gradient in gradients(twin).items():
        torch.testing.assert_close(ours[name], gradient)


def test_calls_share_one_companion_of_the_same_settings() -> None:
    model = Loop()
    for other in (Companion(shared=True, detach=True), Companion(shared=True, head="output")):
        at = {"block#1": Companion(shared=True), "block#2": other}
        with pytest.raises(
            DeepsupError, match=r"'block#2' and an earlier call of 'block' share .* differ in (detach|head)"
        ):
            supervise(model, at, num_classes=4, example=VECTORS)
    assert not any(layer._forward_hooks for layer in model.modules())
