"""Reading a run never runs what it names; what it holds reaches the terminal as plain text and as valid JSON."""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file

import deepsup
from deepsup.cli import main
from deepsup.cli.run_commands import reading
from deepsup.errors import ConfigError, RunError
from deepsup.io import printable
from deepsup.trainer.config import Config
from deepsup.trainer.runs._exits import calibrate_run, digest, load_exits
from deepsup.trainer.studies._sweep_space import read_space
from deepsup.trainer.training._build import build_net

NET = """
from pathlib import Path
Path(__file__).with_name("imported").touch()
from torch import nn
def net(num_classes):
    first = nn.Conv2d(1, 4, 5)
    return nn.Sequential(first, nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, num_classes))
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a network of its own, a run of it, and a picture."""
    folder = tmp_path_factory.mktemp("stranger")
    (folder / "stranger.py").write_text(NET)
    Image.fromarray(np.zeros((28, 28), np.uint8)).save(folder / "a.png")
    words = ["train", "--network", "stranger:net", "--taps", "none", "--train-size", "60", "--batch-size", "20"]
    (done,) = commands(folder, [*words, "--limit-steps", "2", "--no-tensorboard", "--out", "run"])
    assert done.code == 0, done.errors
    assert "the run is in run" in done.out
    (folder / "imported").unlink()
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    return folder


def test_what_reads_a_run_with_a_network_of_ones_own() -> None:
    assert reading("inspect", "stranger:net", "my run") == "PYTHONPATH=. deepsup inspect 'my run' --trust"
    assert reading("inspect", "cnn", "run") == "deepsup inspect run"


@pytest.fixture
def own(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "own"))


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    errors: str


SCRIPT = """
import contextlib, io, json, sys
sys.path.pop(0)
from deepsup.__main__ import main
done = []
for words in json.loads(sys.argv[1]):
    sys.argv[1:] = words
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
        code = main()
    done.append((code, out.getvalue(), errors.getvalue()))
print(json.dumps(done))
"""


def commands(folder: Path, *given: list[str], **environment: str) -> list[Done]:
    """Run deepsup as its console script does, the current folder not on the import path: several in one process."""
    source = str(Path(deepsup.__file__).parents[1])
    path = os.pathsep.join([source, *filter(None, [environment.pop("PYTHONPATH", "")])])
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(given)], cwd=folder, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"} | environment,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return [Done(*each) for each in json.loads(ended.stdout)]


def test_a_run_of_a_stranger(own: Path) -> None:
    """Every verb in its turn: one line that names --trust, and nothing is imported."""
    verbs = [["predict", "run", "a.png"], ["evaluate", "run"], ["inspect", "run"], ["exits", "run"],
             ["export", "run", "--to", "safetensors"], ["train", "--out", "run", "--resume"]]  # fmt: skip
    *refused, report = commands(own, *verbs, ["report", "run"])
    for words, done in zip(verbs, refused, strict=True):
        assert done.code == 2, words
        assert "names a network that is not part of deepsup, stranger:net" in done.errors
        assert "--trust" in done.errors
        assert done.errors.count("\n") == 1
    assert report.code == 0
    assert not (own / "imported").exists()


@pytest.mark.slow
def test_a_trusted_run(own: Path) -> None:
    (done,) = commands(own, ["predict", "run", "a.png", "--trust"])
    assert done.code == 2  # the current folder is not searched, even so
    assert "needs PYTHONPATH=." in done.errors
    assert not (own / "imported").exists()
    resume = ["train", "--out", "run", "--resume"]
    predict = ["predict", "run", "a.png", "--trust", "--json"]
    done, *resumed = commands(
        own, predict, [*resume, "--network", "stranger:net"], [*resume, "--trust"], PYTHONPATH="."
    )
    assert done.code == 0, done.errors
    assert json.loads(done.out)["predictions"][0]["label"] in "0123456789"
    assert [each.code for each in resumed] == [0, 0]


