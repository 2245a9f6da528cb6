"""Companions that are the model's own last layers, modules of the user's own, and companions that only watch."""

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from nets import CLASSES, ConvNet, images, labels, objective_of
from token_nets import WIDTH, WORDS, Around, LanguageModel, Loop, words
from torch import Tensor, nn

from deepsup import Companion, DeepsupError, EarlyExit, Objective, supervise


def test_a_shared_head_is_the_models_own_tail_to_the_bit() -> None:
    model = LanguageModel()
    plain = copy.deepcopy(model)
    net = supervise(model, "h.*", num_classes=WORDS, example=words(), companion=Companion(head="output", join="sum"))
    assert [*net.heads.parameters()] == []
    assert list(net.state_dict()) == [f"trunk.{name}" for name in plain.state_dict()]
    out = net(words())
    x, expected = plain.embedding(words()), []
    for block in plain.h:
        x = block(x)
        expected.append(plain.unembed(plain.norm(x)))
    assert all(map(torch.equal, out.companions.values(), expected))
    assert torch.equal(out.companions["h.3"], out.scores)
    loss = Objective(net, alpha=0.25, schedule="constant", shift=1)(out, words())
    loss.total.backward()
    wanted = torch.nn.functional.cross_entropy
    total = wanted(expected[-1][:, :-1].flatten(0, 1), words()[:, 1:].flatten())
    for each in expected:
        total = total + 0.25 * wanted(each[:, :-1].flatten(0, 1), words()[:, 1:].flatten())
    total.backward()
    torch.testing.assert_close(loss.total, total)
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
    assert list(net.strip().state_dict()) == list(plain.state_dict())
    assert not any(layer._forward_hooks for layer in model.modules())


class Pooled(nn.Module):
    """Blocks on tokens -> norm -> what ``how`` makes of the tokens -> dropout -> scores [B,K]."""

    def __init__(self, how: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.h = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(3))
        self.norm, self.drop, self.fc = nn.LayerNorm(WIDTH), nn.Dropout(0.5), nn.Linear(WIDTH, CLASSES)
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        for block in self.h:
            x = block(x)
        return self.tail(x)

    def tail(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        if self.how == "scaled":
            x = x.mean(1) * WIDTH**-0.5
        else:
            x = {"first": x[:, 0], "last": x[:, -1], "mean": x.mean(1), "tanh": x[:, 0].tanh()}[self.how]
        scores: Tensor = self.fc(self.drop(x))
        return scores


@pytest.mark.parametrize("how", ["first", "last", "mean"])
def test_what_the_model_does_between_its_last_layers_is_found(how: str) -> None:
    model = Pooled(how).eval()
    x = torch.randn(4, 5, WIDTH)
    net = supervise(model, "h.*", num_classes=CLASSES, example=x, companion=Companion(head="output"))
    out = net(x)
    for name, features in net.features(x).items():
        assert torch.equal(out.companions[name], model.tail(features))
    assert "drop" in str(net.head("h.0"))


def test_exits_through_the_models_own_last_layers() -> None:
    model, x = Pooled("first").eval(), torch.randn(4, 5, WIDTH)
    net = supervise(model, "h.[01]", num_classes=CLASSES, example=x, companion=Companion(head="output")).eval()
    out = net(x)
    torch.testing.assert_close(EarlyExit(net, [0.0, 1.0])(x).scores, out.companions["h.0"])
    torch.testing.assert_close(EarlyExit(net, [1.0, 1.0])(x).scores, out.scores)


def test_a_tail_that_cannot_be_found_or_does_not_fit() -> None:
    x = torch.randn(4, 5, WIDTH)
    for how in ("tanh", "scaled"):  # two things at once
        with pytest.raises(DeepsupError, match=r"head='output' at 'h\.0'.*leads back .* 'drop' only.*head=\['norm'"):
            supervise(Pooled(how), ["h.0"], num_classes=CLASSES, example=x, companion=Companion(head="output"))
    model = ConvNet()
    with pytest.raises(DeepsupError, match=r"layer 'conv1' returns .*own last layers .*cannot take it.*head='linear'"):
        supervise(model, ["conv1"], num_classes=CLASSES, example=images(2), companion=Companion(head="output"))
    assert not any(layer._forward_hooks for layer in model.modules())


def test_last_layers_by_name() -> None:
    model = LanguageModel()
    net = supervise(model, [0, 1], num_classes=WORDS, example=words(), companion=Companion(head=["norm", "unembed"]))
    out = net(words())
    assert torch.equal(out.companions["h.1"], model.unembed(model.norm(net.features(words())["h.1"])))
    with pytest.raises(DeepsupError, match="head names 'nrm', which is no layer of LanguageModel; did you mean 'norm'"):
        supervise(net.strip(), [0], num_classes=WORDS, example=words(), companion=Companion(head=["nrm"]))
    with pytest.raises(DeepsupError, match=r"own last layers \(h.0.up\) make Tensor \[.*\] of it"):
        supervise(model, [0], num_classes=WORDS, example=words(), companion=Companion(head=["h.0.up"]))


def test_many_classes_have_no_heads_of_their_own() -> None:
    model = LanguageModel(classes=5000)
    net = supervise(model, num_classes=5000, example=words())
    assert [*net.heads.parameters()] == []
    assert "norm, unembed" in net.summary()
    assert "more than 4,096 classes" in net.summary()
    linear = supervise(net.strip(), num_classes=5000, example=words(), companion=Companion(head="linear"))
    assert linear.head("h.1").classifier.weight.shape == (5000, WIDTH)


def test_the_summary_has_weights_and_measured_memory() -> None:
    net = supervise(LanguageModel(8), "h.*", num_classes=WORDS, example=words(), companion=Companion(head="output"))
    objective = Objective(net, alpha="linear")
    text = net.summary()
    assert len(text.splitlines()) <= 10
    assert "h.0  9x16, through the model's own norm, unembed: no parameters" in text
    assert "... 2 more" in text
    assert f"loss weight {objective.alpha['h.7']:g}" in text
    # per sample: the scores and their log-probabilities; the norm's input and output
    scores, vectors = 2 * 9 * WORDS * 4, 9 * WIDTH * 4
    assert scores + 2 * vectors <= net.head("h.0").memory <= scores + 2 * vectors + 2 * 9 * 4 + 64


def test_a_shared_head_in_a_loop() -> None:
    x = torch.randn(5, 6)
    net = supervise(Loop(), "block", num_classes=4, example=x, companion=Companion(head=["norm", "out"]))
    out, model = net(x), net.trunk
    assert torch.equal(out.companions["block#1"], model.out(model.norm(model.block(model.enter(x)))))


@pytest.mark.parametrize("head", ["linear", "output", "own"])
def test_a_detached_companion_leaves_the_gradient_of_the_model_as_it_is(head: str) -> None:
    model = LanguageModel()
    plain = copy.deepcopy(model)
    made: Any = (lambda shape, classes: nn.Linear(shape[-1], classes)) if head == "own" else head
    net = supervise(model, "h.*", num_classes=WORDS, example=words(), companion=Companion(head=made, detach=True))
    Objective(net, shift=1, schedule="constant")(net(words()), words()).total.backward()
    scores = plain(words())["logits"][:, :-1]
    torch.nn.functional.cross_entropy(scores.flatten(0, 1), words()[:, 1:].flatten()).backward()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)  # type: ignore[arg-type] # every one has a gradient
    assert all(each.grad is not None for each in net.heads.parameters())


