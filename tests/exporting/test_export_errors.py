"""What cannot be exported ends in one line that says why, and writes nothing."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import deepsup
from deepsup import DeeplySupervised, create_network, supervise
from deepsup.cli import main
from deepsup.errors import ExportError, RunError
from deepsup.trainer.config import Config

X = torch.randn(3, 4)


@pytest.fixture(scope="module")
def run(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> deepsup.Run:
    config = Config(data=str(digits), epochs=1, batch_size=30, lr=0.01, tensorboard=False)
    return deepsup.train(config, tmp_path_factory.mktemp("errors") / "run")


def net_with(middle: nn.Module, **settings: Any) -> DeeplySupervised:
    model = nn.Sequential()
    for name, layer in {"first": nn.Linear(4, 4), "middle": middle, "last": nn.Linear(4, 3)}.items():
        model.add_module(name, layer)
    return supervise(model, **({"at": ["first"], "num_classes": 3} | settings))


class Bessel(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.special.bessel_j0(x)


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand_like(x)


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


class OneSize(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if len(x) == 2 else x


@pytest.mark.parametrize(
    ("middle", "to", "said"),
    [
        (Bessel(), "onnx", r"ONNX has no operator for prims.bessel_j0 in layer 'middle' \(Bessel\); .* --to pt2"),
        (Noisy(), "onnx", r"layer 'middle' \(Noisy\) draws random numbers in evaluation mode"),
        (Branching(), "pt2", r"torch cannot trace layer 'middle' \(Branching\): .* without branches on the values"),
        (OneSize(), "pt2", r"the model works for one batch size only \(2\); expected a forward for any batch"),
    ],
)
def test_a_layer_that_cannot_be_exported_is_named(tmp_path: Path, middle: nn.Module, to: str, said: str) -> None:
    with pytest.raises(ExportError, match=said):
        deepsup.export(net_with(middle), tmp_path / f"net.{to}", X)
    assert list(tmp_path.iterdir()) == []


def test_what_onnx_lacks_the_others_have(tmp_path: Path) -> None:
    for to in ("pt2", "safetensors"):
        assert deepsup.export(net_with(Bessel()), tmp_path / f"net.{to}", X).difference == 0


def test_a_companion_and_a_preprocessing_that_onnx_lacks(tmp_path: Path) -> None:
    net = net_with(nn.Identity())
    with pytest.raises(ExportError, match=r"no operator for prims.bessel_j0 in the preprocessing"):
        deepsup.export(net, tmp_path / "net.onnx", X, preprocess=torch.special.bessel_j0)
    net(X)
    net.head("first").hidden = Bessel()
    with pytest.raises(ExportError, match=r"in layer|in the companion at 'first'"):
        deepsup.export(net, tmp_path / "net.onnx", X, companions=True)


def test_dropconnect_that_samples_is_named(tmp_path: Path) -> None:
    network = create_network("dropconnect-svhn", inference="gaussian", samples=2)
    net = supervise(network, at=[], num_classes=10)
    with pytest.raises(ExportError, match=r"layer 'fc\d?' \(DropConnectLinear\) draws random numbers"):
        deepsup.export(net, tmp_path / "net.pt2", torch.randn(2, 3, 28, 28))


@pytest.mark.parametrize(
    ("path", "settings", "said"),
    [
        ("net.tflite", {}, "called net.tflite; expected a name that ends in .onnx or .pt2 or .safetensors"),
        ("net", {"to": "pt2"}, "called net; expected a name that ends in .pt2"),
        ("net.onnx", {"to": "onxx"}, "no format 'onxx'; did you mean 'onnx'?"),
        ("net.pt2", {"example": None}, r"no example; .* give example=images\[:2\]"),
        ("net.pt2", {"example": torch.randn(3, 5)}, r"the net fails on the example \(input float32 \[N,5\]\)"),
        ("net.pt2", {"example": (X, None)}, "the example has a NoneType; expected tensors"),
        ("net.pt2", {"example": torch.randn(0, 4)}, "of one sample or more"),
        ("net.pt2", {"example": (X, X), "preprocess": torch.relu}, "has 2 tensors; expected one"),
        ("net.safetensors", {"companions": True}, "the plain model, without companions; use pt2 or onnx"),
    ],
)
def test_wrong_arguments(tmp_path: Path, path: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ExportError, match=said):
        deepsup.export(net_with(nn.ReLU()), tmp_path / path, **({"example": X} | settings))
    assert list(tmp_path.iterdir()) == []


def test_a_plain_model(tmp_path: Path) -> None:
    with pytest.raises(deepsup.DeepsupError, match="net is a Linear without companions; expected what supervise"):
        deepsup.export(nn.Linear(4, 3), tmp_path / "net.pt2", X)


def test_weights_that_are_not_finite(tmp_path: Path) -> None:
    net = net_with(nn.ReLU())
    nn.init.constant_(net.trunk.get_submodule("last").weight, torch.nan)
    with pytest.raises(ExportError, match="scores of the example are not finite"):
        deepsup.export(net, tmp_path / "net.pt2", X)


def test_a_file_is_replaced_only_on_demand(tmp_path: Path) -> None:
    net, path = net_with(nn.ReLU()), tmp_path / "net.safetensors"
    path.write_bytes(b"mine")
    with pytest.raises(ExportError, match=r"net.safetensors is there already; choose another name, .*--overwrite"):
        deepsup.export(net, path, X)
    assert path.read_bytes() == b"mine"
    done = deepsup.export(net, path, X, overwrite=True)
    assert path.stat().st_size == done.bytes
    path.unlink()
    with pytest.raises(ExportError, match=r"net.safetensors.md is there already"):
        deepsup.export(net, path, X)
    (tmp_path / "folder.pt2").mkdir()
    with pytest.raises(ExportError, match=r"folder.pt2 is a folder"):
        deepsup.export(net, tmp_path / "folder.pt2", X, overwrite=True)
    with pytest.raises(ExportError, match=r"cannot make the folder .*net.safetensors.md/sub: .*choose another"):
        deepsup.export(net, tmp_path / "net.safetensors.md" / "sub" / "net.pt2", X)


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ExportError, match=r"cannot write .*: No space left on device; .* then export again"):
        deepsup.export(net_with(nn.ReLU()), tmp_path / "net.safetensors", X)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_packages_that_are_not_installed(tmp_path: Path, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ExportError, match=rf'{package} is not installed; pip install "deepsup\[export\]", or use'):
        deepsup.export(net_with(nn.ReLU()), tmp_path / "net.onnx", X)
    deepsup.export(net_with(nn.ReLU()), tmp_path / "net.pt2", X)


def test_a_run_brings_its_own_preprocessing(run: deepsup.Run, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="preprocess= with a run"):
        deepsup.export(run, tmp_path / "net.pt2", preprocess=torch.relu)
    with pytest.raises(ExportError, match=r"the net fails on the example \(images float32 \[N,1,28,28\]\).*uint8"):
        deepsup.export(run, tmp_path / "net.pt2", torch.zeros(2, 1, 28, 28))


def test_the_model_of_a_run_is_never_replaced(run: deepsup.Run) -> None:
    before = run.model.read_bytes()
    with pytest.raises(ExportError, match=r"is the run's own model; .* choose another name with --out"):
        deepsup.export(run, run.model, overwrite=True)
    assert run.model.read_bytes() == before


def test_an_unfinished_run(run: deepsup.Run, tmp_path: Path) -> None:
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "config.yaml").write_bytes((run.folder / "config.yaml").read_bytes())
    with pytest.raises(RunError, match=r"half has no model.safetensors yet; let it finish: .*--resume"):
        deepsup.export(deepsup.Run(tmp_path / "half"), tmp_path / "net.pt2")


def test_the_command(run: deepsup.Run, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    out = tmp_path / "deep" / "mine.pt2"
    words = ["export", str(run.folder), "--to", "pt2", "--out", str(out)]
    assert main(words) == 0
    said = capfd.readouterr()
    size = f"{out.stat().st_size / 1e6:.2f} MB"
    assert said.out.splitlines() == [
        f"{out}: {size}, the same scores as PyTorch for 16 images",
        "in: images uint8 [N,1,28,28]; out: scores",
        f"card: {out}.md",
    ]
    assert said.err == ""
    assert main([*words, "--json", "--overwrite", "--companions"]) == 0
    answer = json.loads(capfd.readouterr().out)
    assert answer["outputs"] == ["scores", "conv1", "conv2"]
    assert answer["path"] == str(out)
    assert main(["export", str(run.folder), "--to", "safetensors"]) == 0
    assert (run.folder / "export" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere", "--to", "onnx"], "nowhere is no run: it has no config.yaml"),
        (["RUN", "--to", "tflite"], "no format 'tflite'; expected one of: onnx, pt2, safetensors"),
        (["RUN"], "--to"),
        (["RUN", "--to", "onnx", "--out", "x.pt2"], "the file is called x.pt2; expected a name that ends in .onnx"),
        (["RUN", "--format", "onnx"], "export has no option --format"),
    ],
)
def test_mistakes_at_the_command_line(
    run: deepsup.Run, words: list[str], said: str, capsys: pytest.CaptureFixture
) -> None:
    assert main(["export", *(str(run.folder) if word == "RUN" else word for word in words)]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_a_network_of_the_users_own_needs_trust(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    code = "from torch import nn\ndef make(num_classes):\n    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))\n"
    (tmp_path / "exported_net.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    settings = {"data": str(digits), "network": "exported_net:make", "taps": ("none",), "tensorboard": False}
    deepsup.train(Config(**settings, epochs=1, batch_size=30), tmp_path / "own")
    words = ["export", str(tmp_path / "own"), "--to", "pt2"]
    assert main(words) == 2
    assert "give --trust" in capsys.readouterr().err
    assert main([*words, "--trust"]) == 0
