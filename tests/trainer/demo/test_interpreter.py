"""The operators of the page, run by node, against torch: nets made of many operators, and every registered network."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import deepsup
from deepsup import Companion, create_network, list_networks, supervise
from deepsup.errors import ExportError
from deepsup.trainer.demo._browser_graph import browser_graph, missing_form, weights_of
from deepsup.trainer.demo._number_packing import (
    BITS,
    FLOAT,
    fewest_bits,
    packed_changes,
    packed_weights,
    restored_weight,
    steps_between,
)
from deepsup.trainer.preprocess import Normalizer
from deepsup.trainer.preprocess._steps import GCN, LCN, Standardize
from deepsup.trainer.runs._run import Preprocess

NODE = shutil.which("node")
SCRIPT = Path(deepsup.__file__).parent / "trainer" / "demo" / "interpreter.js"
RUN = """
const Interpreter = require(process.argv[1]);
const given = JSON.parse(require("fs").readFileSync(0));
Interpreter.unpacked(given.entries, given.text).then((weights) => {
  const run = Interpreter.compiled(given.graph, weights);
  console.log(JSON.stringify(given.images.map((pixels) => {
    const values = run(Interpreter.tensor([1, ...given.shape], Float32Array.from(pixels)));
    return given.wanted.map((name) => Array.from(values.get(name).data));
  })));
});
"""
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")


def in_javascript(net: nn.Module, preprocess: Preprocess, images: Tensor) -> list[list[list[float]]]:
    """Return the scores of each companion and of the output, for each image."""
    made = browser_graph(net, preprocess)
    named = weights_of(net)
    entries, text = packed_weights({name: named[name] for name in made.weights} | made.fixed, {})
    given = {
        "graph": made.graph, "entries": entries, "text": text, "shape": list(images.shape[1:]),
        "images": [image.flatten().tolist() for image in images],
        "wanted": [*(layer.scores for layer in made.layers), "scores"],
    }  # fmt: skip
    assert NODE is not None
    done = subprocess.run(
        [NODE, "-e", RUN, str(SCRIPT)], input=json.dumps(given), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer: list[list[list[float]]] = json.loads(done.stdout)
    return answer


def check(net: nn.Module, shape: tuple[int, ...], normalize: Normalizer | None = None) -> None:
    """Compare all scores of some images with torch's."""
    normalize = normalize or Normalizer((), ())
    images = torch.randint(0, 256, (3, *shape), dtype=torch.uint8)
    net.eval()
    with torch.no_grad():
        out = net(normalize(images))
    expected = [*out.companions.values(), out.scores]
    found = in_javascript(net, Preprocess(normalize, shape), images)
    for place, scores in enumerate(expected):
        np.testing.assert_allclose(np.array([row[place] for row in found]), scores, atol=1e-3, rtol=1e-4)


class Maps(nn.Module):
    """Convolutions, poolings, normalizations and activations of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.grouped = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=4)
        self.depthwise = nn.Conv2d(8, 8, (3, 1), groups=8)
        self.group_norm, self.instance_norm = nn.GroupNorm(2, 8), nn.InstanceNorm2d(8, affine=True)
        self.prelu = nn.PReLU(8)
        self.fc = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.hardswish(self.norm(self.first(x)))
        x = F.silu(self.grouped(x)) + F.elu(x) * 0.5
        x = self.group_norm(F.max_pool2d(x, 3, 2, ceil_mode=True))
        x = F.gelu(self.depthwise(x), approximate="tanh")
        x = self.prelu(self.instance_norm(x)) - F.leaky_relu(x, 0.1)
        a, b = F.pad(x, (1, 2, 0, 1), value=0.3).chunk(2, 1)
        x = torch.cat([F.softplus(a), torch.sigmoid(b), torch.tanh(a).abs().sqrt(), F.relu6(b * 9)], 1)
        x = F.avg_pool2d(x, 2, padding=1, count_include_pad=True) + F.avg_pool2d(
            x, 2, padding=1, count_include_pad=False
        )
        scores: Tensor = self.fc(F.adaptive_avg_pool2d(x[:, :, ::2], 1).flatten(1))
        return scores


class Tokens(nn.Module):
    """Patches as a sequence: attention, layer normalization, matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 12, 4, stride=4)
        self.attention = nn.MultiheadAttention(12, 3, batch_first=True)
        self.norm = nn.LayerNorm(12)
        self.block = nn.Sequential(nn.Linear(12, 20), nn.GELU(), nn.Linear(20, 12))
        self.fc = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        x = x + self.block(self.norm(x))
        scores: Tensor = self.fc(x.mean(1)).log_softmax(1)
        return scores


def supervised(model: nn.Module, shape: tuple[int, ...], at: Any, **settings: Any) -> nn.Module:
    """A net in whose companions and norm layers every number is random."""
    net = supervise(model, at, num_classes=4, example=torch.rand(2, *shape), **settings)
    for name, value in net.state_dict().items():
        if value.is_floating_point():
            value.copy_(torch.rand_like(value) + 0.5 if "var" in name else torch.randn_like(value) * 0.3)
    return net


@needs_node
@pytest.mark.parametrize(
    ("model", "at", "companion"),
    [
        (Maps, ["norm", "group_norm"], Companion(pool=3, length=8.0)),
        (Tokens, ["block"], Companion(pool="avg", hidden=(6,))),
    ],
)
def test_many_operators(model: Callable[[], nn.Module], at: list[str], companion: Companion) -> None:
    shape = (3, 20, 20)
    net = supervised(model(), shape, at, companion=companion)
    steps = (Standardize(), GCN(), LCN(size=5))
    arrays: tuple[dict[str, Tensor], ...] = (
        {"mean": torch.rand(3), "deviation": torch.rand(3) + 0.5}, {}, {}
    )  # fmt: skip
    check(net, shape, Normalizer(steps, arrays))


