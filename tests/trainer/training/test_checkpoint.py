"""A checkpoint is whole or not there; what is not one is refused by name."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from deepsup.errors import RunError
from deepsup.io import write_whole
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.training import _checkpoint as checkpoint

STATE: dict[str, Any] = {
    "net": {"w": torch.arange(6.0)},
    "counters": [1, 2],
    "best_error": 3.5,
    "name": "x",
    "none": None,
}


def test_round_trip(tmp_path: Path) -> None:
    path = checkpoint.step_path(tmp_path, 7)
    checkpoint.save(path, STATE)
    state = checkpoint.load(path)
    assert torch.equal(state["net"]["w"], STATE["net"]["w"])
    assert {key: state[key] for key in ("counters", "best_error", "name", "none")} == {
        key: STATE[key] for key in ("counters", "best_error", "name", "none")
    }
    assert [file.name for file in tmp_path.iterdir()] == ["step-000000007.pt"]


@pytest.mark.parametrize("keep", [0, 10, 500, 900])
def test_a_truncated_checkpoint(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "step-1.pt"
    checkpoint.save(path, STATE)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(
        RunError, match=r"step-1\.pt cannot be read as a checkpoint .*remove it to go on from the one before"
    ):
        checkpoint.load(path)


def test_what_is_not_ours_or_too_new(tmp_path: Path) -> None:
    torch.save({"model": torch.zeros(2)}, tmp_path / "other.pt")
    with pytest.raises(RunError, match=r"other\.pt is not a checkpoint of deepsup"):
        checkpoint.load(tmp_path / "other.pt")
    torch.save({"deepsup": checkpoint.FORMAT + 1}, tmp_path / "newer.pt")
    with pytest.raises(RunError, match=r"newer\.pt has format 2, this deepsup reads up to 1"):
        checkpoint.load(tmp_path / "newer.pt")
    with pytest.raises(RunError, match="no checkpoint"):
        checkpoint.load(tmp_path / "none.pt")

    class Evil:
        def __reduce__(self) -> Any:
            return os.system, ("true",)

    torch.save({"deepsup": 1, "x": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(RunError, match="cannot be read as a checkpoint"):
        checkpoint.load(tmp_path / "evil.pt")


def full(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def broken(*_: Any, **__: Any) -> None:
    raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0")


FULL = "No space left on device; earlier files are untouched; free some space"


@pytest.mark.parametrize(("failure", "said"), [(full, FULL), (broken, "the write failed; check the folder")])
def test_a_full_disk_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Any, said: str
) -> None:
    path = tmp_path / "step-1.pt"
    checkpoint.save(path, STATE)
    before = path.read_bytes()
    monkeypatch.setattr(torch, "save", failure)
    with pytest.raises(RunError, match=rf"cannot write .*step-1\.pt: {said}"):
        checkpoint.save(path, {"net": {}})
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_a_really_full_disk(tmp_path: Path) -> None:
    """A file size limit stands for the full disk: the write fails half-way, from the operating system."""
    script = (
        "import resource, sys, torch; from pathlib import Path\n"
        "from deepsup.trainer.training import _checkpoint as checkpoint\n"
        "path = Path(sys.argv[1]); checkpoint.save(path, {'x': torch.zeros(10)}); import signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "from deepsup.errors import RunError\n"
        "try: checkpoint.save(path, {'x': torch.zeros(100_000)})\n"
        "except RunError as error: print(error)\n"
        "print(len(checkpoint.load(path)['x']), [p.name for p in path.parent.iterdir()])\n"
    )
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "step-1.pt")], capture_output=True, text=True, check=True
    )
    first, second = done.stdout.splitlines()
    assert "cannot write" in first
    assert second == "10 ['step-1.pt']"


def test_only_the_last_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 10, 100):
        checkpoint.save(checkpoint.step_path(tmp_path, step), {})
    (tmp_path / ".step-000000101.pt.77.part").write_bytes(b"half")
    (tmp_path / "best.pt").write_bytes(b"x")
    checkpoint.keep_last(tmp_path, 2)
    assert [path.name for path in checkpoint.all_steps(tmp_path)] == ["step-000000010.pt", "step-000000100.pt"]
    assert not list(tmp_path.glob(".*"))
    assert (tmp_path / "best.pt").exists()


def test_metrics_with_a_torn_line(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    for epoch in range(4):
        run.add_metrics({"epoch": epoch, "loss": 0.1 * epoch})
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    assert [record["epoch"] for record in run.metrics] == [0, 1, 2]
    run.keep_metrics(2)
    assert [record["epoch"] for record in run.metrics] == [0, 1]
    run.add_metrics({"epoch": 2})
    assert [record["epoch"] for record in run.metrics] == [0, 1, 2]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot write .*/none/x: No such file or directory; the folder is gone"):
        write_whole(tmp_path / "none" / "x", b"1")
