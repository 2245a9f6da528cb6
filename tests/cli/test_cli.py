"""The command: one answer on standard output, everything else on standard error, one line for what a user can mend."""

import json
import os
import re
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import deepsup
import deepsup.cli.app as app_module
from deepsup.cli import main
from deepsup.cli.help import GROUPS
from deepsup.errors import DataError


@pytest.fixture(autouse=True)
def data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DEEPSUP_DATA", str(tmp_path / "root"))
    return tmp_path / "root"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "deepsup", *arguments], capture_output=True, text=True, check=False)


def test_help_is_quick_and_needs_no_torch():
    # of the processor, and the best of three: other work on the machine lengthens this too
    spent = []
    for _ in range(3):
        before = os.times()
        done = run("--help")
        after = os.times()
        assert done.returncode == 0
        assert "data" in done.stdout
        spent.append(sum(after[2:4]) - sum(before[2:4]))  # children's user and system time
    assert min(spent) < 0.5
    code = "import sys, deepsup.cli as c; c.main(['data', 'list']); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_list(capsys, data_root):
    assert main(["data", "list", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["folder"] == str(data_root)
    there = {each["name"]: each["present"] for each in answer["sets"]}
    assert there == {
        "mnist-mini": True,
        "mnist": False,
        "fashion-mnist": False,
        "cifar10": False,
        "cifar100": False,
        "svhn": False,
        "cifar100-first50": False,
        "cifar100-last50": False,
        "digits-scenes": True,
        "digits-scenes-small": True,
        "digits-scenes-edges": True,
    }
    assert main(["data", "list"]) == 0
    assert re.search(r"mnist-mini +yes", capsys.readouterr().out)


@pytest.mark.parametrize("verb", ["get", "check"])
def test_get_and_check_the_embedded_digits(verb, capsys):
    assert main(["data", verb, "mnist-mini", "--json"]) == 0
    captured = capsys.readouterr()
    answer = json.loads(captured.out)
    assert captured.out.count("\n") == 1
    assert answer["parts"] == {"train": 1000, "test": 5000}
    assert answer["exact"] is True
    assert main(["data", verb, "mnist-mini"]) == 0
    assert "every file is the published one" in capsys.readouterr().out


def test_check_images_of_your_own(tmp_path, capsys):
    np.savez(tmp_path / "mine.npz", images=np.zeros((6, 4, 5), np.uint8), labels=np.arange(6) % 3)
    assert main(["data", "check", str(tmp_path / "mine.npz"), "--json"]) == 0
    captured = capsys.readouterr()
    answer = json.loads(captured.out)
    assert (answer["parts"], answer["shape"], answer["exact"]) == ({"train": 3, "test": 3}, [1, 4, 5], None)
    assert "no test part" in captured.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["data"], ["data got no verb; expected a verb first: list, get, check"]),
        (["trian"], ["deepsup has no verb 'trian'; did you mean 'train'?"]),
        (["--json", "train"], ["deepsup got --json; expected a verb first: report,"]),
        (["data", "gte"], ["data has no verb 'gte'; did you mean 'get'?"]),
        (["data", "get"], ["data get got too few arguments; expected NAME", "run deepsup data get --help"]),
        (["train", "--epoch", "3"], ["train has no option --epoch; did you mean --epochs?"]),
        (["train", "--test-evry=3"], ["train has no option --test-evry; did you mean --test-every"]),
        (["train", "--no-norm"], ["train has no option --no-norm; did you mean --no-norms"]),
        (["train", "--zzz"], ["train has no option --zzz; run deepsup train --help"]),
        (["train", "--phases", "3"], ["train has no option --phases; write phases in a YAML file"]),
        (["train", "--epochs", "big"], ["--epochs got 'big'; expected a whole number; run deepsup train --help"]),
        (["train", "--alpha", "1", "x"], ["--alpha got '1', 'x'; expected a number"]),
        (["train", "--epochs"], ["--epochs got no value"]),
        (["train", "--epochs", "None"], ["--epochs got 'None'; expected a whole number"]),
        (["train", "digits"], ["train does not take digits; run deepsup train --help"]),
        (["train", "--norms", "maybe"], ["train does not take maybe"]),
        (["train", "--network-options", "drop"], ["--network-options drop; expected KEY=VALUE"]),
        (["train", "--recipe", "quick", "--config", "a.yaml"], ["both --recipe quick and --config a.yaml"]),
        (["compare", "--loss", "softmax"], ["the methods have losses of their own: give --methods"]),
        (["compare", "--methods", "DSN"], ["no method 'DSN'; did you mean 'DSN-SVM'?"]),
        (["compare", "--no-test"], ["compare has no option --no-test"]),
        (["compare", "--resume"], ["goes on with the same command"]),
        (["reproduce", "when", "--repeat", "row@x", "--results", "results"], ["expected ROW@SEED"]),
        (["--tyro-print-completion", "csh"], ["got csh; expected bash, zsh or fish"]),
        (["data", "get", "minst"], ["no data set 'minst'; did you mean 'mnist'?"]),
        (["data", "get", "mnist", "--extra"], ["mnist has no part 'extra'"]),
        (["data", "check", "cifar10"], ["cifar10 is not in", "run: deepsup data get cifar10"]),
        (["data", "check", "nowhere"], ["no data set and no file 'nowhere'", "mnist-mini"]),
        (["data", "check", "mnist-mini", "--image-size", "8"], ["which has its own"]),
        (["data", "check", "mnist", "--image-size", "big"], ["--image-size", "big"]),
        (["data", "get", "mnist", "--jsn"], ["--jsn", "--json"]),
        (["data", "get", "mnist", "cifar10"], ["data get does not take cifar10"]),
    ],
    ids=lambda given: " ".join(given),
)
def test_what_a_user_can_mend_is_one_line(arguments, words, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("deepsup: ")
    assert captured.err.count("\n") == 1
    assert not set(captured.err) & set("╭╮╰╯│─")
    for word in words:
        assert word in captured.err


def test_the_exit_code_of_the_process():
    done = run("data", "get", "minst", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1


def test_an_error_of_many_lines_becomes_one(monkeypatch, capsys):
    def fail(*_: object) -> None:
        raise DataError("one\ntwo")

    monkeypatch.setattr("deepsup.trainer.data.get", fail)
    assert main(["data", "get", "mnist"]) == 2
    assert capsys.readouterr().err == "deepsup: one two\n"


def test_interrupted(monkeypatch, capsys):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("deepsup.trainer.data.get", interrupt)
    assert main(["data", "get", "mnist"]) == 130
    assert capsys.readouterr().err == "deepsup: interrupted\n"


SLEEPER = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs begin with it ignored
import deepsup.cli, deepsup.trainer.data
deepsup.trainer.data.get = lambda *_: (print("on", file=sys.stderr, flush=True), time.sleep(30))
sys.exit(deepsup.cli.main(["data", "get", "mnist"]))
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of this kind are sent on POSIX only")
def test_ctrl_c_in_a_process():
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "on\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, "deepsup: interrupted\n")


def test_standard_output_is_for_answers(monkeypatch, capsys):
    app = app_module.SubcommandApp()
    monkeypatch.setattr(app_module, "_app", app)
    monkeypatch.setattr(app_module, "_verbs", {})

    @app_module.verb("chat")
    def chat() -> None:
        print("what a user's own network prints")  # noqa: T201
        app_module.show({"a": 1}, "", json=True)

    assert main(["chat"]) == 0
    captured = capsys.readouterr()
    assert captured.out == '{"a": 1}\n'
    assert captured.err == "what a user's own network prints\n"


def test_a_reader_that_leaves():
    command = f"{sys.executable} -m deepsup data list | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_a_verb_is_one_function(monkeypatch, capsys):
    app = app_module.SubcommandApp()
    monkeypatch.setattr(app_module, "_app", app)
    monkeypatch.setattr(app_module, "_verbs", {})
    monkeypatch.setattr(app_module, "_groups", {"data": app})

    @app_module.verb("greet")
    def greet(name: str, json: bool = False) -> None:
        app_module.show({"name": name}, f"hello {name}", json)

    @app_module.verb("fail")
    def fail() -> None:
        raise ValueError("a mistake of ours")

    assert main(["greet", "--name", "you", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"name": "you"}
    # what is not a user's mistake keeps its traceback
    with pytest.raises(ValueError, match="a mistake of ours"):
        main(["fail"])


def test_alone_it_prints_the_help(capsys):
    assert main([]) == 0
    alone = capsys.readouterr().out
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == alone
    order = [alone.index(f"\n{each}:") for each in GROUPS] + [alone.index("\n  bench ")]
    assert order == sorted(order)
    for verb in app_module._verbs:
        assert alone.count(f"\n  {verb} ") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("bench harm --quick", "bench harm with --quick; that is an option of bench speed"),
        ("bench --seeds 3", "bench speed with --seeds; that is an option of bench harm"),
        ("bench hram", "bench 'hram'; did you mean 'harm'?"),
        ("bench harm --jobs 0", "seeds=5, jobs=0; expected at least 1 of each"),
    ],
)
def test_bench_measures_speed_or_harm(words, said, capsys):
    assert main(words.split()) == 2
    assert said in capsys.readouterr().err


def test_the_version_is_that_of_the_package(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"deepsup {metadata.version('deepsup')}\n"
    assert deepsup.__version__ == metadata.version("deepsup")