def convolutional(shape: tuple[int, ...], classes: int) -> nn.Module:
    """A head as in DKS or BYOT."""
    return nn.Sequential(
        nn.Conv2d(shape[0], 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(8, classes),
    )  # fmt: skip


def test_a_head_of_ones_own(tmp_path: Path) -> None:
    net = supervise(ConvNet(), "auto", num_classes=CLASSES, example=images(2), companion=Companion(head=convolutional))
    tap = net.taps[0]
    x = images()
    objective_of(net)(net(x), labels()).total.backward()
    assert all(each.grad is not None for each in net.heads.parameters())
    net.eval()
    assert torch.equal(net(x).companions[tap], net.head(tap).module(net.features(x)[tap]))
    assert torch.equal(net.strip(keep=tap)(x), net(x).companions[tap])
    with pytest.raises(DeepsupError, match="has head=, detach= or shared=, which save_pretrained"):
        net.save_pretrained(tmp_path / "net")


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (lambda shape, classes: None, r"head of 'conv1' made a NoneType; expected a module"),  # noqa: ARG005
        (lambda shape, classes: nn.Linear(7, classes), "head of 'conv1' fails on features"),  # noqa: ARG005
        (lambda shape, classes: nn.Identity(), r"head of 'conv1' returns Tensor .*; expected scores like"),  # noqa: ARG005
    ],
)  # fmt: skip
def test_a_head_of_ones_own_that_does_not_fit(head: Any, message: str) -> None:
    model = ConvNet()
    with pytest.raises(DeepsupError, match=message):
        supervise(model, ["conv1"], num_classes=CLASSES, example=images(2), companion=Companion(head=head))
    assert not any(layer._forward_hooks for layer in model.modules())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"head": "ouput"}, "head='ouput' is no callable and no list of the model's layers; did you mean 'output'"),
        ({"head": nn.Linear(2, 2)}, "head is a Linear; expected a callable that makes one"),
        ({"head": 3}, "head=3 is no callable and no list of the model's layers; expected one of: auto, linear, output"),
        ({"detach": 1}, "detach=1; expected True or False"),
        ({"shared": "yes"}, "shared='yes'; expected True or False"),
    ],
)
def test_settings_that_do_not_exist(settings: Any, message: str) -> None:
    with pytest.raises(DeepsupError, match=message):
        Companion(**settings)


