"""``deepsup exits``, ``predict --early``, the page and the ONNX stages, on a run of a few seconds."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
import torch
from PIL import Image

from deepsup import Config, train
from deepsup.cli import exit_commands, main
from deepsup.exits import _stage_times as stage_times
from deepsup.trainer.data import Part
from deepsup.trainer.preprocess import to_tensor
from deepsup.trainer.report import write_report
from deepsup.trainer.runs._exits import load_exits
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.runs._run_data import data_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of torch's exporter


@pytest.fixture(scope="module", autouse=True)
def hasty() -> Iterator[None]:
    """Times are measured in short: none of these tests judges them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage_times, "LEAST_SECONDS", 0.001)
        yield


@pytest.fixture(scope="module")
def trained(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A narrow net with two exits, trained on 180 digits for three epochs, with 60 held out and 100 to test on."""
    config = Config(
        data=str(digits), validation=60, network="fast", network_options={"widths": (8, 16, 64)}, epochs=3,
        taps=("group1", "group2"), schedule="constant", distill=0.5, batch_size=20, optimizer="adamw", lr=0.005,
        tensorboard=False,
    )  # fmt: skip
    return train(config, tmp_path_factory.mktemp("exits") / "run").folder


def images_of(run: Path) -> Part:
    return data_of(RunFolder(run), RunFolder(run).config).test


@pytest.fixture(scope="module")
def calibrated(trained: Path) -> Path:
    words = ["exits", str(trained), "--max-error-increase", "20", "--batch-sizes", "1", "20"]
    assert main([*words, "--export", str(trained / "onnx")]) == 0
    return trained


def test_the_record_is_what_the_images_say(calibrated: Path) -> None:
    record = json.loads((calibrated / "exits.json").read_text())
    early, model = load_exits(RunFolder(calibrated))
    test = images_of(calibrated)
    out = early(model.normalize(to_tensor(test.images)))
    labels = torch.from_numpy(test.labels)
    with torch.no_grad():
        plain = model.net(model.normalize(to_tensor(test.images))).scores.argmax(1)
    assert record["plain_error"] == pytest.approx(100 * float((plain != labels).float().mean()), abs=0.05)
    assert record["error"] == pytest.approx(100 * float((out.labels != labels).float().mean()), abs=0.05)
    assert record["images"] == 100
    assert record["validation"]["images"] == 60
    assert list(record["speedup"]) == ["1", "20"]
    assert record["thresholds"].keys() == {"group1", "group2"}
    assert sum(each["share"] for each in record["exits"].values()) == pytest.approx(100)
    assert record["thresholds"] == early.thresholds
    assert (calibrated / "plots" / "exits.png").is_file()
    for each in record["shown"]:
        assert early.names[int(out.exits[each["index"]])] == each["exit"]
        assert each["label"] == str(test.labels[each["index"]])


def test_json_has_the_promised_fields(calibrated: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    copytree(calibrated, tmp_path / "run")
    assert main(["exits", str(tmp_path / "run"), "--max-cost", "1", "--batch-sizes", "16", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {"plain_error", "error", "speedup", "thresholds", "curve", "figure"} <= answer.keys()
    assert list(answer["speedup"]) == ["16"]


def test_predict_early_says_where_each_file_left(calibrated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    early, model = load_exits(RunFolder(calibrated))
    images = images_of(calibrated).images[:3]
    files = []
    for index, image in enumerate(images):
        files.append(str(calibrated / f"{index}.png"))
        Image.fromarray(image[0]).save(files[-1])
    out = early(model.normalize(to_tensor(images)))
    assert main(["predict", str(calibrated), *files, "--early", "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)["predictions"]
    assert [each["label"] for each in answers] == [model.classes[label] for label in out.labels]
    assert [each["exit"] for each in answers] == [early.names[number] for number in out.exits]
    assert main(["predict", str(calibrated), *files, "--early"]) == 0
    assert "left at" in capsys.readouterr().out


def test_predict_takes_folders(calibrated: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    places = ["b.png", "sub/a.PNG", ".hidden/c.png", "notes.txt"]
    for place, image in zip(places, images_of(calibrated).images[:4], strict=True):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        Image.fromarray(image[0]).save(tmp_path / place, format="PNG")
    answers = []
    for files in ([tmp_path], [tmp_path / "b.png", tmp_path / "sub" / "a.PNG"]):
        assert main(["predict", str(calibrated), *map(str, files), "--json"]) == 0
        answers.append(json.loads(capsys.readouterr().out)["predictions"])
    assert answers[0] == answers[1]
    (tmp_path / "empty").mkdir()
    assert main(["predict", str(calibrated), str(tmp_path / "empty")]) == 2
    assert "empty has no image; expected image files, or folders with some" in capsys.readouterr().err


@pytest.mark.parametrize(("threshold", "speed", "advised"), [(0.9, 1.2, True), (None, 1.0, False), (0.9, 0.8, False)])
def test_early_prediction_is_advised_only_where_it_pays(
    calibrated: Path, threshold: float | None, speed: float, advised: bool
) -> None:
    record = json.loads((calibrated / "exits.json").read_text())
    record |= {"thresholds": dict.fromkeys(record["thresholds"], threshold), "speedup": {"1": speed, "20": 0.5}}
    text = exit_commands._text(record, {"run": "runs/mine", "figure": "exits.png"})
    assert ("--early" in text) is advised
    assert ("no exit pays" in text or "not faster" in text) is not advised


def test_the_page_shows_which_images_leave_where(calibrated: Path) -> None:
    page = write_report([calibrated]).read_text()
    assert "Early exits" in page
    assert "leaves at" in page


def test_the_runner_needs_no_torch_and_gives_the_same(calibrated: Path) -> None:
    folder = calibrated / "onnx"
    images = images_of(calibrated).images[:40]
    np.save(folder / "images.npy", images)
    code = (
        "import sys, json, numpy as np; from early_exits import EarlyExits\n"
        "images = np.load('images.npy'); early = EarlyExits('.', threads=1)\n"
        "found = [early(images), early(images[:1])]\n"
        "assert not {'torch', 'deepsup'} & sys.modules.keys()\n"
        "print(json.dumps([[each.tolist() for each in one] for one in found]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    (labels, confidences, exits), first = json.loads(done.stdout)
    early, model = load_exits(RunFolder(calibrated))
    out = early(model.normalize(to_tensor(images)))
    assert labels == out.labels.tolist()
    assert exits == out.exits.tolist()
    np.testing.assert_allclose(confidences, out.confidences.numpy(), atol=1e-4)
    assert [each[0] for each in first[::2]] == [labels[0], exits[0]]
    done = subprocess.run(
        [sys.executable, "early_exits.py", "images.npy"], cwd=folder, capture_output=True, text=True, check=True
    )
    assert len(done.stdout.splitlines()) == 40


def failure(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words) == 2
    said = capsys.readouterr().err.strip()
    assert "Traceback" not in said
    return said.splitlines()[-1]


def test_mistakes_end_in_one_line(trained: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    copytree(trained, tmp_path / "run")
    run = tmp_path / "run"
    (run / "exits.json").unlink(missing_ok=True)
    assert "has no thresholds yet; calibrate its exits first" in failure(
        ["predict", str(run), "x.png", "--early"], capsys
    )
    assert "is no run" in failure(["exits", str(tmp_path / "none")], capsys)
    for words, said in (
        (["--max-cost", "2"], "--max-cost 2.0; expected a fraction"),
        (["--max-cost", "0.5", "--max-error-increase", "1"], "expected one of them"),
        (["--max-error-increase", "-1"], "--max-error-increase -1.0; expected percentage points"),
        (["--batch-sizes", "0"], "batch_sizes=[0]; expected whole numbers"),
    ):
        assert said in failure(["exits", str(run), *words], capsys)


def test_thresholds_of_another_model_are_refused(
    calibrated: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    copytree(calibrated, tmp_path / "run")
    path = tmp_path / "run" / "exits.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"model": "0"}))
    assert "was made for another model" in failure(["predict", str(tmp_path / "run"), "x.png", "--early"], capsys)
    path.write_text(json.dumps(record | {"thresholds": {"group1": 7, "group2": None}}))
    assert "threshold of 'group1' is 7" in failure(["predict", str(tmp_path / "run"), "x.png", "--early"], capsys)
    path.write_text("{}")
    assert "cannot read" in failure(["predict", str(tmp_path / "run"), "x.png", "--early"], capsys)


@pytest.mark.slow
def test_a_run_without_companions_and_one_without_validation(
    digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    small = {
        "data": str(digits),
        "network": "fast",
        "network_options": {"widths": (4, 8)},
        "epochs": 1,
        "batch_size": 40,
    }
    plain = train(Config(**small, taps=("none",), tensorboard=False), tmp_path / "plain").folder
    assert "has no companions, so there is nothing to exit at" in failure(["exits", str(plain)], capsys)
    run = train(Config(**small, tensorboard=False), tmp_path / "run").folder
    assert main(["exits", str(run), "--batch-sizes", "8", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["images"] == 50
    assert answer["validation"]["of"] == "test"
    assert "every other test image chooses the thresholds" in caplog.text