@needs_node
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in list_networks() if name != "unet-small"])
def test_every_registered_network(name: str) -> None:
    network = create_network(name)
    shape = (network.in_channels, network.image_size, network.image_size)
    check(
        supervise(network, at=network.taps, num_classes=100 if "100" in name else 10, example=torch.rand(2, *shape)),
        shape,
    )


def test_an_operator_that_the_page_lacks() -> None:
    class Sine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.fc = nn.Conv2d(3, 4, 3), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.fc(self.conv(x).sin().mean((2, 3)))
            return scores

    net = supervise(Sine(), ["conv"], num_classes=4, example=torch.rand(2, 3, 8, 8))
    with pytest.raises(ExportError, match="the page has no operator Sin, which Sine uses; expected one of: Abs, Add"):
        browser_graph(net, Preprocess(Normalizer((), ()), (3, 8, 8)))


@pytest.mark.parametrize(
    ("operator", "at", "missing"),
    [
        ("Pad", {"mode": "reflect"}, "Pad with mode=reflect"),
        ("Conv", {"auto_pad": "SAME_UPPER"}, "Conv with auto_pad=SAME_UPPER"),
        ("GatherND", {"batch_dims": 1}, "GatherND with batch_dims=1"),
        ("Conv", {"kernel_shape": [3, 3, 3]}, "Conv over 3 axes"),
        ("AveragePool", {"kernel_shape": [5, 1, 1]}, None),
        ("AveragePool", {"kernel_shape": [5, 2, 1]}, "AveragePool over 3 axes"),
    ],
)
def test_a_form_that_the_page_lacks(operator: str, at: dict[str, Any], missing: str | None) -> None:
    assert missing_form(operator, at) == missing


def unpacked_by_node(packed: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Return what the page makes of weights, and of the changes from them to earlier ones, one after the other."""
    script = """const Interpreter = require(process.argv[1]); const given = JSON.parse(require("fs").readFileSync(0));
    (async () => {
      let found;
      for (const { entries, text } of given) found = await Interpreter.unpacked(entries, text, found);
      const values = Object.entries(found).map(([name, tensor]) => [name, Array.from(tensor.data)]);
      console.log(JSON.stringify(Object.fromEntries(values)));
    })();"""
    assert NODE is not None
    done = subprocess.run(
        [NODE, "-e", script, str(SCRIPT)], input=json.dumps(packed), capture_output=True, text=True, check=True
    )
    return {name: np.float32(values) for name, values in json.loads(done.stdout).items()}


@needs_node
@pytest.mark.parametrize("bits", [*BITS, FLOAT])
def test_packed_numbers_come_back(bits: int) -> None:
    weights = {"small": torch.randn(7), "large": torch.randn(30, 101), "none": torch.zeros(50, 50)}
    weights["large"][3] *= 1000
    entries, text = packed_weights(weights, dict.fromkeys(weights, bits))
    found = unpacked_by_node([{"entries": entries, "text": text}])
    for name, weight in weights.items():
        expected = restored_weight(weight, bits)
        np.testing.assert_array_equal(found[name].reshape(weight.shape), expected.numpy())
        most = weight.reshape(len(weight), -1).abs().amax(1) / (2 ** (min(bits, 24) - 1) - 1)
        assert ((expected - weight).reshape(len(weight), -1).abs().amax(1) <= 0.55 * most).all()


@needs_node
def test_changes_between_epochs_come_back() -> None:
    """Each epoch has the changes from what the page knows of the next one: half a step is the most that they differ."""
    last = {"large": torch.randn(30, 101), "small": torch.randn(7), "same": torch.ones(3)}
    epochs = [
        {name: value + scale * torch.randn_like(value) * (name != "same") for name, value in last.items()}
        for scale in (0.01, 0.1, 40.0)
    ]
    entries, text = packed_weights(last, {"large": 9})
    packed = [{"entries": entries, "text": text}]
    later = {name: restored_weight(value, {"large": 9}.get(name, FLOAT)) for name, value in last.items()}
    for weights in epochs:
        steps = steps_between(weights, later, {"large": 6}, 0.5)
        assert steps["same"] == 1.0
        entries, text, later = packed_changes(weights, later, steps)
        packed.append({"entries": entries, "text": text})
        assert "same" not in entries
        for name, value in weights.items():
            assert float((later[name] - value).abs().max()) <= 0.501 * steps[name]
    for name, values in unpacked_by_node(packed).items():
        np.testing.assert_array_equal(values.reshape(later[name].shape), later[name].numpy())


def test_the_fewest_bits() -> None:
    """Each weight gets as few as its effect on the scores allows."""
    weights = {"strong": torch.randn(60, 60), "weak": torch.randn(60, 60) / 1000, "bias": torch.randn(60)}

    def difference(bits: Any) -> float:
        return sum(
            float((restored_weight(weight, bits.get(name, FLOAT)) - weight).abs().sum())
            for name, weight in weights.items()
        )

    found = fewest_bits(weights, difference, 1.0)
    assert found.keys() == {"strong", "weak"}
    assert found["weak"] < found["strong"] < FLOAT
    assert difference(found) <= 1.0
    assert difference({**found, "strong": found["strong"] - 1}) > 0.5
    assert set(fewest_bits(weights, difference, 0.0).values()) == {FLOAT}
