"""Runs on masks: trained, evaluated, predicted and reported by the command, on scenes and on a folder of one's own."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from deepsup import Config, Run, load_data, train
from deepsup.cli import main
from deepsup.cli.progress import summary_of
from deepsup.trainer.report._read import RunRecord
from deepsup.trainer.report._training_figures import draw_dense_errors, draw_layer_errors

SMALL = {"network": "unet-small", "network_options": {"widths": [4, 6, 8]}, "tensorboard": False, "batch_size": 8}
SCENES = Config(data="digits-scenes-small", train_size=24, epochs=1, loss="dice_ce", **SMALL)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(SCENES, tmp_path_factory.mktemp("runs") / "scenes")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten scenes as a folder of images and masks."""
    path = tmp_path_factory.mktemp("own") / "set"
    part = load_data("digits-scenes-small").train
    for name in ("images", "masks"):
        (path / name).mkdir(parents=True)
    for index in range(10):
        Image.fromarray(part.images[index, 0]).save(path / "images" / f"{index}.png")
        Image.fromarray(part.labels[index]).save(path / "masks" / f"{index}.png")
    (path / "classes.txt").write_text("\n".join(load_data("digits-scenes-small").classes))
    return path


def test_a_run_records_metrics_of_every_output(run: Run) -> None:
    result = run.result
    assert set(result["companions"]) == {"decoder2"}
    assert result["error"] == pytest.approx(100 - result["metrics"]["miou"])
    assert next(iter(result["metrics"]["iou_per_class"])) == "background"
    assert "boundary_f" not in result["metrics"]
    net = run.load()
    images = load_data("digits-scenes-small").test.images[:3]
    assert net(run.preprocess(images)).scores.shape == (3, 11, 32, 32)


def test_evaluate_and_predict(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["evaluate", str(run.folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["error"] == pytest.approx(run.result["error"])
    assert set(found["metrics"]) == {"decoder2", "output"}
    assert main(["evaluate", str(run.folder)]) == 0
    assert "mean IoU" in capsys.readouterr().out
    image = tmp_path / "scene.png"
    Image.fromarray(load_data("digits-scenes-small").test.images[0, 0]).resize((50, 40)).save(image)
    words = ["predict", str(run.folder), str(image), "--out", str(tmp_path / "masks"), "--json"]
    assert main(words) == 0
    (said,) = json.loads(capsys.readouterr().out)["predictions"]
    mask = Image.open(said["mask"])
    assert (mask.size, mask.mode) == ((50, 40), "P")
    assert sum(said["classes"].values()) == pytest.approx(1, abs=1e-4)
    assert np.asarray(mask).max() <= 10


def test_the_report_shows_every_side_output(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["report", str(run.folder), "--json"]) == 0
    page = Path(json.loads(capsys.readouterr().out)["report"]).read_text()
    for words in ("Side outputs", "mean IoU", "Test image 0: image", "truth", "decoder2", "Test image 5: output"):
        assert words in page, words
    assert "Wrong pixels of every layer of" in page
    assert "repeat(4, " in page  # a row per test image: image, truth, decoder2, output
    assert '<i style="background: rgb(0, 114, 178)"></i>0</span>' in page  # class 0 is number 1


def test_wrong_pixels_do_not_stand_beside_the_mean_iou(tmp_path: Path) -> None:
    epoch = {"companion_errors": {"decoder2": 9.0}, "error": 7.0, "validation_error": 80.0, "loss": 1.0, "lr": 0.1,
             "images_per_second": 9.0}  # fmt: skip
    record = RunRecord("scenes", tmp_path, {}, {}, [epoch, epoch], None, {"dense": {}})
    errors, iou = draw_layer_errors(record), draw_dense_errors(record)
    assert errors is not None
    assert iou is not None
    assert "output 7" in errors.alt
    assert "80" not in errors.alt
    assert "output, validation 80" in iou.alt
    images = dataclasses.replace(record, insight={})
    assert draw_dense_errors(images) is None
    together = draw_layer_errors(images)
    assert together is not None
    assert "output, validation 80" in together.alt
    assert "wrong pixels 7.00 % (decoder2 9.0)  validation 80.00 %" in summary_of(epoch, dense=True)
    assert "train error 7.00 %" in summary_of(epoch)


def test_a_run_is_resumed_where_it_stopped(tmp_path: Path) -> None:
    whole = train(SCENES, tmp_path / "whole")
    train(SCENES.replace(limit_steps=2), tmp_path / "parts")
    parts = train(SCENES, tmp_path / "parts", resume=True)
    assert parts.result["error"] == whole.result["error"]
    assert parts.result["metrics"] == whole.result["metrics"]


def test_a_folder_of_images_and_masks(folder: Path, tmp_path: Path, run: Run, capsys: pytest.CaptureFixture) -> None:
    config = Config(data=str(folder), epochs=1, validation=2, loss="softmax", **(SMALL | {"batch_size": 3}))
    own = train(config, tmp_path / "own")
    assert own.result["test_images"] == 2
    assert own.classes == load_data("digits-scenes-small").classes
    assert main(["evaluate", str(own.folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["error"] == pytest.approx(own.result["error"])
    assert main(["evaluate", str(run.folder), "--data", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["images"] == 10


def test_edges_have_a_boundary_f(tmp_path: Path) -> None:
    config = Config(data="digits-scenes-edges", train_size=8, epochs=1, loss="balanced_bce", **SMALL)
    metrics = train(config, tmp_path / "edges").result["metrics"]
    assert 0 <= metrics["boundary_f"]["f"] <= 100


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--data", "digits-scenes", "--network", "cnn"],
            "a mask per image, but cnn gives one set of scores per image",
        ),
        (["--data", "mnist-mini", "--network", "unet-small"], "one label per image, but unet-small gives scores of"),
        (["--data", "digits-scenes", "--network", "unet-small", "--augment", "crop"], "the masks would not follow"),
        (["--data", "digits-scenes", "--network", "unet-small", "--class-weights", "1", "2"], "for 11 classes"),
        (["--data", "mnist-mini", "--loss", "dice"], "loss='dice' with scores"),
    ],
)
def test_settings_that_do_not_fit(words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["train", *words, "--out", str(tmp_path / "run"), "--train-size", "8", "--batch-size", "4"]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert said in lines[-1]


def test_what_is_for_labels_only(run: Run, capsys: pytest.CaptureFixture) -> None:
    for words in (["inspect"], ["exits"], ["predict", "x.png", "--early"]):
        assert main([words[0], str(run.folder), *words[1:]]) == 2
        assert "scores every pixel; expected a run with one label per image" in capsys.readouterr().err
    assert main(["evaluate", str(run.folder), str(run.folder)]) == 2
    assert "evaluate each by itself" in capsys.readouterr().err
