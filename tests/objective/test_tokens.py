"""Losses of tokens against torch's own, weights of the layers by name, and the model's own loss at the output."""

from typing import Any

import pytest
import torch
from token_nets import WORDS, LanguageModel, words
from torch import Tensor, nn
from torch.nn import functional as F

from deepsup import Companion, DeepsupError, Objective, supervise
from deepsup.objective import find_loss


def net_of(**settings: Any) -> Any:
    return supervise(LanguageModel(), "h.[0-2]", num_classes=WORDS, example=words(), **settings)


def labels_with_gaps() -> Tensor:
    labels = words(seed=1)
    labels[0, 3:] = -100
    labels[2, 1] = -100
    return labels


@pytest.mark.parametrize("shift", [0, 1, 2])
@pytest.mark.parametrize("ignored", [False, True])
def test_token_losses_equal_torchs_cross_entropy(shift: int, ignored: bool) -> None:
    net, labels = net_of(), labels_with_gaps() if ignored else words(seed=1)
    out = net(words())
    assert out.scores.shape == out.companions["h.0"].shape == (*labels.shape, WORDS)
    loss = Objective(net, alpha=0.5, schedule="constant", shift=shift)(out, labels)
    kept = slice(None, -shift if shift else None)

    def expected(scores: Tensor) -> Tensor:
        return F.cross_entropy(scores[:, kept].flatten(0, 1), labels[:, shift:].flatten(), ignore_index=-100)

    torch.testing.assert_close(loss.output_loss, expected(out.scores))
    for name, scores in out.companions.items():
        torch.testing.assert_close(loss.companion_losses[name], expected(scores))
    loss.total.backward()
    ours = [each.grad.clone() for each in net.parameters()]
    net.zero_grad()
    joined = net(words())
    (expected(joined.scores) + 0.5 * sum(map(expected, joined.companions.values()))).backward()
    for one, parameter in zip(ours, net.parameters(), strict=True):
        torch.testing.assert_close(one, parameter.grad)


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge_ovr", "softmax"])
def test_every_token_is_a_sample(loss: str) -> None:
    net, labels, weights = net_of(), words(seed=1), torch.rand(words().shape)
    out = net(words())
    found = Objective(net, loss, schedule="constant")(out, labels, weights=weights)
    for name, scores in out.companions.items():
        each = find_loss(loss)(scores.flatten(0, 1), labels.flatten())
        torch.testing.assert_close(found.companion_losses[name], (weights.flatten() * each).sum() / weights.sum())


def test_weights_per_sample_soft_labels_and_ones_own_loss() -> None:
    net, labels = net_of(), words(seed=1)
    out = net(words())
    shares = torch.tensor([1.0, 0.0, 2.0])
    loss = Objective(net, schedule="constant")(out, labels, weights=shares)
    each = F.cross_entropy(out.scores.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape).mean(1)
    torch.testing.assert_close(loss.output_loss, (each * shares).sum() / shares.sum())
    soft = F.one_hot(labels, WORDS).float()
    same = Objective(net, schedule="constant", shift=1)
    torch.testing.assert_close(same(out, soft).output_loss, same(out, labels).output_loss)
    own = Objective(net, F.cross_entropy, schedule="constant")
    torch.testing.assert_close(own(out, labels).output_loss, F.cross_entropy(out.scores.movedim(-1, 1), labels))
    assert Objective(net, schedule="constant")(out, torch.full_like(labels, -100)).total == 0


@pytest.mark.parametrize(
    ("labels", "settings", "message"),
    [
        (torch.full((3, 9), WORDS), {}, "labels run from 23 to 23; expected 0 to 22 for 23 classes"),
        (
            torch.zeros(3, 8).long(),
            {},
            r"labels have shape \[3, 8\], scores \[3, 9, 23\]; expected one label per token",
        ),
        (torch.zeros(3).long(), {}, r"labels have shape \[3\]"),
        (torch.zeros(3, 9, 1).long(), {}, r"labels have shape \[3, 9, 1\].*token: \[3, 9\]; use labels\.squeeze\(-1\)"),
        ([1, 2], {}, "labels are list; expected a tensor"),
        (torch.zeros(3, 9).long(), {"weights": torch.ones(9)}, r"weights are \[9\]; expected one number per sample"),
        (torch.zeros(3, 9).long(), {"shift": 9}, "shift=9 with sequences of 9 tokens"),
        (torch.zeros(3, 9), {}, "labels are torch.float32"),
    ],
)
def test_labels_of_tokens_that_do_not_fit(labels: Any, settings: dict[str, Any], message: str) -> None:
    net = net_of()
    objective = Objective(net, schedule="constant", shift=settings.pop("shift", 0))
    with pytest.raises(DeepsupError, match=message):
        objective(net(words()), labels, **settings)


def test_layouts_are_found_or_said_and_never_guessed() -> None:
    square = words(length=WORDS)  # as many tokens as classes
    assert supervise(LanguageModel(), "h.0", num_classes=WORDS, example=square).tokens  # a linear layer made them
    first = supervise(LanguageModel(first=True), "norm", num_classes=WORDS, example=words(), layout="channels_first")
    assert not first.tokens
    with pytest.raises(DeepsupError, match=r"may be \[B,K,L\] or \[B,L,K\]"):  # a transposed view of a linear layer's
        supervise(LanguageModel(first=True), "norm", num_classes=WORDS, example=square)

    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.weight = nn.Linear(WORDS, WORDS), nn.Parameter(torch.randn(WORDS, WORDS))

        def forward(self, x: Tensor) -> Tensor:
            return self.body(x) @ self.weight

    x = torch.randn(2, WORDS, WORDS)
    with pytest.raises(DeepsupError, match=r"may be \[B,K,L\] or \[B,L,K\]; .*layout='channels_last'"):
        supervise(Bare(), "body", num_classes=WORDS, example=x)
    net = supervise(Bare(), "body", num_classes=WORDS, example=x, layout="channels_last")
    assert net.tokens
    assert net(x).companions["body"].shape == (2, WORDS, WORDS)
    with pytest.raises(DeepsupError, match="layout='last'; expected one of"):
        supervise(Bare(), "body", num_classes=WORDS, layout="last")  # type: ignore[arg-type]
    with pytest.raises(DeepsupError, match=r"layer 'short' returns \[2, 7, 5\] in a model that scores every token"):
        supervise(Short(), "short", num_classes=4, example=torch.randn(2, 9, 6))


