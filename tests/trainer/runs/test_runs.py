"""Whole runs: the same twice, the same through any stop, one process or two, and every mistake in one line."""

import json
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from deepsup.cli import main
from deepsup.errors import ConfigError, DataError, DeepsupError, RunError, TrainingError
from deepsup.trainer.config import Config, Phase
from deepsup.trainer.data import load_data
from deepsup.trainer.runs._evaluate import evaluate, predict
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.runs._model import load_model
from deepsup.trainer.runs._train import train
from deepsup.trainer.training import Callback
from deepsup.trainer.training import _checkpoint as checkpoint

TIMES = {"seconds", "images_per_second"}


def weights(run: RunFolder) -> dict[str, torch.Tensor]:
    return load_file(run.model)


def metrics(run: RunFolder) -> list[dict[str, Any]]:
    return [{key: value for key, value in record.items() if key not in TIMES} for record in run.metrics]


def assert_same(run: RunFolder, other: RunFolder) -> None:
    ours, theirs = weights(run), weights(other)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert metrics(run) == metrics(other)
    assert {k: v for k, v in run.result.items() if k not in TIMES} == {
        k: v for k, v in other.result.items() if k not in TIMES
    }


@pytest.fixture
def whole(small: Config, tmp_path: Path) -> RunFolder:
    """The run, uninterrupted."""
    return train(small, tmp_path / "whole")


def test_a_run_leaves_what_it_should(small: Config, whole: RunFolder) -> None:
    assert whole.config == small
    assert whole.finished
    assert [record["epoch"] for record in whole.metrics] == [0, 1, 2]
    record = whole.metrics[0]
    assert {
        "loss",
        "error",
        "lr",
        "companion_losses",
        "companion_errors",
        "active",
        "images_per_second",
    } <= record.keys()
    assert record["active"] == {"conv1": 1.0, "conv2": 1.0}
    assert {"python", "torch", "threads", "cores"} <= whole.environment.keys()
    assert {"error", "companions", "epochs", "seconds"} <= whole.result.keys()
    assert whole.result["steps"] == 24
    assert whole.metrics[-1]["loss"] < whole.metrics[0]["loss"]


def test_two_runs_with_one_seed_are_the_same_to_the_bit(small: Config, whole: RunFolder, tmp_path: Path) -> None:
    assert_same(train(small, tmp_path / "again"), whole)
    other = train(small.replace(seed=1), tmp_path / "other")
    assert not torch.equal(weights(other)["net.trunk.conv1.weight"], weights(whole)["net.trunk.conv1.weight"])


def test_what_layers_know_over_training(small: Config, tmp_path: Path) -> None:
    run = train(small.replace(test_every=1, tensorboard=True), tmp_path / "run")
    assert [sorted(record["test_layers"]) for record in run.metrics] == [["conv1", "conv2", "output"]] * 3
    for record in run.metrics:
        for layer, facts in record["test_layers"].items():
            matrix = np.array(facts["confusion"])
            error = record["test_error"] if layer == "output" else record["test_companions"][layer]
            assert matrix.sum() == 100
            assert 100 - matrix.trace() == pytest.approx(error)
            assert 0 < facts["confidence"] <= 1
    assert run.metrics[-1]["test_layers"] == run.insight["layers"]


