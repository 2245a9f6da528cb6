"""Every data test has a data folder of its own, and no publisher, npm or Debian package to fall back on."""

from collections.abc import Callable
from pathlib import Path

import pytest
from publishers import Small


@pytest.fixture(autouse=True)
def data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "data-root"
    monkeypatch.setenv("DEEPSUP_DATA", str(root))
    return root


@pytest.fixture(autouse=True)
def no_npm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepsup.trainer.data._npm.shutil.which", lambda _: None)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Small]:
    return lambda name, layout=0: Small(name, monkeypatch, layout)