class Short(nn.Module):
    """An encoder of other tokens than those that are scored."""

    def __init__(self) -> None:
        super().__init__()
        self.short, self.out = nn.Linear(6, 5), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.out(x + self.short(x[:, :7]).mean())
        return scores


@pytest.mark.parametrize(
    ("alpha", "weights"),
    [("equal", [0.1, 0.1, 0.1]), ("linear", [0.05, 0.1, 0.15]), ("last-1", [0, 0, 0.1]), ("last-2", [0, 0.1, 0.1])],
)
def test_weights_of_the_layers_by_name(alpha: str, weights: list[float]) -> None:
    for order in ("h.0 h.1 h.2", "h.2 h.0 h.1"):  # by depth, not by the order of the names
        net = supervise(LanguageModel(), order.split(), num_classes=WORDS, example=words())
        given = Objective(net, alpha=alpha).alpha
        assert [given[f"h.{place}"] for place in range(3)] == pytest.approx(weights)


def test_a_random_companion_per_step() -> None:
    net = net_of()
    objective = Objective(net, alpha="random", steps=300, schedule="constant")
    out, counts = net(words()), dict.fromkeys(net.taps, 0)
    for _ in range(300):
        loss = objective(out, words())
        (chosen,) = [name for name, active in loss.active.items() if active]
        counts[chosen] += 1
        torch.testing.assert_close(loss.companions[chosen], 3 * 0.1 * loss.companion_losses[chosen])
        assert all(each == 0 for name, each in loss.companions.items() if name != chosen)
    assert all(70 < count < 130 for count in counts.values())
    loss.total.backward()
    assert all(each.grad is not None for each in net.parameters())  # DDP sees every one
    again = Objective(net, alpha="random", schedule="constant")
    same = [again(out, words(), progress=given).active for given in (0.25, torch.tensor(0.25))]
    assert same[0] == same[1]
    with pytest.raises(DeepsupError, match="alpha='random' draws a companion per step from the progress"):
        again(out, words())
    with pytest.raises(DeepsupError, match="alpha='rising' is no number and no rule; expected one of: equal, linear"):
        Objective(net, alpha="rising")
    with pytest.raises(DeepsupError, match="alpha='last-0'"):
        Objective(net, alpha="last-0")


def test_the_models_own_loss_at_the_output() -> None:
    net = net_of()
    assert net(words()).raw is None

    def own(raw: Any, labels: Tensor) -> Tensor:
        return raw["hidden"].square().mean() + F.cross_entropy(raw["logits"].movedim(-1, 1), labels)

    before = net(words())
    objective = Objective(net, alpha=0.5, schedule="constant", output_loss=own)
    loss = objective(net(words()), words())
    plain = LanguageModel()
    torch.testing.assert_close(loss.output, own(plain(words()), words()))
    assert loss.total == loss.output + sum(loss.companions.values())
    with pytest.raises(DeepsupError, match="output_loss gets what the model returned, and this output has not kept it"):
        objective(before, words())
    with pytest.raises(DeepsupError, match=r"output_loss returns shape \[3, 9\]; expected the mean"):
        Objective(net, output_loss=lambda raw, _: raw["hidden"][..., 0], schedule="constant")(net(words()), words())
    with pytest.raises(DeepsupError, match="output_loss='mean'; expected a callable"):
        Objective(net, output_loss="mean")  # type: ignore[arg-type]


def test_shift_needs_tokens() -> None:
    net = supervise(nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3)), ["0"], num_classes=3, example=torch.randn(2, 4))
    with pytest.raises(DeepsupError, match=r"shift=1 with scores \[2, 3\]; expected those of tokens"):
        Objective(net, shift=1, schedule="constant")(net(torch.randn(2, 4)), torch.tensor([0, 1]))
    with pytest.raises(DeepsupError, match="shift=-1; expected a number of tokens"):
        Objective(net, shift=-1)


def test_random_weights_compile() -> None:
    net = net_of(companion=Companion(head="output"))
    objective = Objective(net, alpha="random", schedule="constant", shift=1)

    def step(x: Tensor, progress: Tensor) -> Tensor:
        return objective(net(x), x, progress=progress).total

    compiled = torch.compile(step, backend="eager", fullgraph=True)
    for given in (0.1, 0.6):
        torch.testing.assert_close(compiled(words(), torch.tensor(given)), step(words(), torch.tensor(given)))


def test_the_models_own_loss_is_no_whole_number() -> None:
    net = net_of()
    with pytest.raises(DeepsupError, match=r"output_loss returns torch\.int64; expected floating-point numbers"):
        Objective(net, output_loss=lambda _, labels: labels.sum(), schedule="constant")(net(words()), words())


def test_one_class_of_tokens_is_refused_as_for_images() -> None:
    net = supervise(LanguageModel(classes=1), "h.0", num_classes=1, example=words())
    with pytest.raises(DeepsupError, match="the loss softmax with num_classes=1; expected at least two classes"):
        Objective(net, schedule="constant")(net(words()), torch.zeros(words().shape).long())
