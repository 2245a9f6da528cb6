"""A sweep whose database fails: its server is killed, its disk fills; afterwards it goes on to the same answer."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("optuna", reason="optuna is not installed (pip install 'deepsup[sweep]')")

from command import Command
from crashes import can_mount, mounted, remount
from postgres_server import PostgresServer, postgres_missing
from study_crashes import answer_of, tiny

LIMITS = ["--trials", "2", "--seeds", "1", "--cpus", "1"]


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """A sweep that takes some seconds, without its folder."""
    space = tmp_path / "space.yaml"
    space.write_text("lr: [0.01, 0.02]\n")
    return ["sweep", *tiny(tmp_path), "--space", str(space), *LIMITS]


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    if postgres_missing():
        pytest.skip(postgres_missing())
    with PostgresServer() as made:
        yield made


@pytest.mark.slow
def test_a_database_server_is_killed_during_a_sweep(words: list[str], server: PostgresServer, tmp_path: Path) -> None:
    straight, out = tmp_path / "straight", tmp_path / "out"
    assert Command(straight, *words, verb="sweep").code() == 0
    begun = Command(out, *words, "--storage", server.url, verb="sweep")
    until(lambda: any(out.glob("trials/*/metrics.jsonl")))
    server.kill()
    assert begun.code() == 2, begun.errors.read_text()[-6000:]
    assert begun.line.startswith("deepsup: cannot use the storage postgresql://deepsup:***@127.0.0.1")
    assert "secret" not in begun.errors.read_text()
    refused = Command(out, "--resume", *LIMITS, "--storage", server.url, verb="sweep")
    assert refused.code() == 2
    assert "cannot open the storage postgresql://deepsup:***@127.0.0.1" in refused.line
    server.start()
    resumed = Command(out, "--resume", *LIMITS, "--storage", server.url, verb="sweep")
    assert resumed.code() == 0, resumed.errors.read_text()
    assert answer_of(out, "sweep.json") == answer_of(straight, "sweep.json")


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [120, 200, 400])
def test_a_disk_fills_during_a_sweep(words: list[str], kilobytes: int, tmp_path: Path) -> None:
    """The database alone takes 170 KB, a run 300."""
    if not can_mount():
        pytest.skip("needs a disk that can be filled: mounting one takes root")
    straight = tmp_path / "straight"
    assert Command(straight, *words, verb="sweep").code() == 0
    with mounted(tmp_path / "disk", f"{kilobytes}k") as disk:
        out = disk / "out"
        full = Command(out, *words, verb="sweep")
        assert full.code() == 2
        assert "free some space" in full.line, full.errors.read_text()
        remount(disk, "size=64m")
        again = ["--resume", *LIMITS] if (out / "settings.json").is_file() else words
        resumed = Command(out, *again, verb="sweep")
        assert resumed.code() == 0, resumed.errors.read_text()
        assert answer_of(out, "sweep.json") == answer_of(straight, "sweep.json")


def until(condition: object) -> None:
    end = time.monotonic() + 120
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.02)
