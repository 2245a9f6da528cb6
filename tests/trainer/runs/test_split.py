"""The split belongs to the run: whatever becomes of the folder or the .npz, nothing trained on is ever tested on."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from deepsup.cli import main
from deepsup.errors import DataError, RunError
from deepsup.trainer.config import Config
from deepsup.trainer.data import load_data, subset
from deepsup.trainer.networks import WhiteningConv2d, fit_whitening
from deepsup.trainer.runs._evaluate import evaluate
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.runs._inspect import inspect
from deepsup.trainer.runs._model import load_model
from deepsup.trainer.runs._train import train
from deepsup.trainer.training._build import build_net

CLASSES = ("three", "eight", "nine")
DIGITS = {"three": 3, "eight": 8, "nine": 9}


def save_digits(folder: Path, start: int, end: int, classes: tuple[str, ...] = CLASSES, prefix: str = "") -> None:
    """Write digits ``start`` to ``end`` of each class into a folder, sorted by class as folders are."""
    data = load_data().test
    for name in classes:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for index, image in enumerate(data.images[data.labels == DIGITS[name]][start:end], start):
            Image.fromarray(image[0]).save(folder / name / f"{prefix}{index:03}.png")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    save_digits(tmp_path / "photos", 0, 20)
    return tmp_path / "photos"


@pytest.fixture
def config(photos: Path) -> Config:
    return Config(data=str(photos), epochs=2, batch_size=10, lr=0.01, checkpoint_steps=1, tensorboard=False)


@pytest.fixture
def run(config: Config, tmp_path: Path) -> RunFolder:
    return train(config, tmp_path / "run")


def error_of(run: RunFolder, files: list[Path]) -> float:
    """The error on image files, each read and scored by itself; the class is the name of its folder."""
    model = load_model(run)
    wrong = 0
    for file in files:
        pixels = torch.from_numpy(np.array(Image.open(file)))[None, None]
        wrong += model.classes[int(model.net(model.normalize(pixels)).scores.argmax())] != file.parent.name
    return 100 * wrong / len(files)


def test_the_run_records_every_image_once(run: RunFolder, photos: Path) -> None:
    names = run.split["names"]
    every = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.png"))
    assert sorted(names["train"] + names["test"]) == every
    assert names["unused"] == []
    assert len(names["test"]) == 12


def test_a_folder_that_has_grown_is_tested_on_the_images_it_had(run: RunFolder, photos: Path, caplog) -> None:
    before = evaluate([run])
    save_digits(photos, 20, 60, prefix="a-")  # sorted before the others: every place shifts
    (photos / "three" / "broken.png").write_text("no image")
    save_digits(photos / "more", 0, 1)  # a new class: images of the run keep their labels
    after = evaluate([run])
    assert after == before
    assert (
        after["error"] == run.result["error"] == error_of(run, [photos / name for name in run.split["names"]["test"]])
    )
    assert "new since the run was begun, neither trained nor tested on: 124 images" in caplog.text
    found = inspect(run)
    assert found["images"] == 12
    assert found["probes"]["conv1"]["train_images"] == 48


def test_a_test_image_that_is_gone_is_named(run: RunFolder, photos: Path, caplog) -> None:
    first, *others = run.split["names"]["test"]
    (photos / first).unlink()
    answer = evaluate([run])
    assert answer["images"] == 11
    assert answer["error"] == error_of(run, [photos / name for name in others])
    assert f"gone: 1 of 12 test images, first {first}" in caplog.text
    for name in others:
        (photos / name).unlink()
    with pytest.raises(DataError, match=f"all test images of the run are gone, first {first}; bring them back"):
        evaluate([run])


def test_another_folder_is_tested_on_as_a_whole(run: RunFolder, photos: Path, tmp_path: Path) -> None:
    save_digits(tmp_path / "new", 30, 41)
    answer = evaluate([run], tmp_path / "new")
    assert answer["images"] == 33
    assert answer["error"] == error_of(run, list((tmp_path / "new").rglob("*.png")))
    own = evaluate([run], f"{photos}/../photos")  # the run's own, otherwise spelled
    assert own == evaluate([run])


def test_images_trained_on_are_no_test_images_elsewhere(run: RunFolder, photos: Path, tmp_path: Path, caplog) -> None:
    """The folder was moved and its files were renamed: only those that were not trained on are tested on."""
    tested = set(run.split["names"]["test"])
    kept = []
    for number, path in enumerate(sorted(photos.rglob("*.png"))):
        moved = tmp_path / "moved" / path.parent.name / f"{number}.png"
        moved.parent.mkdir(parents=True, exist_ok=True)
        moved.write_bytes(path.read_bytes())
        if path.relative_to(photos).as_posix() in tested:
            kept.append(moved)
    answer = evaluate([run], tmp_path / "moved")
    assert answer["images"] == 12
    assert answer["error"] == error_of(run, kept)
    assert "moved: 12 of 60 images were not trained on; only they are tested" in caplog.text
    for path in kept:
        path.unlink()
    with pytest.raises(
        DataError, match=r"0 of 48 images were not trained on.*expected images that the run has not seen"
    ):
        evaluate([run], tmp_path / "moved")


def test_an_npz_of_ones_own(config: Config, tmp_path: Path) -> None:
    """Rows are known by their pixels: rows added, removed and shuffled change nothing."""
    data = load_data().test
    images, labels = data.images[:200, 0].copy(), data.labels[:200].copy()
    images[41], labels[41] = images[40], labels[40]  # two rows alike
    path = tmp_path / "mine.npz"
    np.savez(path, images=images[:80], labels=labels[:80])
    trained = subset(load_data(path).train, 40).images[:, 0]
    run = train(config.replace(data=str(path), train_size=40), tmp_path / "run")
    assert {part: len(names) for part, names in run.split["names"].items()} == {"train": 40, "test": 13, "unused": 27}
    order = np.random.default_rng(0).permutation(200)
    np.savez(path, images=images[order], labels=labels[order])
    assert evaluate([run])["error"] == run.result["error"]
    np.savez(tmp_path / "other.npz", images=images, labels=labels)
    new = [not any((image == seen).all() for seen in trained) for image in images]
    assert evaluate([run], tmp_path / "other.npz")["images"] == sum(new) < 200
    np.savez(path, images=images[:, 1:], labels=labels)
    with pytest.raises(DataError, match=r"mine.npz: expected images \[1, 28, 28\], as when the run was begun"):
        evaluate([run])


def test_a_run_whose_folder_has_grown_goes_on_with_its_own_images(config: Config, photos: Path, tmp_path: Path) -> None:
    expected = train(config, tmp_path / "whole")
    train(config.replace(limit_steps=4), tmp_path / "run")
    save_digits(photos, 20, 40, prefix="a-")
    run = train(config, tmp_path / "run", resume=True)
    assert (run.result["error"], run.metrics[-1]["loss"]) == (expected.result["error"], expected.metrics[-1]["loss"])
    assert run.split == expected.split


def test_a_run_whose_training_image_is_gone(config: Config, photos: Path, tmp_path: Path) -> None:
    run = train(config.replace(limit_steps=4, validation=6), tmp_path / "run")
    gone = run.split["names"]["train"][5]
    (photos / gone).unlink()
    with pytest.raises(
        RunError, match=f"begun with training images that are gone from .*: 1 image, first {gone}; .*bring them"
    ):
        train(config.replace(validation=6), tmp_path / "run", resume=True)


def test_runs_with_other_test_parts_vote_on_what_both_have(
    run: RunFolder, config: Config, photos: Path, tmp_path: Path
) -> None:
    save_digits(photos, 20, 30, prefix="a-")
    other = train(config, tmp_path / "other")
    both = set(run.split["names"]["test"]) & set(other.split["names"]["test"])
    assert 0 < len(both) < 12
    assert evaluate([run, other])["images"] == len(both)


def test_a_run_of_an_older_version_says_that_its_parts_are_drawn_again(run: RunFolder, caplog) -> None:
    (run.folder / "split.json").unlink()
    assert evaluate([run])["error"] == run.result["error"]
    assert "has not recorded which images it was trained on" in caplog.text


def test_whitening_and_probes_see_every_class_of_a_sorted_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first class is flat, the second striped: fitted on the first images, whitening would know nothing of it."""
    for index in range(30):
        for name, pixels in (("flat", np.full((28, 28), index)), ("striped", np.tile([index, 200], (28, 14)))):
            (tmp_path / "sorted" / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "sorted" / name / f"{index:02}.png")
    monkeypatch.setattr("deepsup.trainer.runs._run_data.FITTED_IMAGES", 20)
    monkeypatch.setattr("deepsup.insight._probes.IMAGES", 20)
    config = Config(
        data=str(tmp_path / "sorted"), network="fast", network_options={"widths": [4, 4]}, epochs=1, batch_size=24,
        pool="avg", tensorboard=False,
    )  # fmt: skip
    run = train(config, tmp_path / "run")
    model = load_model(run)
    sample = subset(load_data(config.data.source).train, 20)
    assert sample.counts(2) == [10, 10]
    twin = build_net(config, 2, (1, 28, 28)).trunk
    fit_whitening(twin, model.normalize(torch.from_numpy(sample.images.copy())))
    layers = [next(m for m in net.modules() if isinstance(m, WhiteningConv2d)) for net in (model.net, twin)]
    torch.testing.assert_close(layers[0].weight, layers[1].weight)
    assert all(each["error"] == 0 for each in inspect(run)["probes"].values())


def test_the_verb_says_it_in_one_line(run: RunFolder, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_digits(photos, 20, 21)
    assert main(["evaluate", str(run.folder), "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["images"] == 12
    assert captured.err.count("\n") == 1
    assert "neither trained nor tested on: 3 images" in captured.err
