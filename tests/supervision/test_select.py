"""Layers that return several things, of which a companion meets one; models that return their scores by name."""

from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from nets import CLASSES, ConvNet, images, labels, linear
from torch import Tensor, nn

from deepsup import Companion, DeepsupError, Objective, supervise

FORMS: dict[str, tuple[Any, Any]] = {
    "tuple": (lambda index, z: (index, z), 1),
    "list": (lambda index, z: [index, z], -1),
    "dict": (lambda index, z: {"index": index, "features": z}, "features"),
    "ordered": (lambda index, z: OrderedDict(index=index, features=z), "features"),
    "fields": (lambda index, z: SimpleNamespace(index=index, features=z), "features"),
}


class Parts(nn.Module):
    """Returns its features among other things, in whatever form is asked for."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.linear, self.form = nn.Linear(6, 8), FORMS[form][0]

    def forward(self, x: Tensor) -> Any:
        z = self.linear(x)
        return self.form(z.argmax(1), z)


class Net(nn.Module):
    def __init__(self, form: str, change: bool = False) -> None:
        super().__init__()
        self.parts, self.fc, self.form, self.change = Parts(form), nn.Linear(8, CLASSES), form, change

    def forward(self, x: Tensor) -> Tensor:
        output = self.parts(x)
        z = output.features if self.form == "fields" else output["features"] if "d" in self.form else output[1]
        scores: Tensor = self.fc(z.relu_() if self.change else z)
        return scores


@pytest.mark.parametrize("change", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_a_companion_meets_the_part_it_selects(form: str, change: bool) -> None:
    """Also where a later layer writes into that part."""
    model, x = Net(form, change), torch.randn(4, 6)
    if form == "fields" and change:
        net = supervise(model, at={"parts": Companion(select="features")}, num_classes=CLASSES, example=x)
        with pytest.raises(DeepsupError, match="changed in place after the tap"):
            net(x)
        return
    for example in (x, None):
        net = supervise(model, at={"parts": linear(select=FORMS[form][1])}, num_classes=CLASSES, example=example)
        out = net(x)
        torch.testing.assert_close(out.companions["parts"], net.head("parts").classifier(model.parts.linear(x)))
        Objective(net, "softmax", schedule="constant")(out, labels()).total.backward()
        assert model.parts.linear.weight.grad is not None
        net.strip()


@pytest.mark.parametrize(
    ("form", "select", "message"),
    [
        ("tuple", None, r"layer 'parts' returns a tuple .*; expected one tensor; choose a part.*Companion\(select=0\)"),
        ("dict", None, r"returns a dict \{'index': Tensor \[4\] of .*, 'features': .*\}.*Companion\(select='index'\)"),
        ("fields", None, r"returns SimpleNamespace; expected one tensor; choose a part of it, Companion\(select="),
        ("tuple", 2, r"layer 'parts' returns a tuple .*, which has no part 2; expected the index or the key"),
        ("tuple", "features", r"which has no part 'features'"),
        ("dict", 1, r"which has no part 1"),
        ("dict", "feature", r"which has no part 'feature'"),
        ("fields", 0, r"returns SimpleNamespace, which has no part 0"),
        ("tuple", 0, r"layer 'parts' returns Tensor \[4\] of torch\.int64 for a batch of 4; expected a floating-point"),
    ],
)
@pytest.mark.parametrize("lazy", [False, True])
def test_a_part_that_cannot_be(form: str, select: Any, message: str, lazy: bool) -> None:
    model, x = Net(form), torch.randn(4, 6)
    companions = {"parts": Companion(select=select)}
    with pytest.raises(DeepsupError, match=message) as caught:
        supervise(model, at=companions, num_classes=CLASSES, example=None if lazy else x)(x)
    assert "\n" not in str(caught.value)
    assert not model.parts._forward_hooks


def test_a_part_of_one_tensor() -> None:
    """An index into a tensor would take the first image of the batch."""
    with pytest.raises(DeepsupError, match=r"layer 'conv1' returns one tensor \[1, 4, 8, 8\].*leave select= out"):
        supervise(ConvNet(), at={"conv1": Companion(select=0)}, num_classes=CLASSES, example=images(1))


class Both(nn.Module):
    """Ends in a layer that returns the scores beside the features they were made of."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.ModuleDict({"fc": nn.Linear(6, CLASSES)})
        self.last.forward = lambda x: (x * 2, self.last["fc"](x))  # type: ignore[method-assign]

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.last(x)[1]
        return scores


def test_the_selected_part_may_not_be_the_output() -> None:
    with pytest.raises(DeepsupError, match="layer 'last' returns the output itself"):
        supervise(Both(), at={"last": Companion(select=1)}, num_classes=CLASSES, example=torch.zeros(2, 6))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm1, self.lstm2 = nn.LSTM(5, 8, batch_first=True), nn.LSTM(8, 8, batch_first=True)
        self.fc = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        z, _ = self.lstm1(x)
        z, _ = self.lstm2(z)
        scores: Tensor = self.fc(z[:, -1])
        return scores


def test_an_lstm() -> None:
    model, x = Recurrent(), torch.randn(4, 7, 5)
    net = supervise(model, at={"lstm1": linear("avg", select=0)}, num_classes=CLASSES, example=x)
    expected = net.head("lstm1").classifier(model.lstm1(x)[0].mean(1))
    torch.testing.assert_close(net(x).companions["lstm1"], expected)


@pytest.mark.parametrize("select", [True, 1.5, (0,), ["a"]])
def test_bad_selections(select: Any) -> None:
    with pytest.raises(DeepsupError, match=r"select=.*; expected the index or the key of a part"):
        Companion(select=select)


class Named(ConvNet):
    def __init__(self, form: type) -> None:
        super().__init__()
        self.form = form

    def forward(self, images: Tensor) -> Any:
        return self.form(logits=super().forward(images), loss=None)


@pytest.mark.parametrize("form", [dict, OrderedDict, SimpleNamespace])
def test_models_that_return_their_scores_by_name(form: type) -> None:
    model = Named(form).eval()
    net = supervise(model, at=["conv1"], num_classes=CLASSES, example=images(1))
    x = images()
    assert torch.equal(net(x).scores, ConvNet.forward(model, x))


@pytest.mark.parametrize("output", [{"scores": 1}, {"logits": None}, {}])
def test_models_without_logits(output: Any) -> None:
    class Odd(ConvNet):
        def forward(self, _images: Tensor) -> Any:
            return output

    with pytest.raises(DeepsupError, match=r"Odd returns a dict .*; expected scores \[B,3\].* as 'logits'; wrap"):
        supervise(Odd(), at=["conv1"], num_classes=CLASSES, example=images(1))


def test_selected_parts_and_named_scores_in_a_compiled_net() -> None:
    torch._dynamo.reset()
    x = torch.randn(4, 6)
    for form in ("tuple", "dict"):
        net = supervise(Net(form), at={"parts": linear(select=FORMS[form][1])}, num_classes=CLASSES, example=x)
        compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x).companions["parts"], net(x).companions["parts"])
    net = supervise(Named(dict).eval(), at=["conv1"], num_classes=CLASSES, example=images(1))
    given = images()
    torch.testing.assert_close(torch.compile(net, backend="aot_eager", fullgraph=True)(given).scores, net(given).scores)
