"""``deepsup doctor``: all is well here, and what is broken on purpose is named, with exit code 1."""

import json
from importlib import metadata
from pathlib import Path

import pytest
import torch

from deepsup.cli import doctor, main
from deepsup.objective import Objective
from deepsup.supervision import DeeplySupervised


def ask(capsys: pytest.CaptureFixture) -> tuple[int, dict]:
    code = main(["doctor", "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture(autouse=True)
def data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSUP_DATA", str(tmp_path / "not" / "there"))


def test_all_is_well(capsys: pytest.CaptureFixture) -> None:
    state = torch.random.get_rng_state()
    code, found = ask(capsys)
    assert (code, found["ok"], set(found["checks"].values())) == (0, True, {"ok"})
    assert (found["torch"], found["deepsup"]) == (torch.__version__, metadata.version("deepsup"))
    assert found["threads"] == torch.get_num_threads()
    assert found["devices"][0] == "cpu"
    assert found["extras"]["figures"] == []
    assert found["seconds"] < 30
    assert torch.equal(torch.random.get_rng_state(), state)
    assert main(["doctor"]) == 0
    assert "everything works" in capsys.readouterr().out


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


def test_a_step_that_does_nothing_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(torch.optim.SGD, "step", lambda *_: None)
    code, found = ask(capsys)
    assert code == 1
    assert "did not change" in found["checks"]["two steps of training"]


def test_a_data_folder_that_is_a_file_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DEEPSUP_DATA", str(tmp_path / "file"))
    code, found = ask(capsys)
    assert code == 1
    assert "set DEEPSUP_DATA to a folder that you can write" in found["checks"]["data folder writable"]


def test_an_extra_that_is_not_installed_is_named_and_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    lines = ["numpy>=1", "no-such-package>=2; extra == 'figures'", "numpy; extra == 'export'"]
    monkeypatch.setattr(doctor.metadata, "requires", lambda _: lines)
    code, found = ask(capsys)
    assert (code, found["extras"]) == (0, {"figures": ["no-such-package"], "export": []})
