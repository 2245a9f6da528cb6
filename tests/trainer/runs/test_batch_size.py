"""The batch size for few images of the user's own: from a count of files, which must be that of the images read."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from deepsup.cli import main
from deepsup.trainer.config import Config
from deepsup.trainer.runs import RunFolder, with_batch_size
from deepsup.trainer.runs._run_data import about_images, draw_data, suited_batch_size


def picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.zeros((16, 16), np.uint8)).save(path)


def plain(root: Path) -> Path:
    for index in range(25):
        picture(root / "plain" / "ab"[index % 2] / f"{index}.png")
    (root / "plain" / "a" / ".hidden.txt").touch()
    return root / "plain"


def parted(root: Path) -> Path:
    for index in range(30):
        picture(root / "parted" / ("train" if index < 22 else "test") / "ab"[index % 2] / f"{index}.png")
    return root / "parted"


def masked(root: Path) -> Path:
    for index in range(20):
        picture(root / "masked" / "images" / f"{index}.png")
        picture(root / "masked" / "masks" / f"{index}.png")
    (root / "masked" / "classes.txt").write_text("ground\nhouse\n")
    return root / "masked"


def arrays(root: Path) -> Path:
    np.savez(root / "set.npz", images=np.zeros((40, 12, 12), np.uint8), labels=np.arange(40) % 2)
    return root / "set.npz"


@pytest.mark.parametrize("make", [plain, parted, masked, arrays])
@pytest.mark.parametrize("change", [{}, {"validation": 4}, {"train_size": 6}])
def test_the_count_is_that_of_the_images_that_are_read(make, change: dict[str, int], tmp_path: Path) -> None:
    path = make(tmp_path)
    config = Config(data=str(path), batch_size=1, **change)
    images = len(draw_data(config)[0].train)
    assert about_images(path, config) == pytest.approx(images, abs=1)
    assert with_batch_size(config.replace(batch_size=128)).run.batch_size == pytest.approx(images, abs=1) or images > 16


def test_a_tenth_of_the_images_as_a_power_of_two() -> None:
    for images in range(1, 3000):
        powers = [2**power for power in range(4, 12) if 2**power <= images // 10]
        assert suited_batch_size(images) == min(images, max(powers, default=16))


def test_few_images_train_with_small_batches_unless_a_size_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", "--data", str(plain(tmp_path)), "--limit-steps", "1", "--at", "none", "--out"]
    assert main([*words, "few"]) == 0
    note = "batches of 16 images, since there are few; --batch-size chooses another size"
    assert note in capsys.readouterr().out
    assert RunFolder("few").config.run.batch_size == 16
    assert main([*words, "given", "--batch-size", "10"]) == 0
    assert "since there are few" not in capsys.readouterr().out
    assert RunFolder("given").config.run.batch_size == 10
    assert with_batch_size(Config(train_size=100)).run.batch_size == 128, "a set known by name"
    assert with_batch_size(Config(data="nowhere")).run.batch_size == 128
