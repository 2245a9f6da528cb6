"""A trained run in Python: its net, its preprocessing and its classes, as the training left them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import deepsup
from deepsup.errors import DataError, RunError
from deepsup.trainer.config import Config


@pytest.fixture(scope="module")
def run(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> deepsup.Run:
    config = Config(data=str(digits), epochs=1, batch_size=30, lr=0.01, tensorboard=False, normalize="gcn")
    return deepsup.train(config, tmp_path_factory.mktemp("load") / "run")


def test_the_loaded_net_has_the_error_of_the_run(run: deepsup.Run, digits: Path) -> None:
    again = deepsup.Run(run.folder)
    net, test = again.load(), deepsup.load_data(digits).test
    assert isinstance(net, deepsup.DeeplySupervised)
    assert not net.training
    with torch.no_grad():
        out = net(again.preprocess(test.images))
    wrong = 100 * float((out.scores.argmax(1).numpy() != test.labels).mean())
    assert wrong == pytest.approx(run.result["error"])
    for tap, scores in out.companions.items():
        wrong = 100 * float((scores.argmax(1).numpy() != test.labels).mean())
        assert wrong == pytest.approx(run.result["companions"][tap])


def test_arrays_and_tensors_are_the_same_images(run: deepsup.Run, digits: Path) -> None:
    """Global contrast normalisation by hand: each image minus its mean, to norm 55."""
    images = deepsup.load_data(digits).test.images[:5]
    ready = run.preprocess(images)
    assert torch.equal(ready, run.preprocess(torch.from_numpy(images.copy())))
    values = images / 255 - (images / 255).mean((1, 2, 3), keepdims=True)
    expected = 55 * values / np.sqrt((values**2).sum((1, 2, 3), keepdims=True))
    np.testing.assert_allclose(ready.numpy(), expected, atol=1e-3)


def test_files(run: deepsup.Run, digits: Path, tmp_path: Path) -> None:
    image = deepsup.load_data(digits).test.images[:1]
    Image.fromarray(image[0, 0]).save(tmp_path / "digit.png")
    (answer,) = run.predict([tmp_path / "digit.png"])
    assert answer["label"] == run.classes[int(run.load()(run.preprocess(image)).scores.argmax())]
    assert run.classes == tuple("0123456789")


@pytest.mark.parametrize(
    ("images", "said"),
    [
        (np.zeros((2, 1, 28, 28)), "images are float64; expected a uint8 array or tensor"),
        (torch.zeros(2, 1, 28, 28), "images are torch.float32; expected a uint8 array or tensor"),
        (np.zeros((1, 28, 28), np.uint8), r"images are \[1, 28, 28\]; expected \[N,1,28,28\]; resize them"),
        (np.zeros((2, 3, 28, 28), np.uint8), r"images are \[2, 3, 28, 28\]; expected \[N,1,28,28\]"),
        (["digit.png"], "images are list; expected a uint8 array"),
    ],
)
def test_images_that_do_not_fit(run: deepsup.Run, images: object, said: str) -> None:
    with pytest.raises(DataError, match=said):
        run.preprocess(images)  # type: ignore[arg-type]


def test_a_run_that_is_not_finished(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is no run"):
        deepsup.Run(tmp_path).load()
