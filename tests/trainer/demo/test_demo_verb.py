"""The verb: the page is opened where somebody can see it, and an operator that it lacks ends in one line."""

import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from deepsup.cli import main
from deepsup.trainer import demo


@pytest.mark.parametrize(
    ("screen", "terminal", "opened"), [("DISPLAY", True, True), ("WAYLAND_DISPLAY", True, True), ("", True, False),
                                       ("DISPLAY", False, False)]
)  # fmt: skip
def test_the_page_is_opened_where_there_is_a_display(
    screen: str,
    terminal: bool,
    opened: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page, seen = tmp_path / "demo.html", []
    page.touch()
    (tmp_path / "config.yaml").touch()
    monkeypatch.setattr(demo, "write_demo", lambda *_: page)
    monkeypatch.setattr(webbrowser, "open", seen.append)
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    if screen:
        monkeypatch.setenv(screen, ":0")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    assert main(["demo", str(tmp_path)]) == 0
    assert seen == ([page.as_uri()] if opened else [])
    assert str(page) in capsys.readouterr().out


def test_an_operator_that_the_page_lacks_is_one_line(
    trained: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(1, network="plain", network_options={"depth": 3, "widths": (4, 4)})
    monkeypatch.setattr("torch.nn.ReLU.forward", lambda _, x: torch.atan(x))
    monkeypatch.setattr("torch.nn.functional.relu", lambda x, **_: torch.atan(x))
    assert main(["demo", str(run)]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("deepsup: ")]
    assert "the page has no operator Atan" in line
    assert "replace it in the network" in line