def test_in_python(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(own)
    run = deepsup.Run("run")
    with pytest.raises(RunError, match=r"--trust, or in Python Run\('run', network=FACTORY\)"):
        run.load()
    assert run.classes == tuple("0123456789")  # needs no network
    assert run.preprocess(np.zeros((1, 1, 28, 28), np.uint8)).shape == (1, 1, 28, 28)
    with pytest.raises(RunError, match="it is not imported unless you name it too"):
        deepsup.train(out="run", resume=True)
    assert not (own / "imported").exists()
    namespace: dict = {"__file__": str(own / "given.py")}
    exec(NET, namespace)
    given = deepsup.Run("run", network=namespace["net"])
    assert given.load()(torch.zeros(2, 1, 28, 28)).scores.shape == (2, 10)
    assert given.predict(["a.png"])[0]["label"] in given.classes


@pytest.fixture(scope="module")
def run(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = Config(data=str(digits), epochs=1, batch_size=30, lr=0.01, limit_steps=2, tensorboard=False)
    return deepsup.train(config, tmp_path_factory.mktemp("trust") / "run").folder


def edited(run: Path, to: Path, about: dict, nan: bool = False) -> Path:
    """Copy a run with other words about its model, or with weights that are no numbers."""
    copy = Path(shutil.copytree(run, to))
    with safe_open(run / "model.safetensors", "pt") as file:
        said = json.loads(file.metadata()["deepsup"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if nan:
        tensors = {
            name: torch.full_like(t, torch.nan) if name.startswith("net.") and t.is_floating_point() else t
            for name, t in tensors.items()
        }
    said = {**said, **about, "config": {**said["config"], **about.get("config", {})}}
    save_file(tensors, copy / "model.safetensors", {"deepsup": json.dumps(said)})
    return copy


def test_code_that_comes_with_python_is_not_called_either(run: Path, tmp_path: Path) -> None:
    (tmp_path / "hubconf.py").write_text("from pathlib import Path\nPath(__file__).with_name('ran').touch()\n")
    options = {"repo_or_dir": str(tmp_path), "model": "x", "source": "local"}
    copy = edited(run, tmp_path / "run", {"config": {"network": "torch.hub:load", "network_options": options}})
    with pytest.raises(RunError, match=r"torch\.hub:load; reading a run imports no code"):
        deepsup.Run(copy).load()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"shape": [1, 10**6, 10**6]}, "expected [C,H,W] of at most"),
        ({"shape": [1, 28]}, "expected [C,H,W] of at most"),
        ({"config": {"hidden": [10**9]}}, "the weights of the net take more than"),
        ({"classes": [1, 2]}, "'classes'[0]"),
        ({"steps": {}}, "'steps' is a dict, expected list"),
        ({"steps": [{"step": "zca"}]}, "expected {'mean': (784,)"),
        ({"steps": [{"step": "standardize"}, {"step": "standardize"}]}, "standardize has no arrays"),
        ({"steps": []}, "not the state of a normalizer"),
        ({"steps": [{"step": "standardize"}, {"step": "lcn", "size": 2**40 + 1}]}, "expected an odd size up to 4,096"),
        ({"steps": [{"step": "standardize"}, {"step": "lcn"}], "shape": [1, 2**15, 100]}, "32768x100"),
        ({"format": 99}, "install the newer"),
        ({"config": {"pool": "2"}}, ""),
    ],
)  # fmt: skip
def test_what_a_model_says_about_itself_is_checked(run: Path, tmp_path: Path, about: dict, said: str) -> None:
    copy = deepsup.Run(edited(run, tmp_path / "run", about))
    with pytest.raises(RunError) as caught:
        copy.load()
    assert said in str(caught.value)
    assert str(copy.model) in str(caught.value)
    if about.keys() & {"shape", "steps"}:  # without the net, too
        with pytest.raises(RunError, match=re.escape(str(copy.model))):
            _ = copy.preprocess


def test_a_model_is_not_run_on_images_of_every_size_that_it_names(run: Path, tmp_path: Path) -> None:
    copy = edited(run, tmp_path / "run", {"config": {"sides": [4096]}})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    deepsup.Run(copy).load()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**17  # KiB: 128 MiB
    with pytest.raises(ConfigError, match=r"sides=\(4096,\); expected at most 1,024 pixels"):
        build_net(Config(sides=(4096,)), 10, (1, 28, 28))