def test_tensorboard_events(small: Config, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = train(small.replace(tensorboard=True), tmp_path / "run")
    events = EventAccumulator(str(run.folder)).Reload()
    seen = [event.value for event in events.Scalars("companion_errors/conv1")]
    assert seen == pytest.approx([record["companion_errors"]["conv1"] for record in run.metrics])


def test_a_stall_divides_the_rate(small: Config, tmp_path: Path) -> None:
    """The rule by hand: after every ``patience`` epochs without a better validation error, divide by the factor."""
    config = small.replace(
        anneal="plateau", patience=2, validation=40, anneal_factor=2.0, epochs=10, lr=1e-5, test=False
    )
    records = train(config, tmp_path / "run").metrics
    best, since, rate = float("inf"), 0, 1e-5
    for record in records:
        assert record["lr"] == pytest.approx(rate)
        since = 0 if record["validation_error"] < best else since + 1
        best = min(best, record["validation_error"])
        if since and since % 2 == 0:
            rate /= 2
    assert rate < 1e-5  # at so low a rate it has stalled


class Crash(Callback):
    """Ends the training at a step, as a crash would."""

    def __init__(self, at: int) -> None:
        self.at = at

    def step_ended(self, training: Any) -> None:
        if training.iteration == self.at:
            raise RuntimeError("crash")


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "everything": {
        "ema": 0.9, "anneal": "plateau", "patience": 1, "validation": 40, "augment": "crop", "nesterov": True,
        "select": "best", "loss": "softmax", "label_smoothing": 0.1, "schedule": "paper", "test_every": 2,
    },
    "phases": {
        "phases": (
            Phase(1, 0.001, only="conv1"), Phase(1, 0.001, only="conv2"), Phase(1, 0.001),
            Phase(1, 0.001, companions=False, reset_momentum=True),
        ),
    },
    "fast": {"network": "fast", "network_options": {"widths": [8, 8]}, "pool": "avg", "companion_lr": 1.0},
    "bfloat16": {
        "network": "fast", "network_options": {"widths": [8, 8]}, "amp": "on", "ema": 0.9, "clip_norm": 0.5,
        "balance": "softmax", "loss": "squared_hinge_ovr", "output_init": "zero",
    },
}  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_resumed_after_any_step_it_is_the_same(small: Config, tmp_path: Path, variant: str) -> None:
    config = small.replace(**VARIANTS[variant])
    expected = train(config, tmp_path / "expected")
    steps = expected.result["steps"]
    for at in sorted(random.Random(0).sample(range(1, steps), 4)):
        folder = tmp_path / f"crash{at}"
        with pytest.raises(RuntimeError, match="crash"):
            train(config, folder, callbacks=[Crash(at)])
        torch.manual_seed(at)  # another state of the world
        assert_same(train(config, folder, resume=True), expected)


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1"}


def knobs(config: Config) -> list[str]:
    flags = {"data": config.data.source, "epochs": 20, "batch-size": 30, "checkpoint-steps": 1, "lr": 0.003}
    return [word for name, value in flags.items() for word in (f"--{name}", str(value))]


SERVER = multiprocessing.get_context("forkserver")  # it imports torch once for all the processes of a test
SERVER.set_forkserver_preload(["deepsup.cli", "deepsup.trainer.runs._train"])


def run_verb(words: list[str]) -> None:
    torch.set_num_threads(1)
    sys.exit(main(words))


def started(out: Path, *more: str) -> Any:
    process = SERVER.Process(target=run_verb, args=(["train", "--out", str(out), "--resume", *more],))
    process.start()
    return process


@pytest.mark.slow
def test_killed_at_ten_random_moments(small: Config, tmp_path: Path) -> None:
    """Kill -9, then --resume, ten times over: the run folder is never unreadable, the end is the same to the bit."""
    draw = random.Random(1)
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    whole = started(straight, *knobs(small))
    whole.join()
    assert whole.exitcode == 0
    for target in sorted(draw.sample(range(1, RunFolder(straight).result["steps"] - 30), 10)):
        # the settings come with the first call; afterwards the run has its own
        process = started(killed, *([] if RunFolder(killed).exists else knobs(small)))
        until = time.monotonic() + 120
        while last_step(killed) < target and process.is_alive() and time.monotonic() < until:
            time.sleep(0.002)
        time.sleep(draw.random() * 0.02)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        held = checkpoint.all_steps(RunFolder(killed).checkpoints)
        assert held
        checkpoint.load(held[-1])
        assert RunFolder(killed).config == RunFolder(straight).config
        assert isinstance(RunFolder(killed).metrics, list)
    last = started(killed)
    last.join()
    assert last.exitcode == 0
    assert_same(RunFolder(killed), RunFolder(straight))