@pytest.mark.parametrize("head", ["linear", "output"])
def test_a_supervised_language_model_is_copied_and_compiled(head: Any) -> None:
    net = supervise(LanguageModel(), "auto", num_classes=WORDS, example=words(), companion=Companion(head=head)).eval()
    twin, out = copy.deepcopy(net), net(words())
    assert all(map(torch.equal, twin(words()).companions.values(), out.companions.values()))
    with torch.no_grad():  # the copy has its own layers
        next(iter(net.trunk.unembed.parameters())).zero_()
    assert torch.equal(twin(words()).companions["h.1"], out.companions["h.1"])
    compiled: Any = torch.compile(twin, backend="eager", fullgraph=True)
    assert torch.equal(compiled(words()).companions["h.1"], out.companions["h.1"])


class Classified(nn.Module):
    """Blocks -> a classifier of several layers, some of which have a state, -> scores; perhaps scaled."""

    def __init__(self, first: nn.Module, scale: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.h = nn.ModuleList(Around(nn.Linear(WIDTH, WIDTH)) for _ in range(3))
        self.classifier = nn.Sequential(first, nn.Linear(WIDTH, CLASSES))
        self.scale = nn.Parameter(torch.tensor(1.0)) if scale else None

    def forward(self, x: Tensor) -> Tensor:
        for block in self.h:
            x = block(x)
        scores: Tensor = self.classifier(x)
        return scores if self.scale is None else scores * self.scale.exp()


@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize("first", [nn.BatchNorm1d(WIDTH), nn.Dropout(0.5)])
def test_a_classifier_of_several_layers_runs_once_and_keeps_its_state(first: nn.Module, detach: bool) -> None:
    model = Classified(copy.deepcopy(first))
    bare, x = copy.deepcopy(model), torch.randn(8, WIDTH)
    companion = Companion(head="output", detach=detach)
    net = supervise(model, "h.[01]", num_classes=CLASSES, example=x, companion=companion)
    assert str(net.head("h.0").tail) == "classifier"  # not its first layer and then all of it
    for _ in range(2):
        torch.manual_seed(1)
        out = net(x)
        torch.manual_seed(1)
        assert torch.equal(out.scores, bare(x))
        for name, value in bare.state_dict().items():
            assert torch.equal(model.state_dict()[name], value)  # the batch norm took note of the output's batch alone
    if isinstance(first, nn.BatchNorm1d):
        assert torch.equal(out.companions["h.1"], model.classifier(net.features(x)["h.1"]))
    net.eval(), bare.eval()
    assert torch.equal(net(x).companions["h.1"], model.classifier(net.features(x)["h.1"]))


def test_a_factor_that_training_changes_is_not_taken_for_a_number() -> None:
    model = Classified(nn.LayerNorm(WIDTH), scale=True)
    with pytest.raises(DeepsupError, match=r"scales what its last layers give, perhaps by its parameter 'scale'"):
        supervise(model, "h.0", num_classes=CLASSES, example=torch.randn(2, WIDTH), companion=Companion(head="output"))
    assert not any(layer._forward_hooks for layer in model.modules())


def test_one_token_or_tokens_alike_do_not_tell_which_one_the_model_takes() -> None:
    companion, x = Companion(head="output"), torch.randn(4, 5, WIDTH)
    net = supervise(Pooled("last").eval(), "h.0", num_classes=CLASSES, example=x[:, :1], companion=companion)
    assert torch.equal(net(x[:, :1]).companions["h.0"], net.trunk.tail(net.features(x[:, :1])["h.0"]))
    with pytest.raises(DeepsupError, match=r"built on sequences of one token and gets \[4, 5, 16\]"):
        net(x)
    alike = torch.zeros(4, 5, WIDTH)
    with pytest.raises(DeepsupError, match=r"all tokens of .* are alike on the example"):
        supervise(Pooled("last"), "h.0", num_classes=CLASSES, example=alike, companion=companion)


class Whole(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros(len(x), CLASSES, dtype=torch.long)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(
    ("head", "message"),
    [
        (lambda shape: nn.Linear(4, 4), r"head of 'conv1' fails \(TypeError: .*; expected a callable that makes"),  # noqa: ARG005
        (lambda shape, classes: Whole(), r"returns Tensor \[2, 3\] of torch.int64"),  # noqa: ARG005
    ],
)  # fmt: skip
def test_a_factory_that_fails_leaves_nothing_behind(head: Any, message: str, lazy: bool) -> None:
    model, x = ConvNet(), images(2)
    with pytest.raises(DeepsupError, match=message):
        supervise(model, ["conv1"], num_classes=CLASSES, example=None if lazy else x, companion=Companion(head=head))(x)
    assert not any(layer._forward_hooks for layer in model.modules())


def test_the_last_token_that_is_no_padding_is_no_fixed_token() -> None:
    model: Any = Pooled("last")
    x = torch.randn(4, 5, WIDTH)
    companion = Companion(head="output")
    model.config = SimpleNamespace(pad_token_id=None)
    assert supervise(model, "h.0", num_classes=CLASSES, example=x, companion=companion).strip() is model
    model.config.pad_token_id = 0
    with pytest.raises(DeepsupError, match="Pooled takes the last token that is not pad_token_id=0"):
        supervise(model, "h.0", num_classes=CLASSES, example=x, companion=companion)
    assert not any(layer._forward_hooks for layer in model.modules())