def test_weights_that_are_no_numbers(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.fromarray(np.zeros((28, 28), np.uint8)).save(tmp_path / "a.png")
    copy = edited(run, tmp_path / "run", {}, nan=True)
    for words in (["predict", str(copy), str(tmp_path / "a.png")], ["evaluate", str(copy)], ["inspect", str(copy)]):
        assert main([*words, "--json"]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert f"{copy / 'model.safetensors'}: the model's scores are not finite at output" in said.err
    with pytest.raises(RunError, match=r"model\.safetensors: the model's scores are not finite"):
        calibrate_run(deepsup.Run(copy))


def test_a_dense_model_whose_weights_are_no_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It would call every pixel class 0."""
    Image.fromarray(np.zeros((32, 32), np.uint8)).save(tmp_path / "a.png")
    small = {"network": "unet-small", "network_options": {"widths": [4, 6, 8]}, "batch_size": 8, "train_size": 16}
    config = Config(data="digits-scenes-small", epochs=1, limit_steps=1, tensorboard=False, **small)
    copy = edited(deepsup.train(config, tmp_path / "run").folder, tmp_path / "nan", {}, nan=True)
    for words in (
        ["predict", str(copy), str(tmp_path / "a.png"), "--out", str(tmp_path / "out")],
        ["evaluate", str(copy)],
    ):
        assert main([*words, "--json"]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert f"{copy / 'model.safetensors'}: the model's scores are not finite at" in said.err
    assert not (tmp_path / "out").exists()


def test_class_names_with_control_codes(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.fromarray(np.zeros((28, 28), np.uint8)).save(tmp_path / "a.png")
    copy = edited(run, tmp_path / "run", {"classes": ["\x1b[2J\u202egnp"] * 10})
    assert main(["predict", str(copy), str(tmp_path / "a.png")]) == 0
    out = capsys.readouterr().out
    assert "\\x1b[2J\\u202egnp" in out
    assert "\x1b" not in out
    assert main(["evaluate", str(copy)]) == 2  # other classes than the data: they are in the message
    assert "\x1b" not in capsys.readouterr().err


def test_a_class_name_does_not_look_like_another_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Image.fromarray(np.zeros((28, 28), np.uint8)).save(tmp_path / "a.png")
    copy = edited(run, tmp_path / "run", {"classes": ["cat\n/home/me/b.png\tdog\u2028\u200b\U000e0041"] * 10})
    assert main(["predict", str(copy), str(tmp_path / "a.png")]) == 0
    out = capsys.readouterr().out
    assert "cat\\n/home/me/b.png\\tdog\\u2028\\u200b\\U000e0041" in out
    assert len(out.splitlines()) == 2  # the header and one row


def test_printable_leaves_words_alone() -> None:
    assert printable("Größe\t1 + 2\n猫 👍") == "Größe\t1 + 2\n猫 👍"
    assert printable("a\x9b\udc80\r") == "a\\x9b\\udc80\\r"


def test_json_has_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    from deepsup.cli.app import show

    show({"a": float("nan"), "b": [float("inf"), 1.5], "c": {"d": (-0.0,)}}, "", json=True)
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {
        "a": None,
        "b": [None, 1.5],
        "c": {"d": [0]},
    }


def spoiled_config(folder: Path) -> tuple[Path, Callable[[], object]]:
    path = folder / "a.yaml"
    path.write_text("nesterov: 3")
    return path, lambda: Config.from_yaml(path)


def spoiled_space(folder: Path) -> tuple[Path, Callable[[], object]]:
    path = folder / "space.yaml"
    path.write_text("batch_size: {low: x, high: 3}")
    return path, lambda: read_space(path, Config())


def spoiled_pretrained(folder: Path) -> tuple[Path, Callable[[], object]]:
    net = deepsup.create_network("plain", num_classes=3, in_channels=1, image_size=8, depth=3, widths=(4, 6))
    deepsup.supervise(net, at=["relu1"], num_classes=3, example=torch.zeros(2, 1, 8, 8)).save_pretrained(folder)
    path = folder / "config.json"
    settings = json.loads(path.read_text())
    settings["taps"][0]["companion"]["init"] = "?"
    path.write_text(json.dumps(settings))
    return path, lambda: deepsup.DeeplySupervised.from_pretrained(folder)


@pytest.mark.parametrize("spoiled", [spoiled_config, spoiled_space, spoiled_pretrained])
def test_a_message_names_the_file(spoiled: Callable[[Path], tuple[Path, Callable[[], object]]], tmp_path: Path) -> None:
    path, read = spoiled(tmp_path)
    with pytest.raises(deepsup.DeepsupError, match=re.escape(str(path))):
        read()


def test_thresholds_out_of_range_name_their_file(run: Path, tmp_path: Path) -> None:
    copy = deepsup.Run(shutil.copytree(run, tmp_path / "run"))
    record = {"model": digest(copy), "thresholds": {"conv1": 3.0}, "temperatures": {}}
    (copy.folder / "exits.json").write_text(json.dumps(record))
    with pytest.raises(RunError, match=r"exits\.json: threshold of 'conv1' is 3"):
        load_exits(copy)
