"""``deepsup doctor``: all is well here, and what is broken on purpose is named, with exit code 1."""

import json
from importlib import metadata
from pathlib import Path

import pytest
import torch

from deepsup.cli import doctor, main, self_test
from deepsup.objective import Objective
from deepsup.supervision import DeeplySupervised
from deepsup.trainer.training._precision import Bfloat16


def ask(capsys: pytest.CaptureFixture) -> tuple[int, dict]:
    code = main(["doctor", "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture(autouse=True)
def data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSUP_DATA", str(tmp_path / "not" / "there"))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the two checks that take seconds."""
    slow = ("torch.compile equals eager", "two processes (DDP) equal one")
    checks = {name: check for name, check in self_test.self_tests(["cpu"]).items() if name not in slow}
    monkeypatch.setattr(doctor, "self_tests", lambda _: checks)


@pytest.mark.usefixtures("quick")
def test_all_is_well(capsys: pytest.CaptureFixture) -> None:
    state = torch.random.get_rng_state()
    code, found = ask(capsys)
    assert (code, found["ok"], set(found["checks"].values())) == (0, True, {"ok"})
    assert (found["torch"], found["deepsup"]) == (torch.__version__, metadata.version("deepsup"))
    assert found["threads"] == torch.get_num_threads()
    assert found["devices"][0] == "cpu"
    assert found["extras"]["figures"] == []
    assert torch.equal(torch.random.get_rng_state(), state)
    assert main(["doctor"]) == 0
    assert "everything works" in capsys.readouterr().out


@pytest.mark.parametrize(("fast", "taken"), [(True, "bfloat16"), (False, "float32")])
def test_the_precision_that_amp_auto_takes_is_said_with_its_reason(
    fast: bool, taken: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("deepsup.trainer.training.bfloat16_on", lambda _: Bfloat16(fast, "it says so"))
    monkeypatch.setattr(doctor, "self_tests", lambda _: {})
    assert ask(capsys)[1]["precision"] == {"cpu": {"precision": taken, "why": "it says so"}}
    assert main(["doctor"]) == 0
    assert f"{taken}: it says so" in capsys.readouterr().out


@pytest.mark.slow
def test_all_is_well_with_the_checks_that_take_seconds(capsys: pytest.CaptureFixture) -> None:
    code, found = ask(capsys)
    assert (code, set(found["checks"].values())) == (0, {"ok"})
    assert found["checks"].keys() >= {"torch.compile equals eager", "two processes (DDP) equal one"}


@pytest.mark.usefixtures("quick")
def test_an_objective_that_is_off_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    right = Objective.__call__

    def off(self, *args, **kwargs):
        loss = right(self, *args, **kwargs)
        return loss._replace(total=1.001 * loss.total)

    monkeypatch.setattr(Objective, "__call__", off)
    code, found = ask(capsys)
    assert code == 1
    bad = {name: verdict for name, verdict in found["checks"].items() if verdict != "ok"}
    assert list(bad) == ["objective equals a plain loop"]
    assert main(["doctor"]) == 1
    assert "something does not work" in capsys.readouterr().out


@pytest.mark.usefixtures("quick")
def test_a_strip_that_changes_the_net_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    right = DeeplySupervised.strip

    def changed(self):
        model = right(self)
        with torch.no_grad():
            model[0].bias += 1e-3
        return model

    monkeypatch.setattr(DeeplySupervised, "strip", changed)
    code, found = ask(capsys)
    assert (code, found["checks"]["stripped net is bit-identical"]) == (1, "the stripped net gives different scores")


@pytest.mark.usefixtures("quick")
def test_a_step_that_does_nothing_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(torch.optim.SGD, "step", lambda *_: None)
    code, found = ask(capsys)
    assert code == 1
    assert "did not change" in found["checks"]["two steps of training"]


@pytest.mark.usefixtures("quick")
def test_a_data_folder_that_is_a_file_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DEEPSUP_DATA", str(tmp_path / "file"))
    code, found = ask(capsys)
    assert code == 1
    assert "set DEEPSUP_DATA to a folder that you can write" in found["checks"]["data folder writable"]


@pytest.mark.usefixtures("quick")
def test_an_extra_that_is_not_installed_is_named_and_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    lines = ["numpy>=1", "no-such-package>=2; extra == 'figures'", "numpy; extra == 'export'"]
    monkeypatch.setattr(doctor.metadata, "requires", lambda _: lines)
    code, found = ask(capsys)
    assert (code, found["extras"]) == (0, {"figures": ["no-such-package"], "export": []})


@pytest.mark.usefixtures("quick")
def test_a_torchvision_that_does_not_import_is_no_fault_and_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def broken(name: str) -> None:
        raise RuntimeError(f"operator {name}::nms does not exist")

    monkeypatch.setattr(doctor, "import_module", broken)
    code, found = ask(capsys)
    assert (code, found["ok"]) == (0, True)
    assert "does not import (operator torchvision::nms does not exist)" in found["torchvision"]
    assert "install the build for this one" in found["torchvision"]


def test_gradients_are_compared_with_the_largest() -> None:
    expected = {"a": torch.tensor([4.0, 1.0]), "b": torch.tensor([2.0])}
    assert self_test.farthest(expected, expected) == 0
    assert self_test.farthest({"a": torch.tensor([4.0, 1.0]), "b": torch.tensor([1.0])}, expected) == 0.25


def test_a_compiler_that_is_off_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def off(net):
        return lambda images: net(images)._replace(scores=1.01 * net(images).scores)

    monkeypatch.setattr(torch, "compile", off)
    assert "gradients of the compiled net differ" in self_test.compiled_agrees()
    monkeypatch.setattr(self_test.shutil, "which", lambda _: None)
    assert self_test.compiled_agrees() == "skipped: no C++ compiler is installed"


def test_every_device_is_trained_on() -> None:
    assert {"two steps of training, cuda:0", "mixed precision (AMP), cuda:0"} <= self_test.self_tests(
        ["cpu", "cuda:0"]
    ).keys()
