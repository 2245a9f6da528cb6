"""Probes of a trained model: the numbers against slow computations, the model untouched, the page, what is refused."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from deepsup import Companion, probe, supervise
from deepsup.errors import DataError, DeepsupError, SupervisionError
from deepsup.insight._probe_result import kl_divergence
from deepsup.insight._probes import DECAY


class Net(nn.Module):
    """Two convolutions with BatchNorm and dropout; one part is kept in evaluation mode, as frozen layers are."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(2)
        self.conv2 = nn.Conv2d(4, 6, 3, padding=1)
        self.drop = nn.Dropout(0.5)
        self.scores = nn.Linear(6, 3)

    def forward(self, images: Tensor) -> Tensor:
        maps = self.conv2(self.pool(self.relu(self.norm(self.conv1(images)))))
        return self.scores(self.drop(torch.relu(maps).mean((2, 3))))


@pytest.fixture
def net() -> Net:
    net = Net().train()
    net.norm.eval()
    return net


@pytest.fixture
def data() -> tuple[Tensor, Tensor]:
    """Three classes by the brightness of one corner, with noise."""
    labels = torch.arange(90) % 3
    images = 0.4 * torch.randn(90, 1, 8, 8)
    images[:, 0, :4, :4] += labels[:, None, None]
    return images, labels


def hooks(model: nn.Module) -> list[int]:
    return [len(layer._forward_hooks) + len(layer._forward_pre_hooks) for layer in model.modules()]


def test_the_model_stays_as_it_is(net: Net, data: tuple[Tensor, Tensor]) -> None:
    weights = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    modes, before, random = [layer.training for layer in net.modules()], hooks(net), torch.get_rng_state()
    attributes = {name: list(vars(layer)) for name, layer in net.named_modules()}
    images = data[0].clone()
    probe(net, data=data)
    with pytest.raises(SupervisionError):
        probe(net, at=["conv9"], data=data)
    assert all(torch.equal(weights[name], tensor) for name, tensor in net.state_dict().items())
    assert modes == [layer.training for layer in net.modules()]
    assert before == hooks(net)
    assert attributes == {name: list(vars(layer)) for name, layer in net.named_modules()}
    assert all(parameter.grad is None for parameter in net.parameters())
    assert torch.equal(random, torch.get_rng_state())
    assert torch.equal(images, data[0])


def test_fitted_on_one_part_and_tested_on_the_other(net: Net, data: tuple[Tensor, Tensor]) -> None:
    """Labels without any relation to the images: a probe can learn them by heart, but not predict others."""
    labels = torch.randint(3, (90,))
    result = probe(net, at=["conv1"], data=(torch.randn(90, 1, 8, 8), labels), pool="none", target="label")
    assert result.label["conv1"]["train_error"] == 0
    assert result.errors["conv1"] > 30
    assert (result.fitted_on, len(result.measured.labels)) == (68, 22)
    own = probe(net, at=["conv1"], data=data, test=data, target="label")
    assert (own.fitted_on, len(own.measured.labels)) == (90, 90)
    assert own.label["conv1"]["train_error"] == pytest.approx(own.errors["conv1"])


def slow_features(net: Net, layer: str, images: Tensor) -> np.ndarray:
    """The output of a layer averaged to 4x4, computed with loops."""
    found: list[Tensor] = []
    handle = net.get_submodule(layer).register_forward_hook(lambda _m, _a, out: found.append(out.detach().clone()))
    modes = {each: each.training for each in net.modules()}
    with torch.no_grad():
        net.eval()(images)
    handle.remove()
    for each, mode in modes.items():
        each.training = mode
    maps = found[0]
    step = maps.shape[-1] // 4
    cells = [maps[:, :, r * step : (r + 1) * step, c * step : (c + 1) * step] for r in range(4) for c in range(4)]
    return torch.stack([cell.mean((2, 3)) for cell in cells], dim=2).flatten(1).double().numpy()