def last_step(folder: Path) -> int:
    held = checkpoint.all_steps(folder / "checkpoints")
    return int(held[-1].stem.split("-")[1]) if held else 0


# a shell's background jobs begin with SIGINT ignored, and so would what they start
INTERRUPTIBLE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from deepsup.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_signal_saves_and_leaves(small: Config, tmp_path: Path, number: int, code: int) -> None:
    flags = ["--data", small.data.source, "--epochs", "2000", "--batch-size", "30", "--checkpoint-minutes", "60"]
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, "train", "--out", str(tmp_path / "run"), *flags], stderr=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    assert process.stderr is not None
    process.stderr.readline()  # an epoch has ended
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert "Traceback" not in said
    state = checkpoint.load(checkpoint.all_steps(tmp_path / "run" / "checkpoints")[-1])
    assert state["counters"][2] > 0
    assert not RunFolder(tmp_path / "run").finished


def test_phases_do_what_they_say(small: Config, tmp_path: Path) -> None:
    """Greedy phases move one companion and the layers below it alone; without companions, the trunk alone."""
    states: list[dict[str, torch.Tensor]] = []

    class Note(Callback):
        def started(self, training: Any) -> None:
            states.append({name: value.clone() for name, value in training.net.state_dict().items()})

        def epoch_ended(self, training: Any, _record: dict[str, Any]) -> None:
            self.started(training)

    train(small.replace(**VARIANTS["phases"]), tmp_path / "run", callbacks=[Note()])
    moved = [
        {name for name in after if not torch.equal(before[name], after[name])} for before, after in pairwise(states)
    ]
    head = {tap: {f"heads.{tap}.classifier.{p}" for p in ("weight", "bias")} for tap in ("conv1", "conv2")}
    trunk = {name for name in states[0] if name.startswith("trunk")}
    conv1, conv2 = ({name for name in trunk if tap in name} for tap in ("conv1", "conv2"))
    assert moved == [conv1 | head["conv1"], conv1 | conv2 | head["conv2"], trunk | head["conv1"] | head["conv2"], trunk]


TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "deepsup"]


@pytest.mark.slow
def test_two_processes_train_the_same_net(small: Config, tmp_path: Path) -> None:
    """No dropout, no BatchNorm, an odd batch: after 50 steps the weights agree, also through a stop."""
    # a low rate: at 0.01 twins in one process, rows of a batch reversed, are 1e-2 apart after 50 steps (dev/LOG.md)
    config = small.replace(
        batch_size=31, epochs=7, lr=0.001, gamma=(1.5,), network_options={"drop": 0.0}, limit_steps=50,
        checkpoint_steps=20, clip_norm=0.5,
    )  # fmt: skip
    one = train(config, tmp_path / "one")
    (tmp_path / "config.yaml").write_text(config.to_yaml())

    def together(out: Path, *more: str) -> None:
        words = ["train", "--out", str(out), *more]
        done = subprocess.run([*TORCHRUN, *words], env=environment(), capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr

    two = RunFolder(tmp_path / "two")
    together(two.folder, "--config", str(tmp_path / "config.yaml"), "--limit-steps", "30")
    (two.folder / "result.json").unlink()
    together(two.folder, "--resume", "--limit-steps", "50")
    for key, value in weights(one).items():
        torch.testing.assert_close(weights(two)[key], value, atol=1e-5, rtol=1e-5, msg=key)
    for ours, theirs in zip(one.metrics, two.metrics, strict=True):
        assert ours["error"] == pytest.approx(theirs["error"], abs=0.5)
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-3)


