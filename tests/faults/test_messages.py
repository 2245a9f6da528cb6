"""Faults that end in one line: a folder with an owner, a signal at a bad moment, names and disks that do not work."""

import errno
import fcntl
import json
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deepsup.cli import main
from deepsup.errors import RunError, TrainingError
from deepsup.io import disk_errors_named, error_number
from deepsup.trainer.config import Config
from deepsup.trainer.runs._lock import NAME, owned
from deepsup.trainer.runs._train import train
from deepsup.trainer.training import Callback
from deepsup.trainer.training import _checkpoint as checkpoint
from deepsup.trainer.training._distributed import Processes, waiting_time


@pytest.mark.parametrize("machine", [platform.node(), "another"])
def test_the_second_process_is_told_who_owns_the_run(small: Config, tmp_path: Path, machine: str) -> None:
    """Another open file stands for another process: the lock belongs to the open file."""
    with (tmp_path / NAME).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps({"pid": 4242, "machine": machine}))
        file.flush()
        where = "" if machine == platform.node() else " on another"
        with pytest.raises(RunError, match=f"is being trained by process 4242{where}; wait until that has ended"):
            train(small, tmp_path)
    assert train(small.replace(limit_steps=1), tmp_path).finished  # the file is still there, its owner is not


@pytest.mark.parametrize("left", [b"", b"\xff{", b"[1]", json.dumps({"pid": 1, "machine": "x"}).encode()])
def test_a_lock_that_a_dead_process_left_does_not_count(tmp_path: Path, left: bytes) -> None:
    """Also if the number of the process belongs to another one by now, as after a reboot."""
    (tmp_path / NAME).write_bytes(left)
    os.utime(tmp_path / NAME, (2**33, 2**33))  # a clock far ahead
    with owned(tmp_path, Processes()):
        assert json.loads((tmp_path / NAME).read_bytes())["pid"] == os.getpid()
        with pytest.raises(RunError, match=f"process {os.getpid()};"), owned(tmp_path, Processes()):
            pass
    assert not (tmp_path / NAME).exists()


def test_an_owner_that_cannot_be_read(tmp_path: Path) -> None:
    with (tmp_path / NAME).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(RunError, match="is being trained by another process;"), owned(tmp_path, Processes()):
            pass


def test_only_the_first_of_several_processes_locks(tmp_path: Path) -> None:
    class Second(Processes):
        def any(self, flag: bool) -> bool:
            return flag

    with owned(tmp_path, Processes()), owned(tmp_path, Second(1, 2)):
        pass


def test_a_run_that_never_began_leaves_no_folder(small: Config, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="batch_size=241"):
        train(small.replace(batch_size=241), tmp_path / "run")
    assert not (tmp_path / "run").exists()


class TerminatedError(Exception):
    """What the test makes of SIGTERM."""


def test_sigterm_during_the_last_save_is_honoured(
    small: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def terminated(*_: object) -> None:
        raise TerminatedError

    save = checkpoint.save

    def signalled(path: Path, state: dict[str, Any]) -> None:
        if state["counters"][2] == 24:
            signal.raise_signal(signal.SIGTERM)
        save(path, state)

    monkeypatch.setattr(checkpoint, "save", signalled)
    before = signal.signal(signal.SIGTERM, terminated)
    try:
        with pytest.raises(TerminatedError):
            train(small.replace(checkpoint_steps=None), tmp_path / "run")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert [path.name for path in checkpoint.all_steps(tmp_path / "run" / "checkpoints")] == ["step-000000024.pt"]
    assert not (tmp_path / "run" / "result.json").exists()
    assert train(None, tmp_path / "run", resume=True).result["steps"] == 24


@pytest.mark.parametrize("verb", [["train"], ["train", "--resume"], ["compare", "--rates", "0.1", "--seeds", "1"]])
def test_a_name_that_is_too_long(
    small: Config, tmp_path: Path, verb: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        *verb,
        "--data",
        small.data.source,
        "--batch-size",
        "30",
        "--epochs",
        "1",
        "--out",
        str(tmp_path / ("x" * 300)),
    ]
    assert main(words) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert ": File name too long; choose a shorter name, then " in said[0]


def test_a_folder_that_was_deleted_is_not_called_untouched(small: Config, tmp_path: Path) -> None:
    class Delete(Callback):
        def step_ended(self, training: Any) -> None:
            if training.iteration == 5:
                training.folder.rename(tmp_path / "gone")

    with pytest.raises(RunError) as caught:
        train(small, tmp_path / "run", callbacks=[Delete()])
    assert "the folder is gone; bring it back, or go where it was moved, then continue with --resume" in str(
        caught.value
    )
    assert "untouched" not in str(caught.value)


def test_a_full_disk_that_torch_names_in_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0")
    assert error_number(words, tmp_path / "x") == 0
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 4096}))
    assert error_number(words, tmp_path / "x") == errno.ENOSPC
    said = "No space left on device; earlier files are untouched"
    with pytest.raises(RunError, match=said), disk_errors_named(tmp_path / "x"):
        raise OSError(None, str(words)) from words


@pytest.mark.slow
def test_a_billion_epochs_need_no_list(small: Config, tmp_path: Path) -> None:
    script = (
        "import resource, sys; from deepsup import Config, train\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "train(Config(data=sys.argv[1], epochs=10**9, batch_size=30, limit_steps=2, tensorboard=False), sys.argv[2])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, small.data.source, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 2**20  # KB: 1 GiB, of which torch itself takes most


def test_nothing_is_imported_before_ctrl_c_is_answered() -> None:
    """main() answers a Ctrl-C; what is imported before it is called would show a traceback."""
    script = "import sys; before = {*sys.modules}; import deepsup.__main__; print(*sorted({*sys.modules} - before))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["deepsup", "deepsup.__main__"]


@pytest.mark.parametrize("given", ["0", "-1", "soon", "nan", "inf", "1e9"])
def test_a_time_to_wait_that_cannot_be(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSUP_TIMEOUT", given)
    with pytest.raises(TrainingError, match=f"DEEPSUP_TIMEOUT={given}; expected seconds above 0"):
        waiting_time()


def test_the_time_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEEPSUP_TIMEOUT", raising=False)
    assert waiting_time() == 300
    monkeypatch.setenv("DEEPSUP_TIMEOUT", "7.5")
    assert waiting_time() == 7.5
