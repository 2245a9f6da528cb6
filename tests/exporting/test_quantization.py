"""ONNX files in int8: their scores against float32, their errors counted by hand, and when they are refused."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from dense_nets import dense_net, pictures
from torch import nn

import deepsup
from deepsup import export, load_data, supervise
from deepsup.cli.app import main
from deepsup.errors import ExportError
from deepsup.exporting import Exported
from deepsup.exporting._quantization import preprocessing
from deepsup.trainer.recipes import find_recipe


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> deepsup.Run:
    """A net that has learned something, whose filters are computed in the graph."""
    config = find_recipe("fast-mnist").replace(
        data="mnist-mini", epochs=4, batch_size=50, network_options={"widths": [16, 32], "mirror": True},
        normalize="gcn", amp="off", tensorboard=False,
    )  # fmt: skip
    return deepsup.train(config, tmp_path_factory.mktemp("int8") / "run")


@pytest.fixture(scope="module")
def static(run: deepsup.Run) -> Exported:
    return export(run, run.folder / "small.onnx", quantize="static")


@pytest.fixture(scope="module")
def plain(run: deepsup.Run) -> Exported:
    return export(run, run.folder / "plain.onnx")


def scores_of(path: Path, images: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    found: np.ndarray = session.run(["scores"], {"images": images})[0]
    return found


def test_errors_before_and_after_are_those_counted_by_hand(run: deepsup.Run, static: Exported, plain: Exported) -> None:
    test, small = load_data("mnist-mini").test, static.quantized
    assert small is not None
    assert (small.kind, small.calibrated, small.images) == ("static", 250, len(test))
    for path, error in ((plain.path, small.error_before), (static.path, small.error)):
        assert error == pytest.approx(100 * float((scores_of(path, test.images).argmax(1) != test.labels).mean()))
    assert small.error_before == pytest.approx(run.result["error"])
    assert small.error_before < 40
    assert plain.bytes == small.bytes_before > static.bytes
    assert list(small.images_per_second) == ["onnx float32", "onnx int8", "torch float32", "torch bfloat16"]
    assert all(each > 0 for each in small.images_per_second.values())
    card = static.card.read_text()
    assert f"{small.error:.2f} %, in float32 {small.error_before:.2f} %" in card


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_scores_are_close_and_only_the_net_is_in_int8(kind: str, tmp_path: Path) -> None:
    """A matrix product whose weights are whole multiples of a step loses nothing but the rounding of its input."""
    torch.manual_seed(0)
    layer = nn.Linear(784, 10, bias=False)
    whole = torch.randint(-127, 128, layer.weight.shape)
    whole[:, 0] = 127
    layer.weight.data = whole / 127
    net = supervise(nn.Sequential(nn.Flatten(), layer), at=(), num_classes=10, example=torch.zeros(2, 1, 28, 28))
    mixing = torch.randn(784, 784) / 28
    images = torch.tensor(load_data("mnist-mini").test.images[:100])

    def mixed(given: torch.Tensor) -> torch.Tensor:
        return (given.float().flatten(1) / 255 @ mixing).view(-1, 1, 28, 28)

    done = export(net, tmp_path / "net.onnx", images, preprocess=mixed, quantize=kind)
    assert done.quantized is not None
    assert done.quantized.error is None
    given = mixed(images).flatten(1)
    step = (given.max() - given.min()) / 255  # of an unsigned byte
    bound = float(step / 2 * layer.weight.detach().abs().sum(1).max())
    difference = np.abs(scores_of(done.path, images.numpy()) - net(mixed(images)).scores.detach().numpy()).max()
    assert 0 < difference < bound
    types = {tuple(each.dims): each.data_type for each in onnx.load(done.path).graph.initializer}
    assert types.get((10, 784), types.get((784, 10))) == onnx.TensorProto.INT8
    assert types[784, 784] == onnx.TensorProto.FLOAT


def test_the_preprocessing_is_what_needs_no_weight_of_the_net(plain: Exported) -> None:
    model = onnx.load(plain.path)
    kept = preprocessing(model)
    first = next(node for node in model.graph.node if node.op_type == "Conv")
    assert first.input[0] in kept
    assert first.output[0] not in kept
    assert "scores" not in kept


def test_a_file_that_is_worse_than_the_bound_is_not_written(run: deepsup.Run, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"in int8 \(static\) the error is .* expected at most -100 points more"):
        export(run, tmp_path / "small.onnx", quantize="static", most_points=-100)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("net.onnx", "int4", "quantize='int4'; expected one of: static, dynamic"),
        ("net.onnx", "statik", "quantize='statik'; did you mean 'static'"),
        ("net.pt2", "static", "quantize=static with pt2; expected onnx"),
    ],
)
def test_mistakes(name: str, kind: str, message: str, run: deepsup.Run, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=message):
        export(run, tmp_path / name, quantize=kind)


def test_scores_of_every_pixel_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="quantize=static for a model that scores every position"):
        export(dense_net(), tmp_path / "net.onnx", pictures(), quantize="static")


def test_quantize_alone_is_static(run: deepsup.Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run.folder), "--to", "onnx", "--quantize", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["quantized"]["kind"] == "static"
    assert Path(answer["path"]).name == "model.int8.onnx"
    assert list(answer["quantized"]["images_per_second"])[1] == "onnx int8"
