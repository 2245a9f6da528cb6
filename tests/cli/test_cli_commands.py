"""Commands that the command line prints: pasted as they stand, they go on with what the user had begun."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from deepsup.cli import main, run_commands
from deepsup.trainer.config import Config
from deepsup.trainer.recipes import caffe_cifar10
from deepsup.trainer.runs._folder import RunFolder

SMALL = [
    "--network",
    "fast",
    "--network-options",
    "widths=[8,8]",
    "--pool",
    "avg",
    "--batch-size",
    "20",
    "--image-size",
    "12",
]


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder of images of two classes, whose name needs quoting, under the working folder."""
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    for name, light in (("cat", 0), ("dog", 128)):
        folder = tmp_path / "my 'photos'" / name
        folder.mkdir(parents=True)
        for index in range(40):
            Image.fromarray(draw.integers(light, light + 127, (14, 14), dtype=np.uint8)).save(folder / f"{index}.png")
    return "my 'photos'"


def printed(words: list[str], capsys: pytest.CaptureFixture) -> list[list[str]]:
    """Run a command and return the commands that it prints as next, as a shell would split them."""
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    found = [shlex.split(line.removeprefix("next: ")) for line in lines if line.startswith("next: ")]
    assert all(command[0] == "deepsup" for command in found)
    return [command[1:] for command in found]


def test_what_train_prints_can_be_pasted(photos: str, capsys: pytest.CaptureFixture) -> None:
    words = ["train", "--data", photos, *SMALL, "--epochs", "1", "--lr", "0.01", "--no-test", "--out", "runs/my run"]
    inspect, compare = printed(words, capsys)
    assert inspect == ["inspect", "runs/my run"]
    assert main([*inspect, "--json"]) == 0
    capsys.readouterr()
    assert main([*compare, "--seeds", "1", "--json"]) == 0
    config = json.loads(capsys.readouterr().out)["config"]
    trained = RunFolder("runs/my run").config
    for name in ("data", "image_size", "network", "pool", "batch_size", "epochs", "train_size", "lr"):
        assert config[name] == {**trained.to_dict(), "data": photos}[name], name
    out = Path(compare[compare.index("--out") + 1])
    assert out != Path("runs/my run")
    assert (out / "comparison.json").is_file()
    # the folder is taken now: the next command names another one
    again = printed([*words, "--resume"], capsys)[1]
    assert not Path(again[again.index("--out") + 1]).exists()


def test_a_resumed_run_hands_on_its_own_config(photos: str, capsys: pytest.CaptureFixture) -> None:
    words = ["train", "--data", photos, *SMALL, "--epochs", "1", "--out", "run"]
    printed(words, capsys)
    *_, compare = printed(["train", "--out", "run", "--resume"], capsys)
    assert compare[compare.index("--config") + 1] == str(Path("run/config.yaml"))


def test_without_data_the_embedded_digits_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    *_, compare = printed(["train", "--limit-steps", "1", "--no-tensorboard"], capsys)
    assert compare[compare.index("--data") + 1] == "mnist-mini"


def test_a_comparison_is_offered_of_the_loss_that_was_trained_or_not_at_all(
    photos: str, capsys: pytest.CaptureFixture
) -> None:
    base = ["train", "--data", photos, *SMALL, "--epochs", "1"]
    *_, compare = printed([*base, "--loss", "squared_hinge", "--out", "a"], capsys)
    assert compare[compare.index("--methods") + 1 :][:2] == ["CNN-SVM", "DSN-SVM"]
    assert "compare" not in [each[0] for each in printed([*base, "--loss", "hinge", "--out", "b"], capsys)]