def test_predict_says_of_files_what_evaluate_says_of_images(whole: RunFolder, small: Config, tmp_path: Path) -> None:
    test = load_data(small.data.source).test
    files = []
    for index in range(20):
        files.append(tmp_path / f"{index}.png")
        Image.fromarray(test.images[index, 0]).save(files[-1])
    answers = predict(whole, files)
    wrong = sum(
        answer["label"] != load_data(small.data.source).classes[test.labels[i]] for i, answer in enumerate(answers)
    )
    model = load_model(whole)
    scores = model.net(model.normalize(torch.from_numpy(test.images[:20].copy()))).scores
    assert wrong == int((scores.argmax(1).numpy() != test.labels[:20]).sum())
    assert [answer["confidence"] for answer in answers] == pytest.approx(scores.softmax(1).amax(1).tolist(), rel=1e-4)
    assert evaluate([whole])["error"] == whole.result["error"]


def test_several_runs_vote_by_their_scores(small: Config, whole: RunFolder, tmp_path: Path) -> None:
    other = train(small.replace(seed=5), tmp_path / "other")
    test = load_data(small.data.source).test
    total = torch.zeros(100, 10)
    for run in (whole, other):
        model = load_model(run)
        with torch.no_grad():
            total += model.net(model.normalize(torch.from_numpy(test.images.copy()))).scores
    expected = 100 * float((total.argmax(1).numpy() != test.labels).mean())
    assert evaluate([whole, other])["error"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"device": "cuda"}, TrainingError, "device=cuda, but torch finds no CUDA here; use --device cpu"),
        ({"device": "gpu"}, ConfigError, "device='gpu'; expected auto, cpu, cuda or cuda:N"),
        (
            {"batch_size": 241},
            TrainingError,
            "batch_size=241 with 240 training images; expected at most that many; give e.g. --batch-size 24",
        ),
        (
            {"lr": 100.0, "loss": "squared_hinge"},
            TrainingError,
            r"training diverged at epoch \d+, step \d+ .*lower lr \(now .*\) or alpha",
        ),
        ({"network": "cn"}, DeepsupError, "no network is called 'cn'"),
        ({"network": "nowhere:net"}, ConfigError, "network=nowhere:net cannot be built"),
        ({"network": "builtins:dict"}, ConfigError, "gives a dict; expected a torch.nn.Module"),
        ({"taps": ("conv9",)}, DeepsupError, "no layer 'conv9'"),
        ({"augment": "crp"}, ConfigError, "augment='crp'; did you mean 'crop'"),
        ({"alpha": (1.0, 2.0, 3.0)}, DeepsupError, "alpha has 3 values for 2 taps"),
        ({"phases": (Phase(1, 0.1, only="conv7"),)}, TrainingError, "a phase trains only 'conv7'; did you mean"),
        ({"train_size": 1000}, DeepsupError, "cannot take 1,000 of 240 images"),
    ],
)
def test_runs_that_cannot_be(small: Config, tmp_path: Path, change: dict[str, Any], kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        train(small.replace(**change), tmp_path / "run")


def test_a_divergence_keeps_the_last_good_checkpoint(small: Config, tmp_path: Path) -> None:
    config = small.replace(checkpoint_steps=1, phases=(Phase(1, 0.01), Phase(2, 1e6)))
    with pytest.raises(TrainingError, match="diverged at epoch 1"):
        train(config, tmp_path / "run")
    state = checkpoint.load(checkpoint.all_steps(tmp_path / "run" / "checkpoints")[-1])
    assert all(value.isfinite().all() for value in state["net"].values())


def test_a_folder_that_holds_a_run(small: Config, whole: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="already holds a run; resume it"):
        train(small, whole.folder)
    other = small.replace(lr=0.02, epochs=9)
    with pytest.raises(RunError, match=r"started with another config \(lr 0\.01 -> 0\.02, epochs 3 -> 9\)"):
        train(other, whole.folder, resume=True)
    (whole.folder / "config.yaml").rename(whole.folder / "lost.yaml")  # what is left is a run still
    with pytest.raises(RunError, match="already holds a run"):
        train(other, whole.folder)
    (whole.folder / "lost.yaml").rename(whole.folder / "config.yaml")
    before = (whole.folder / "result.json").read_text()
    assert train(None, whole.folder, resume=True).result == json.loads(before)  # it has ended: nothing to do


def test_a_limit_is_a_stop_like_any_other(small: Config, whole: RunFolder, tmp_path: Path) -> None:
    for steps in (5, 8, 9, 20, None):
        run = train(small.replace(limit_steps=steps), tmp_path / "run", resume=True)
        assert run.result["steps"] == (steps or 24)
        assert run.result["limited"] is (steps is not None)
    assert_same(run, whole)


def test_it_goes_on_with_the_same_data_only(small: Config, digits: Path, tmp_path: Path) -> None:
    held = np.load(digits)
    arrays = {name: held[name] for name in held.files}
    np.savez(tmp_path / "mine.npz", **arrays)
    config = small.replace(data=str(tmp_path / "mine.npz"), limit_steps=4)
    train(config, tmp_path / "run")
    arrays["y_train"] = arrays["y_train"][::-1]
    np.savez(tmp_path / "mine.npz", **arrays)
    with pytest.raises(RunError, match="was begun with other training images or classes"):
        train(config.replace(limit_steps=None), tmp_path / "run", resume=True)


def test_a_model_that_is_lost_is_made_again(small: Config, whole: RunFolder) -> None:
    expected = weights(whole)
    whole.model.unlink()
    again = weights(train(small, whole.folder, resume=True))
    assert all(torch.equal(again[name], expected[name]) for name in expected)


def test_a_folder_that_cannot_be_made(small: Config, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError, match=r"cannot write .*/file"):
        train(small, tmp_path / "file")


def test_models_with_logits_and_a_phase_without_companions(small: Config, tmp_path: Path) -> None:
    config = small.replace(network="nets:logits_net", taps=("conv1",), phases=VARIANTS["phases"]["phases"][2:])
    assert train(config, tmp_path / "run").finished


def test_rectangular_images_and_what_to_do(small: Config, tmp_path: Path) -> None:
    """The remedy is one that works: arrays are not resized by deepsup, files are."""
    np.savez(tmp_path / "wide.npz", images=np.zeros((40, 20, 24), np.uint8), labels=np.arange(40) % 2)
    with pytest.raises(ConfigError, match=r"20x24 for cnn.*; save the arrays as 24x24, or bring a network of your own"):
        train(small.replace(data=str(tmp_path / "wide.npz")), tmp_path / "run")
    for index in range(40):
        path = tmp_path / "wide" / "ab"[index % 2] / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (24, 20)).save(path)
    config = small.replace(data=str(tmp_path / "wide"))
    with pytest.raises(ConfigError, match="give --image-size 24, or bring"):
        train(config, tmp_path / "run")
    assert train(config.replace(image_size=24, limit_steps=1), tmp_path / "run").finished


def test_runs_and_data_that_do_not_fit(whole: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"is no run: it has no config\.yaml; expected a folder that .* made$"):
        evaluate([RunFolder(tmp_path / "nothing")])
    with pytest.raises(RunError, match=rf"made, e\.g\. {re.escape(str(whole.folder))}$"):
        evaluate([RunFolder(whole.folder.parent)])
    with pytest.raises(DataError, match="no image file given"):
        predict(whole, [])
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for index in range(2):
            Image.new("L", (28, 28), index).save(tmp_path / "pets" / name / f"{index}.png")
    with pytest.raises(DataError, match=r"has 2 classes \(cat, dog.*trained on 10"):
        evaluate([whole], tmp_path / "pets")
    (whole.model).write_bytes(b"not a model")
    with pytest.raises(RunError, match="is not a model that deepsup wrote"):
        evaluate([whole])
    whole.model.unlink()
    with pytest.raises(RunError, match=r"has no model\.safetensors yet"):
        evaluate([whole])
