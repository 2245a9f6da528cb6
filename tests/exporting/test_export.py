"""Exported files against the net that they were made of, run as a stranger would run them."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import onnx
import onnxruntime
import pytest
import torch
from dense_nets import dense_net, pictures
from plain_resnet import SmallResNet
from safetensors.torch import load_file
from token_nets import WORDS, LanguageModel, words
from torch import Tensor, nn

import deepsup
from deepsup import DeeplySupervised, create_network, export, list_networks, load_data, supervise
from deepsup.exporting._formats import pack_pt2
from deepsup.trainer.config import Config
from deepsup.trainer.networks import describe
from deepsup.trainer.preprocess import NORMALIZATIONS, fit, to_tensor
from deepsup.trainer.preprocess._steps import STEPS

FAMILIES = ["dropconnect-svhn", "fast", "maxout-mnist", "stochastic-pooling-mnist"]
"""The networks with layers of their own: converting to ONNX takes two seconds, so not all of them here."""


def trained(net: DeeplySupervised) -> DeeplySupervised:
    """Give the companions weights: they start at 0, which any file would reproduce."""
    for parameter in net.heads.parameters():
        nn.init.normal_(parameter, std=0.1)
    return net.eval()


@pytest.fixture(scope="module")
def images() -> Tensor:
    return to_tensor(load_data().test.images[:1000])


@pytest.fixture(scope="module")
def run(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> deepsup.Run:
    config = Config(data=str(digits), epochs=2, batch_size=30, lr=0.01, tensorboard=False, normalize="gcn")
    return deepsup.train(config, tmp_path_factory.mktemp("export") / "run")


@pytest.fixture(scope="module")
def files(run: deepsup.Run) -> dict[str, Path]:
    """The run in all formats."""
    out = run.folder / "export"
    for name in ("onnx", "pt2"):
        deepsup.export(run, out / f"model.{name}", companions=True)
    deepsup.export(run, out / "model.safetensors")
    return {name: out / f"model.{name}" for name in ("onnx", "pt2", "safetensors")}


def run_onnx(path: Path, *inputs: Tensor) -> dict[str, Tensor]:
    session = onnxruntime.InferenceSession(path)
    given = dict(zip([each.name for each in session.get_inputs()], (each.numpy() for each in inputs), strict=True))
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, map(torch.from_numpy, session.run(None, given)), strict=True))


def run_pt2(path: Path, *inputs: Tensor) -> dict[str, Tensor]:
    with torch.no_grad():
        out = torch.export.load(path).module()(*inputs)
    return {"scores": out} if isinstance(out, Tensor) else out


RUNNERS = {"onnx": run_onnx, "pt2": run_pt2}


@pytest.mark.parametrize("to", RUNNERS)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_raw_images_get_the_scores_of_the_run(
    run: deepsup.Run, files: dict[str, Path], images: Tensor, to: str, size: int
) -> None:
    with torch.no_grad():
        out = run.load()(run.preprocess(images[:size]))
    expected = {"scores": out.scores, **out.companions}
    found = RUNNERS[to](files[to], images[:size])
    assert list(found) == list(expected) == ["scores", "conv1", "conv2"]
    for name, scores in expected.items():
        torch.testing.assert_close(found[name], scores, atol=1e-5, rtol=0)
        assert torch.equal(found[name].argmax(1), scores.argmax(1))


def test_onnx_is_valid_and_names_its_batch(files: dict[str, Path]) -> None:
    model = onnx.load(files["onnx"])
    onnx.checker.check_model(model, full_check=True)
    (given,) = model.graph.input
    shape = [each.dim_param or each.dim_value for each in given.type.tensor_type.shape.dim]
    assert (given.name, given.type.tensor_type.elem_type, shape) == (
        "images",
        onnx.TensorProto.UINT8,
        ["batch", 1, 28, 28],
    )
    assert json.loads({each.key: each.value for each in model.metadata_props}["classes"]) == list("0123456789")


@pytest.mark.parametrize("to", ["onnx", "pt2"])
def test_no_path_of_this_machine_is_in_a_file(files: dict[str, Path], to: str) -> None:
    content = files[to].read_bytes()
    assert b"site-packages" not in content
    assert str(Path(deepsup.__file__).parent).encode() not in content


@pytest.mark.parametrize("to", ["onnx", "pt2"])
def test_the_code_of_a_card_runs(
    files: dict[str, Path], to: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(files[to].parent)
    card = Path(f"model.{to}.md").read_text()
    exec(re.findall(r"```python\n(.*?)```", card, re.DOTALL)[0], {})
    assert re.fullmatch(r"(tensor\()?\[\d\]\)?\n", capsys.readouterr().out)


def test_a_card_says_what_its_reader_needs(run: deepsup.Run, files: dict[str, Path]) -> None:
    card = Path(f"{files['onnx']}.md").read_text()
    assert "Trained on 240 images of `digits.npz`, 2 epochs, seed 0." in card
    for name, error in {"output": run.result["error"], **run.result["companions"]}.items():
        assert f"| {name} | {error:.2f} |" in card
    assert "| images | uint8 [N,1,28,28] |" in card
    assert "GCN(scale=55.0" in card
    assert 'network: "cnn"' in card
    assert str(run.folder.parent) not in card
    assert str(run.config.data.source) not in card, "the folder of the user's data"
    assert "do this first" in Path(f"{files['safetensors']}.md").read_text()


RECIPES = ["standardize", "gcn-zca", "gcn-lcn"]


def test_the_recipes_below_have_every_step() -> None:
    assert {step.name for recipe in RECIPES for step in NORMALIZATIONS[recipe]} == STEPS.keys()


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_normalization_works_in_the_graph(tmp_path: Path, recipe: str, images: Tensor) -> None:
    """A black and a white image have no contrast: rounding must not become noise."""
    data = load_data()
    normalize = fit(recipe, replace(data, train=data.train.take(range(200))), cache=False)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    raw = images[:20].clone()
    raw[0], raw[1] = 0, 255
    with torch.no_grad():
        expected = model(normalize(raw))
    for to, runner in RUNNERS.items():
        deepsup.export(supervise(model, at=[], num_classes=10), tmp_path / f"m.{to}", raw, preprocess=normalize)
        torch.testing.assert_close(runner(tmp_path / f"m.{to}", raw)["scores"], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("name", "to"),
    [
        *((name, "pt2") for name in FAMILIES),
        *(pytest.param(name, "onnx", marks=[pytest.mark.slow] * (name not in FAMILIES[1::2])) for name in FAMILIES),
        *(pytest.param(name, "pt2", marks=pytest.mark.slow) for name in list_networks() if name not in FAMILIES),
    ],
)
def test_every_registered_network(tmp_path: Path, name: str, to: str) -> None:
    network = create_network(name, image_size=describe(name).minimum_image_size).to(memory_format=torch.channels_last)
    shape = (network.in_channels, network.image_size, network.image_size)
    net = trained(
        supervise(network, at=list(network.taps), num_classes=network.num_classes, example=torch.zeros(1, *shape))
    )
    done = deepsup.export(net, tmp_path / f"net.{to}", torch.randn(3, *shape), companions=True)
    assert done.difference <= 1e-5
    assert len(done.outputs) == 1 + len(network.taps)


def test_a_net_of_ones_own_keeps_its_mode_hooks_and_weights(tmp_path: Path) -> None:
    """Without companions the file has the scores alone; ``layer1.0`` is no name that every reader of ONNX takes."""
    x = torch.randn(3, 3, 16, 16)
    net = supervise(SmallResNet(), at=["stem", "layer1.0"], num_classes=10, example=x[:1]).train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    done = deepsup.export(net, str(tmp_path / "net.onnx"), x[:1], companions=True)
    assert done.outputs == ("scores", "stem", "layer1_0")
    assert net.training
    assert all(layer.training for layer in net.modules())
    assert net.taps == ("stem", "layer1.0")
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    plain = deepsup.export(net, tmp_path / "net.pt2", x)
    assert plain.outputs == ("scores",)
    net.eval()
    with torch.no_grad():
        assert torch.equal(run_pt2(tmp_path / "net.pt2", x)["scores"], net(x).scores)
        torch.testing.assert_close(run_onnx(tmp_path / "net.onnx", x)["layer1_0"], net(x).companions["layer1.0"])


def test_an_output_may_have_the_name_of_a_value_inside(tmp_path: Path) -> None:
    model = nn.Sequential()
    for name, layer in {"linear": nn.Linear(4, 8), "relu": nn.ReLU(), "linear_1": nn.Linear(8, 3)}.items():
        model.add_module(name, layer)
    net = trained(supervise(model, at=["linear", "relu"], num_classes=3, example=torch.zeros(1, 4)))
    x = torch.randn(5, 4)
    deepsup.export(net, tmp_path / "net.onnx", x, companions=True)
    with torch.no_grad():
        out = net(x)
    for name, scores in {"scores": out.scores, **out.companions}.items():
        torch.testing.assert_close(run_onnx(tmp_path / "net.onnx", x)[name], scores)


class Masked(nn.Module):
    """Token numbers [B,N] and a mask [B,N] -> an output with ``logits`` [B,2], as transformers' models have them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 8)
        self.hidden = nn.Linear(8, 8)
        self.fc = nn.Linear(8, 2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        tokens = self.embed(input_ids) * attention_mask[..., None]
        return {"logits": self.fc(self.hidden(tokens.sum(1) / attention_mask.sum(1, keepdim=True)))}


@pytest.mark.parametrize("to", RUNNERS)
def test_a_dense_net_with_its_side_outputs(tmp_path: Path, to: str) -> None:
    """In the memory order of torch's default, which runs of deepsup do not use."""
    net, batch = dense_net(fuse=True).eval(), pictures(5)
    done = deepsup.export(net, tmp_path / f"dense.{to}", batch[:2], companions=True)
    assert done.outputs == ("scores", *net.outputs) == ("scores", "up3", "up2", "fuse")
    found, out = RUNNERS[to](done.path, batch), net(batch)
    for name, scores in {"scores": out.scores, **out.companions}.items():
        torch.testing.assert_close(found[name], scores, rtol=1e-5, atol=1e-5)
    card = done.card.read_text()
    assert "A model that classifies every position (UNet, " in card
    assert "| scores | float [N,3,16,16], the scores of the model |" in card
    assert "| up3 | float [N,3,4,4], the scores of the companion at `up3` |" in card


def test_the_card_of_a_dense_run_says_what_its_error_is(tmp_path: Path) -> None:
    config = Config(
        data="digits-scenes-small", train_size=8, epochs=1, batch_size=8, network="unet-small", tensorboard=False
    )
    run = deepsup.train(config.replace(network_options={"widths": [4, 6, 8]}), tmp_path / "run")
    done = deepsup.export(run, tmp_path / "weights.safetensors")
    assert "Test error in percent (100 minus the mean IoU), on 500 images" in done.card.read_text()


def test_two_inputs_by_name(tmp_path: Path) -> None:
    batch = {"input_ids": torch.randint(0, 30, (4, 7)), "attention_mask": (torch.arange(7) < 5).long().expand(4, 7)}
    net = trained(supervise(Masked(), at=["hidden"], num_classes=2, example=batch))
    with torch.no_grad():
        out = net(**batch)
    for to, runner in RUNNERS.items():
        done = deepsup.export(net, tmp_path / f"net.{to}", batch, companions=True)
        assert done.inputs == {"input_ids": "int64 [N,7]", "attention_mask": "int64 [N,7]"}
        found = runner(tmp_path / f"net.{to}", *batch.values())
        torch.testing.assert_close(found["scores"], out.scores, atol=1e-5, rtol=0)
        torch.testing.assert_close(found["hidden"], out.companions["hidden"], atol=1e-5, rtol=0)


def test_plain_weights_load_strictly_where_deepsup_cannot_be_imported(tmp_path: Path) -> None:
    x = torch.randn(2, 3, 16, 16)
    net = supervise(SmallResNet(), num_classes=10, example=x)
    deepsup.export(net, tmp_path / "net.safetensors", x)
    torch.save({"x": x, "scores": net.eval()(x).scores.detach()}, tmp_path / "expected.pt")
    code = (
        f"import sys; sys.modules['deepsup'] = None; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import torch; from plain_resnet import SmallResNet; from safetensors.torch import load_file\n"
        "model, expected = SmallResNet(), torch.load('expected.pt')\n"
        "model.load_state_dict(load_file('net.safetensors'), strict=True)\n"
        "assert torch.equal(model.eval()(expected['x']), expected['scores'])\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_weights_of_a_run_are_those_of_its_trunk(run: deepsup.Run, files: dict[str, Path]) -> None:
    plain, weights = run.load().strip(), load_file(files["safetensors"])
    assert weights.keys() == plain.state_dict().keys()
    assert all(torch.equal(weights[name], value) for name, value in plain.state_dict().items())


def test_the_file_does_not_hold_the_example(tmp_path: Path) -> None:
    net = supervise(nn.Sequential(nn.Linear(4, 3)), at=[], num_classes=3)
    secret = torch.tensor([[1.5, 2.5, 3.5, 4.5]])
    deepsup.export(net, tmp_path / "net.pt2", secret)
    assert secret.numpy().tobytes() not in (tmp_path / "net.pt2").read_bytes()


def test_a_wrong_file_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: a file with other weights is refused."""
    from deepsup.exporting import _formats as formats

    def other_weights(program: formats.Program, about: dict[str, str]) -> bytes:
        trunk = program.trunk
        weights = {name: value.clone() for name, value in trunk.state_dict().items()}
        for parameter in trunk.parameters():
            parameter.data += 1
        content = pack_pt2(program, about)
        trunk.load_state_dict(weights)
        return content

    wrong = formats.Format(other_weights, formats.run_pt2)
    monkeypatch.setitem(formats.FORMATS, "pt2", wrong)
    net = supervise(nn.Sequential(nn.Linear(4, 3)), at=[], num_classes=3)
    with pytest.raises(deepsup.DeepsupError, match=r"differs from the net by \d.*nothing was written"):
        deepsup.export(net, tmp_path / "net.pt2", torch.randn(2, 4))
    assert list(tmp_path.iterdir()) == []


def test_a_model_of_tokens_is_exported(tmp_path: Path) -> None:
    net = supervise(LanguageModel(2), ["h.0"], num_classes=WORDS, example=words()).eval()
    done = export(net, tmp_path / "model.onnx", to="onnx", example=words(), companions=False)
    assert done.path.is_file()
