"""--tta and --amp-test: the mean over views computed by hand, in which precision, and that neither is ever silent."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from deepsup import Config, Run, train
from deepsup.errors import ConfigError
from deepsup.insight import measure
from deepsup.trainer.preprocess import to_tensor
from deepsup.trainer.runs import evaluate, predict
from deepsup.trainer.runs._model import load_model
from deepsup.trainer.training import _precision as precision_room
from deepsup.trainer.training import answering, build_net
from deepsup.trainer.training._precision import Bfloat16

SMALL = Config(
    train_size=40, batch_size=20, epochs=1, lr=0.01, tensorboard=False, at=("network",), network="fast",
    network_options={"widths": [8, 8]}, seed=1,
)  # fmt: skip


def moved_by_hand(images: Tensor, pixels: int) -> Tensor:
    """Pixel by pixel: what was at (row - pixels, column - pixels), or at the border next to it."""
    height, width = images.shape[2:]
    out = torch.empty_like(images)
    for row in range(height):
        for column in range(width):
            from_row, from_column = min(max(row - pixels, 0), height - 1), min(max(column - pixels, 0), width - 1)
            out[:, :, row, column] = images[:, :, from_row, from_column]
    return out


def mirrored_by_hand(images: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(images.numpy()[:, :, :, ::-1]))


def by_hand(tta: str, images: Tensor) -> list[tuple[float, Tensor]]:
    shifts = [(1.0, images)]
    if tta in ("shift", "flip-shift"):
        shifts = [(0.5, images), (0.25, moved_by_hand(images, 1)), (0.25, moved_by_hand(images, -1))]
    if tta in ("none", "shift"):
        return shifts
    mirrored = mirrored_by_hand(images)
    again = by_hand("shift" if tta == "flip-shift" else "none", mirrored)
    return [(weight / 2, view) for weight, view in (*shifts, *again)]


@pytest.mark.parametrize("tta", ["none", "flip", "shift", "flip-shift"])
def test_scores_are_the_mean_over_views_computed_by_hand(tta: str) -> None:
    torch.manual_seed(0)
    config = SMALL.replace(tta=tta)
    net = build_net(config, 10, (1, 28, 28)).eval()
    images = torch.randn(3, 1, 28, 28)
    with torch.no_grad():
        answer = answering(config, net)(images)
        outputs = [(weight, net(view)) for weight, view in by_hand(tta, images)]
    assert sum(weight for weight, _ in outputs) == 1
    assert torch.allclose(answer.scores, sum(weight * each.scores for weight, each in outputs), atol=1e-6)
    for tap, scores in answer.companions.items():
        assert torch.allclose(scores, sum(weight * each.companions[tap] for weight, each in outputs), atol=1e-6)
    if tta == "none":
        assert torch.equal(answer.scores, net(images).scores)  # to the bit: nothing is averaged


def test_views_of_every_pixels_scores_are_refused() -> None:
    config = Config(network="unet-small", tta="flip", at=("network",))
    with pytest.raises(ConfigError, match=r"^tta=flip for a net that scores every pixel; expected tta=none"):
        answering(config, build_net(config, 2, (1, 64, 64)))
    config = config.replace(data="digits-scenes", train_size=8, batch_size=4)
    with pytest.raises(ConfigError, match="tta=flip for a net that scores every pixel"):
        train(config, "unused")


def test_unknown_views_are_refused() -> None:
    with pytest.raises(ConfigError, match="tta"):
        Config(tta="mirror")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(SMALL.replace(amp="on", tta="flip"), tmp_path_factory.mktemp("run") / "run")


def error_by_hand(run: Run, tta: str) -> float:
    from deepsup import load_data

    test = load_data("mnist-mini").test
    images = run.preprocess(test.images)
    net = run.load()
    scores = torch.zeros(len(images), 10)
    with torch.no_grad():
        for weight, view in by_hand(tta, images):
            scores += weight * torch.cat([net(part).scores for part in torch.split(view, 500)])
    wrong = scores.argmax(1) != torch.from_numpy(test.labels)
    return 100 * float(wrong.double().mean())


def test_a_run_records_its_views_and_evaluate_repeats_them_or_takes_others(run: Run) -> None:
    assert (run.result["tta"], run.result["measured_in"]) == ("flip", "float32")
    assert run.result["error"] == pytest.approx(error_by_hand(run, "flip"), abs=1e-9)
    own, none, both = (evaluate([run], tta=tta) for tta in (None, "none", "flip-shift"))
    assert [each["tta"] for each in (own, none, both)] == ["flip", "none", "flip-shift"]
    assert own["error"] == run.result["error"]
    assert own["companions"] == run.result["companions"]
    assert none["error"] == pytest.approx(error_by_hand(run, "none"), abs=1e-9)
    assert both["error"] == pytest.approx(error_by_hand(run, "flip-shift"), abs=0.021)  # a tie may fall otherwise
    with pytest.raises(ConfigError, match="tta"):
        evaluate([run], tta="rotate")


def test_predict_averages_the_views(run: Run, tmp_path: Path) -> None:
    from PIL import Image

    from deepsup import load_data

    pixels = load_data("mnist-mini").test.images[7]
    Image.fromarray(pixels[0]).save(tmp_path / "digit.png")
    (answer,) = predict(run, [tmp_path / "digit.png"], tta="flip")
    images = run.preprocess(pixels[None])
    with torch.no_grad():
        scores = (run.load()(images).scores + run.load()(mirrored_by_hand(images)).scores) / 2
    assert answer["label"] == str(int(scores.argmax()))
    assert answer["confidence"] == pytest.approx(float(scores.double().softmax(1).max()), abs=1e-6)
    assert run.predict([tmp_path / "digit.png"], tta="none") != [answer]


def test_errors_are_measured_in_float32_unless_asked(run: Run) -> None:
    """Runs that were recorded in bfloat16 repeat to the digit: their errors come from float32, without views."""
    assert not Config().run.amp_test
    model = load_model(run)
    images, labels = to_tensor(np.zeros((4, 1, 28, 28), np.uint8)), torch.zeros(4, dtype=torch.long)
    plain = measure(model.net, images, labels, model.normalize)
    assert torch.equal(model.asked("none", None).measure(images.numpy()).scores, plain.scores)
    assert torch.equal(model.asked("none", "off").measure(images.numpy()).scores, plain.scores)


@pytest.mark.parametrize("asked", ["run", "verb", "auto"])
def test_evaluation_in_bfloat16_is_that_of_autocast(
    asked: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision_room, "bfloat16_on", lambda _: Bfloat16(True, "it says so"))
    if asked == "run":
        run = train(SMALL.replace(amp="on", amp_test=True), tmp_path / "run")
        assert run.result["measured_in"] == "bfloat16"
        assert evaluate([run])["error"] == run.result["error"]
    amp: Any = {"run": None, "verb": "on", "auto": "auto"}[asked]
    model = load_model(run).asked("none", amp)
    images = np.random.default_rng(0).integers(0, 256, (20, 1, 28, 28), np.uint8)
    measured = model.measure(images)
    with torch.no_grad():
        single = model.net(model.normalize(to_tensor(images))).scores
        seen: list[torch.dtype] = []
        handle = model.net.trunk.get_submodule("group1").register_forward_hook(
            lambda _m, _g, out: seen.append(out.dtype)
        )
        model.measure(images)
        handle.remove()
    assert model.how() == {"tta": "none", "measured_in": "bfloat16"}
    assert seen == [torch.bfloat16]
    assert measured.scores.dtype == torch.float32
    assert not torch.equal(measured.scores, single)
    assert (measured.scores - single).abs().max() < 0.05 * single.abs().max()


def test_averaged_weights_answer_in_bfloat16_too(tmp_path: Path) -> None:
    run = train(SMALL.replace(amp="on", amp_test=True, ema=0.9, validation=20), tmp_path / "run")
    assert run.result["measured_in"] == "bfloat16"
    assert run.result["error"] == evaluate([run])["error"]
