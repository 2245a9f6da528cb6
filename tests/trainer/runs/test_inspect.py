"""``deepsup inspect``: scikit-learn finds the same numbers in the exported scores, and maps are as in the paper."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import accuracy_score, confusion_matrix

from deepsup.cli import insight_commands, main
from deepsup.errors import MissingPackageError
from deepsup.insight import feature_maps
from deepsup.trainer.config import Config
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.runs._inspect import in_few_bytes
from deepsup.trainer.runs._train import train


@pytest.fixture(scope="module")
def runs(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunFolder]:
    """A net with companions and one without."""
    folder = tmp_path_factory.mktemp("inside")
    config = Config(data=str(digits), epochs=2, batch_size=30, lr=0.01, tensorboard=False)
    return {
        "dsn": train(config, folder / "dsn"),
        "cnn": train(config.replace(taps=("none",)), folder / "cnn"),
    }


@pytest.fixture(scope="module")
def inspected(runs: dict[str, RunFolder]) -> dict[str, RunFolder]:
    assert main(["inspect", *(str(run.folder) for run in runs.values()), "--json"]) == 0
    return runs


def held(run: RunFolder) -> tuple[dict, dict[str, np.ndarray]]:
    with np.load(run.folder / "insight.npz") as arrays:
        return json.loads((run.folder / "insight.json").read_text()), dict(arrays)


def test_training_leaves_confusion_and_mistakes(small: Config, tmp_path: Path) -> None:
    run = train(small.replace(epochs=1), tmp_path / "run")
    found, arrays = held(run)
    assert found["layers"]["output"]["error"] == run.result["error"]
    assert {tap: found["layers"][tap]["error"] for tap in ("conv1", "conv2")} == run.result["companions"]
    assert len(arrays["mistakes"]) == len(found["mistakes"]) > 0


@pytest.mark.parametrize("name", ["dsn", "cnn"])
def test_numbers_are_those_of_scikit_learn_on_the_exported_scores(inspected: dict[str, RunFolder], name: str) -> None:
    found, arrays = held(inspected[name])
    labels = arrays["labels"]
    exported = {key.removeprefix("scores/"): value for key, value in arrays.items() if key.startswith("scores/")}
    companions = {"companion/conv1", "companion/conv2"} if name == "dsn" else set()
    assert exported.keys() == {"output", "probe/conv1", "probe/conv2"} | companions
    for key, scores in exported.items():
        kind, _, tap = key.partition("/")
        facts = found["probes"][tap] if kind == "probe" else found["layers"][tap or "output"]
        said = scores.argmax(1)
        assert facts["error"] == pytest.approx(100 * (1 - accuracy_score(labels, said)))
        assert facts["confusion"] == confusion_matrix(labels, said, labels=range(10)).tolist()
    assert found["layers"]["output"]["error"] == pytest.approx(inspected[name].result["error"])
    assert sum(found["probe_agreement"].values()) == len(labels)


def test_maps_are_of_one_image_a_class(inspected: dict[str, RunFolder]) -> None:
    found, arrays = held(inspected["dsn"])
    assert found["maps"]["layer"] == "conv1"
    assert found["maps"]["labels"] == [str(digit) for digit in range(10)]
    assert arrays["images"].shape == (10, 1, 28, 28)
    assert arrays["merged"].shape == (10, 24, 24)
    assert arrays["maps"].shape == (10, 8, 24, 24)
    assert arrays["filters"].shape == (20, 1, 5, 5)


def test_maps_too_large_for_half_precision_are_kept_in_single() -> None:
    for largest, kind in ((65504.0, np.float16), (7e4, np.float32)):
        maps = torch.tensor([[[0.5, -largest]]])
        kept = in_few_bytes(maps)
        assert kept.dtype == kind
        assert np.array_equal(kept, maps.numpy())


def test_the_top_30_percent_of_activations_are_kept() -> None:
    output = torch.randn(3, 5, 8, 8)
    found = feature_maps(output, most=5)
    for image in range(3):
        values = output[image].flatten().numpy()
        kept = (found.strongest[image] > 0).float().mean().item()
        assert kept == pytest.approx(0.3, abs=0.01)
        lowest = np.sort(values)[-int((found.strongest[image] > 0).sum())]
        assert lowest > np.quantile(values, 0.7)
    torch.testing.assert_close(found.merged, found.strongest.mean(1))
    assert sorted(found.channels) == [0, 1, 2, 3, 4]


def test_another_layer_and_one_image(
    runs: dict[str, RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "digit.png"
    Image.fromarray(np.full((28, 28), 200, np.uint8)).save(file)
    folders = [str(run.folder) for run in runs.values()]
    assert main(["inspect", *folders, "--image", str(file), "--layer", "conv2", "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)["runs"]
    for folder, judge in zip(folders, ("companion", "linear probe"), strict=True):
        answer = answers[folder]
        assert list(answer["layers"]) == ["conv1", "conv2", "output"]
        assert answer["layers"]["conv1"]["judged_by"] == judge
        assert all(0.1 <= each["confidence"] <= 1 for each in answer["layers"].values())
        assert answer["maps"]["layer"] == "conv2"
        assert Path(answer["figure"]).read_bytes().startswith(b"\x89PNG")
    assert main(["inspect", folders[0], "--image", str(file)]) == 0
    assert "judged by" in capsys.readouterr().out


def test_a_companion_that_understates_its_layer_is_named() -> None:
    layers = {"a": {"error": 25.8}, "b": {"error": 2.0}, "output": {"error": 1.0}}
    found = {"layers": layers, "probes": {"a": {"error": 1.7}, "b": {"error": 1.9}}}
    (said,) = insight_commands.understated(found)
    assert "understate a (25.8 % where a linear probe has 1.7 %): judge layers by the probe" in said
    assert not insight_commands.understated({"layers": layers, "probes": {}})
    assert not insight_commands.understated({})


def test_without_matplotlib_there_is_the_table(
    runs: dict[str, RunFolder], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def missing() -> None:
        raise MissingPackageError("the report needs the package matplotlib, which is not installed")

    monkeypatch.setattr(insight_commands, "_figures", missing)
    assert main(["inspect", str(runs["dsn"].folder)]) == 0
    said = capsys.readouterr()
    assert "of a linear probe" in said.out
    assert "report:" not in said.out
    assert "needs the package matplotlib" in said.err
    Image.fromarray(np.full((28, 28), 200, np.uint8)).save(tmp_path / "digit.png")
    assert main(["inspect", str(runs["dsn"].folder), "--image", str(tmp_path / "digit.png"), "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)["runs"].values()
    assert answer["figure"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--layer", "conv9"], "no layer 'conv9'"),
        (["--layer", "fc1"], "expected maps [B,C,H,W]"),
        (["--image", "nowhere.png"], "nowhere.png"),
    ],
)
def test_what_cannot_be_inspected_ends_in_one_line(
    runs: dict[str, RunFolder], capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["inspect", str(runs["dsn"].folder), *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_an_unfinished_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.yaml").write_text(Config().to_yaml())
    assert main(["inspect", str(tmp_path)]) == 2
    assert "has no model.safetensors yet" in capsys.readouterr().err


def test_a_class_absent_from_the_test_set_and_one_called_script(tmp_path: Path, digits: Path) -> None:
    with np.load(digits) as arrays:
        kept = arrays["y_test"] != 3
        classes = np.array(["<script>alert(1)</script>", *"123456789"])
        np.savez(tmp_path / "d.npz", x_train=arrays["x_train"], y_train=arrays["y_train"], classes=classes,
                 x_test=arrays["x_test"][kept], y_test=arrays["y_test"][kept])  # fmt: skip
    run = train(Config(data=str(tmp_path / "d.npz"), epochs=1, batch_size=60, tensorboard=False), tmp_path / "run")
    assert main(["inspect", str(run.folder)]) == 0
    assert held(run)[0]["absent"] == ["3"]
    page = (run.folder / "report.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