def slow_fit(features: np.ndarray, targets: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Minimize the mean cross-entropy + DECAY/2 |W|^2 with scipy, in double precision, one sample at a time."""
    scale, (_, wide), classes = 1 / np.sqrt((features**2).mean()), features.shape, targets.shape[1]

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weight, bias = flat[: classes * wide].reshape(classes, wide), flat[classes * wide :]
        loss, slope = DECAY / 2 * (weight**2).sum(), np.concatenate([DECAY * weight.ravel(), np.zeros(classes)])
        for row, target in zip(features * scale, targets, strict=True):
            scores = weight @ row + bias
            chances = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
            loss -= (target * np.log(chances)).sum() / len(features)
            error = (chances - target) / len(features)
            slope += np.concatenate([np.outer(error, row).ravel(), error])
        return loss, slope

    best = minimize(objective, np.zeros(classes * (wide + 1)), jac=True, method="L-BFGS-B", options={"maxiter": 300}).x
    weight, bias = best[: classes * wide].reshape(classes, wide), best[classes * wide :]
    return lambda given: given * scale @ weight.T + bias


def softmax(scores: np.ndarray) -> np.ndarray:
    return np.exp(scores) / np.exp(scores).sum(1, keepdims=True)


@pytest.mark.parametrize("layer", ["relu", "conv2"])
def test_against_slow_computations(layer: str, net: Net, data: tuple[Tensor, Tensor]) -> None:
    (images, labels), test = data, (data[0] + 0.1 * torch.randn_like(data[0]), data[1])
    with torch.no_grad():
        net.scores.weight.mul_(20)  # an untrained net says almost the same of all images
    result = probe(net, at=[layer], data=data, test=test)
    features, tested = slow_features(net, layer, images), slow_features(net, layer, test[0])
    with torch.no_grad():
        chances, own = (
            supervise(net, [], num_classes=3).eval()(x).scores.softmax(1).numpy() for x in (images, test[0])
        )
    fitted = slow_fit(features, np.eye(3)[labels.numpy()])
    scores = fitted(tested)
    np.testing.assert_allclose(result.scores["label"][layer].softmax(1).numpy(), softmax(scores), atol=0.02)
    assert result.errors[layer] == pytest.approx(100 * (scores.argmax(1) != test[1].numpy()).mean(), abs=2.3)
    lens = softmax(slow_fit(features, chances.astype(np.float64))(tested))
    slow = np.mean(
        [sum(p * np.log(p / q) for p, q in zip(ps, qs, strict=True)) for ps, qs in zip(own, lens, strict=True)]
    )
    assert result.divergences[layer] == pytest.approx(slow, rel=0.05, abs=1e-4)
    assert result.output[layer]["disagreement"] == pytest.approx(
        100 * (lens.argmax(1) != own.argmax(1)).mean(), abs=2.3
    )


def test_the_divergence_is_the_sum_over_classes() -> None:
    outputs, scores = torch.randn(7, 4), torch.randn(7, 4)
    total = 0.0
    for p, q in zip(outputs.double().softmax(1).tolist(), scores.double().softmax(1).tolist(), strict=True):
        total += sum(a * np.log(a / b) for a, b in zip(p, q, strict=True))
    assert kl_divergence(outputs, scores) == pytest.approx(total / 7)
    assert kl_divergence(outputs, outputs + 3) == pytest.approx(0, abs=1e-12)


def test_the_last_layer_predicts_the_output(net: Net, data: tuple[Tensor, Tensor]) -> None:
    """Dropout's output, in evaluation mode, is what the linear output layer gets: the lens finds that layer again."""
    with torch.no_grad():
        net.scores.weight.mul_(5)
    result = probe(net, at=["drop", "conv1"], data=data)
    assert result.layers == ("conv1", "drop")  # in the order of the forward pass
    assert result.divergences["drop"] < 0.01
    assert result.divergences["drop"] < result.divergences["conv1"]


def test_data_in_every_form(net: Net, data: tuple[Tensor, Tensor]) -> None:
    images, labels = data
    expected = probe(net, data=data).errors
    forms: list[Any] = [
        [images, labels],
        (images.numpy(), labels.numpy().astype(np.int32)),
        (images.double().numpy(), labels.tolist()),
        DataLoader(TensorDataset(images, labels), batch_size=32),
        [(images[:50], labels[:50]), (images[50:], labels[50:])],
        [{"images": images[:50], "labels": labels[:50]}, {"images": images[50:], "labels": labels[50:]}],
    ]
    for form in forms:
        assert probe(net, data=form).errors == expected, type(form)


def test_a_supervised_net_and_a_companion(net: Net, data: tuple[Tensor, Tensor]) -> None:
    supervised = supervise(net, at=["pool"], num_classes=3, example=data[0][:1])
    assert probe(supervised, data=data).layers == ("pool",)
    assert supervised.taps == ("pool",)
    assert len(net.pool._forward_hooks) == 1
    wide = probe(supervised.strip(), at={"pool": Companion(pool="avg", hidden=(9,))}, data=data)
    assert wide.probes["label"]["pool"].weight.shape == (3, 4)


class Vision(nn.Module):
    """A small transformer: 16 patches, three encoder layers, mean over tokens; returns an object with logits."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 16, 2, stride=2)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3)
        self.scores = nn.Linear(16, 3)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        tokens = self.encoder(self.patches(images).flatten(2).transpose(1, 2))
        return {"logits": self.scores(tokens.mean(1))}


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
def test_a_transformer(data: tuple[Tensor, Tensor]) -> None:
    model = Vision().eval()
    nested = model.encoder.use_nested_tensor
    result = probe(model, at=["encoder.layers.2", "encoder.layers.0"], data=data)
    assert result.layers == ("encoder.layers.0", "encoder.layers.2")
    assert len(probe(model, data=data).layers) >= 1
    assert model.encoder.use_nested_tensor is nested
    assert result.errors["encoder.layers.0"] < 50


def test_the_table(net: Net, data: tuple[Tensor, Tensor]) -> None:
    lines = str(probe(net, at=["conv1", "pool"], data=data)).splitlines()
    assert [line.split()[0] for line in lines] == ["layer", "conv1", "pool", "output", "fitted"]
    assert lines[0].split("  ")[0:1] == ["layer"]
    assert "KL" not in str(probe(net, at=["conv1"], data=data, target="label"))
    assert "error" not in str(probe(net, at=["conv1"], data=data, target="output"))


def test_the_page(net: Net, data: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    result = probe(net, at=["conv1", "pool"], data=data, classes=["<ant>", "bee", "cat"])
    path = result.report(tmp_path / "new" / "page")
    page = path.read_text()
    assert path.name == "report.html"
    assert "Linear probes of Net" in page
    assert "&lt;ant&gt;" in page
    assert "<ant>" not in page
    assert f"{result.errors['pool']:.2f} %" in page
    numbers = json.loads((path.parent / "probe.json").read_text())
    assert numbers["probes"]["pool"]["error"] == result.errors["pool"]
    assert (path.parent / "plots" / "divergence.png").is_file()
    for target in ("label", "output"):
        probe(net, at=["conv1"], data=data, target=target).report(tmp_path / target)
    (tmp_path / "file").touch()
    with pytest.raises(DeepsupError, match="cannot write"):
        result.report(tmp_path / "file")


def test_the_page_needs_no_torch() -> None:
    code = "import sys, deepsup.trainer.report._probe_page; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


IMAGES, LABELS = torch.randn(12, 1, 8, 8), torch.arange(12) % 3


@pytest.mark.parametrize(
    ("match", "settings"),
    [
        ("data is a NoneType; expected", {"data": None}),
        ("data is a Tensor; expected", {"data": IMAGES}),
        ("data is empty", {"data": []}),
        ("12 inputs but 11 labels", {"data": (IMAGES, LABELS[1:])}),
        ("data gives labels that are a Tensor of shape", {"data": (IMAGES, torch.rand(12))}),
        (r"a label is 3, the model has 3 scores", {"data": (IMAGES, torch.arange(12) % 4)}),
        ("a label is -1; expected", {"data": (IMAGES, LABELS - 1)}),
        ("a label is 1,000,000,000,000; expected", {"data": (IMAGES, LABELS.clamp(max=1) * 10**12)}),
        (r"Net fails on data \(Tensor \[2, 3, 8, 8\]\)", {"data": (torch.randn(12, 3, 8, 8), LABELS)}),
        ("no layer 'conv3' in Net; did you mean", {"at": ["conv3"]}),
        ("at names no layer", {"at": []}),
        ("is not a hidden layer", {"at": ["scores"]}),
        ("target='labels'; did you mean 'label'", {"target": "labels"}),
        ("test=1.5 of 12 samples", {"test": 1.5}),
        ("test=0.0 of 12 samples", {"test": 0.0}),
        ("pool='mean' is not a way", {"pool": "mean"}),
        ("2 names of classes, the model has 3", {"classes": ["a", "b"]}),
        ("scores of the model are not finite", {"data": (IMAGES * torch.nan, LABELS)}),
        ("do not fit together", {"data": [(IMAGES, LABELS), (IMAGES[:, :, :4], LABELS)]}),
    ],
)
def test_what_is_refused(match: str, settings: dict[str, Any], net: Net) -> None:
    with pytest.raises(DeepsupError, match=match) as caught:
        probe(net, **{"data": (IMAGES, LABELS), **settings})
    assert "\n" not in str(caught.value)
    assert hooks(net) == [0] * len(hooks(net))


def test_no_model() -> None:
    with pytest.raises(SupervisionError, match="model is a str; expected"):
        probe("resnet18", data=(IMAGES, LABELS))  # type: ignore[arg-type]
    with pytest.raises(SupervisionError, match="expected scores"):
        probe(nn.Sequential(nn.Conv2d(1, 3, 3)), data=(IMAGES, LABELS))
    with pytest.raises(DataError):
        probe(Net(), data=(IMAGES[:1], LABELS[:1]))
