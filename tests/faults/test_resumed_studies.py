"""A study under a clock that jumps, or one that goes on with another number of processes, has the same answer."""

import itertools
import time
from pathlib import Path

import pytest
from attacks import command
from study_crashes import answer_of, tiny

DAY = 86_400


@pytest.mark.slow
def test_the_clock_jumps_during_a_sweep_with_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget counts seconds that have passed, not the time of day."""
    pytest.importorskip("optuna", reason="optuna is not installed (pip install 'deepsup[sweep]')")
    (tmp_path / "space.yaml").write_text("lr: [0.01, 0.02]\n")
    words = ["sweep", *tiny(tmp_path), "--space", tmp_path / "space.yaml", "--trials", "2", "--seeds", "1",
             "--cpus", "1", "--budget", "60"]  # fmt: skip
    assert command(*words, "--out", tmp_path / "straight").code == 0
    here, jumps = time.time, itertools.cycle([0, 4000 * DAY, -3000 * DAY, 1, -DAY])
    monkeypatch.setattr(time, "time", lambda: here() + next(jumps))
    done = command(*words, "--out", tmp_path / "jumping")
    assert done.code == 0, done.said
    assert answer_of(tmp_path / "jumping", "sweep.json") == answer_of(tmp_path / "straight", "sweep.json")


@pytest.mark.slow
def test_a_comparison_goes_on_with_another_number_of_processes(tmp_path: Path) -> None:
    words = ["compare", *tiny(tmp_path), "--rates", "0.01", "--cpus", "1"]
    for out, stages in {"straight": [(2, 1)], "changed": [(1, 1), (2, 2), (2, 1)]}.items():
        for seeds, jobs in stages:
            done = command(*words, "--seeds", seeds, "--jobs", jobs, "--out", tmp_path / out)
            assert done.code == 0, done.said
    assert answer_of(tmp_path / "changed", "comparison.json") == answer_of(tmp_path / "straight", "comparison.json")
