"""docs/exits.md: its table is what the record says; and the example runs."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "exits.md").read_text()


def script(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_that_of_the_record() -> None:
    measure = script("dev/measure_exits.py")
    record = json.loads((ROOT / "results" / "exits.json").read_text())
    assert measure.markdown(record) in PAGE
    for each in record["sets"].values():
        assert each["errors"].keys() >= {"plain", "exits"}
        assert each["speed"].keys() == {"1", "32", "512"}


def test_the_example_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    example = script("examples/early_exits.py")
    monkeypatch.setattr(example, "EPOCHS", 1)
    whole = example.digits()
    monkeypatch.setattr(example, "digits", lambda: tuple((x[:200], y[:200]) for x, y in whole))
    example.main()
    assert "times as fast" in capsys.readouterr().out