def test_what_compare_prints_can_be_pasted(photos: str, capsys: pytest.CaptureFixture) -> None:
    words = ["compare", "--data", photos, *SMALL, "--epochs", "6", "--seeds", "1", "--lr", "0.1", "--out", "a b"]
    evaluate, more = printed(words, capsys)
    assert main([*evaluate, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["images"] == 16
    before = {path: path.stat().st_mtime_ns for path in Path("a b").glob("*-seed0/result.json")}
    assert len(before) == 2
    assert main([*more, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["seeds"] == [0, 1, 2, 3, 4, 5]
    assert answer["config"]["data"] == photos
    assert {path: path.stat().st_mtime_ns for path in before} == before  # what was there was not trained again


def test_runs_are_offered_to_evaluate_if_most_of_them_have_learned() -> None:
    def method(mean: float, *learned: bool) -> dict:
        return {"mean": mean, "learned": learned, "runs": [f"run{seed}" for seed in range(len(learned))]}

    offered = run_commands._best_runs
    assert offered({"methods": {"a": method(7, True, False, True), "b": method(71, True)}}) == ["run0", "run2"]
    assert offered({"methods": {"a": method(70, True, False), "b": method(71, True, True)}}) == []


def test_after_a_comparison_that_did_not_learn_longer_runs_are_offered(
    photos: str, capsys: pytest.CaptureFixture
) -> None:
    words = ["compare", "--data", photos, *SMALL, "--epochs", "1", "--seeds", "1", "--lr", "0", "--out", "short"]
    (longer,) = printed(words, capsys)
    assert longer[longer.index("--epochs") + 1] == "3"
    assert longer[longer.index("--out") + 1] == "short-3-epochs"
    assert longer[longer.index("--seeds") + 1] == "1"


# a shell's background jobs begin with SIGINT ignored, and so would what they start
INTERRUPTIBLE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from deepsup.cli import main
sys.exit(main(sys.argv[1:]))
"""


def stopped(words: list[str], number: int) -> tuple[int, str]:
    """Run a command until it has told of its first epoch or run, then send it a signal."""
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    while not process.stderr.readline().startswith(("epoch", "1/")):
        assert process.poll() is None
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert "Traceback" not in said
    return process.returncode, said.splitlines()[-1]


@pytest.mark.skipif(os.name != "posix", reason="signals of this kind are sent on POSIX only")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_stopped_training_names_the_command_that_goes_on(
    photos: str, number: int, code: int, capsys: pytest.CaptureFixture
) -> None:
    words = ["train", "--data", photos, *SMALL, "--epochs", "3000", "--limit-steps", "2900", "--out", "my run"]
    ended, said = stopped(words, number)
    assert ended == code
    told, command = said.split("; resume with: ")
    assert told == "deepsup: interrupted; the run is in my run"
    assert shlex.split(command) == ["deepsup", "train", "--out", "my run", "--resume"]
    steps = int(max(RunFolder("my run").checkpoints.glob("step-*.pt")).stem.split("-")[1])
    assert main([*shlex.split(command)[1:], "--limit-steps", str(steps + 2), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["steps"], RunFolder("my run").config.data.image_size) == (steps + 2, 12)


@pytest.mark.skipif(os.name != "posix", reason="signals of this kind are sent on POSIX only")
@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_a_stopped_comparison_names_the_command_that_goes_on(photos: str, jobs: str) -> None:
    words = ["compare", "--data", photos, *SMALL, "--epochs", "4", "--lr", "0.01", "--jobs", jobs, "--out", "a b"]
    began = time.monotonic()
    code, said = stopped([*words, "--seeds", "50"], signal.SIGINT)
    assert code == 130
    assert time.monotonic() - began < 60
    told, command = said.split("; resume with: ")
    assert told.startswith("deepsup: interrupted; ")
    assert told.endswith("the runs are in a b")
    assert shlex.split(command) == ["deepsup", *words, "--seeds", "50"]


def test_stopped_before_it_began_there_is_nothing_to_go_on_with(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("deepsup.trainer.runs._train.train", interrupt)
    assert main(["train", "--data", "a b"]) == 130
    line = "deepsup: interrupted; nothing was trained yet; start again: deepsup train --data 'a b'\n"
    assert capsys.readouterr().err == line
    monkeypatch.setattr("deepsup.paper.reproduce", interrupt)
    assert main(["reproduce", "fig2b-nin", "--out", "c"]) == 130
    line = "deepsup: interrupted; the runs are in c; resume with: deepsup reproduce fig2b-nin --out c\n"
    assert capsys.readouterr().err == line


@pytest.mark.skipif(os.name != "posix", reason="signals of this kind are sent on POSIX only")
@pytest.mark.parametrize("module", ["deepsup.cli", "tyro.conf", "yaml", "deepsup.trainer.data"])
def test_ctrl_c_while_it_is_imported_leaves_no_traceback(module: str) -> None:
    code = f"""
import builtins, runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
before = builtins.__import__
def interrupted(name, *rest, **more):
    if name == {module!r}:
        builtins.__import__ = before
        signal.raise_signal(signal.SIGINT)
    return before(name, *rest, **more)
builtins.__import__, sys.argv = interrupted, ["deepsup", "data", "list"]
runpy.run_module("deepsup.__main__", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "deepsup: interrupted\n")


def test_another_network_does_not_get_the_options_of_the_recipes_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Config] = []

    def caught(config: Config, *_: object, **__: object) -> None:
        seen.append(config)
        raise KeyboardInterrupt

    monkeypatch.setattr("deepsup.trainer.runs._train.train", caught)
    recipe = ["train", "--recipe", "caffe-cifar10"]
    for more in (["--lr", "1"], ["--network", "nin-cifar10"], ["--network", "cnn"],
                 ["--network", "cnn", "--network-options", "drop=0.1"]):  # fmt: skip
        assert main([*recipe, *more]) == 130
    own = caffe_cifar10().network.options
    assert [config.network.options for config in seen] == [own, own, {}, {"drop": 0.1}]


def test_resume_starts_a_run_that_is_not_there(photos: str, capsys: pytest.CaptureFixture) -> None:
    words = ["train", "--data", photos, *SMALL, "--epochs", "1", "--out", "new", "--resume"]
    for _ in range(2):  # the second time it is there, and finished
        assert main([*words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["epochs"] == 1
