"""The rooms of the house: imports point upstream only, and what is public is what the facade says."""

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import deepsup

SOURCE = Path(deepsup.__file__).parent

# A room may import itself and any room of an earlier row; rooms of one row do not know each other.
ROWS = [
    ["errors"],
    ["io"],
    ["config", "npz", "pretrained"],
    ["recipes", "data"],
    ["preprocess"],
    ["networks", "supervision"],
    ["objective", "insight"],
    ["training"],
    ["runs"],
    ["adapters", "bench", "estimator", "exporting", "report", "studies"],
    ["exits", "probing"],
    ["demo", "paper"],
    ["cli"],
    ["__init__", "__main__"],
]
RANK = {room: rank for rank, row in enumerate(ROWS) for room in row}


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(code: str) -> set[str]:
    """The rooms of deepsup that a source text imports, wherever in the file the import stands."""
    modules: list[str] = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import: write the room's name"
            modules += [f"{node.module}.{alias.name}" for alias in node.names]
    return {name.split(".")[1] for name in modules if name.startswith("deepsup.")}


def upstream_only(room: str, imported: set[str]) -> set[str]:
    """Return the imports that point downstream or sideways."""
    return {other for other in imported - {room} if RANK[other] >= RANK[room]}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_upstream(path: Path) -> None:
    assert upstream_only(room_of(path), imported_rooms(path.read_text())) == set()


def drawn_order(page: str) -> list[list[str]]:
    """The rows of the drawing in CONTRIBUTING.md: the indented block under the heading on the order of imports."""
    block = page.split("## Where things live")[1].split("```text")[1].split("```")[0]
    return [line.split("#")[0].split() for line in block.strip().splitlines()]


def test_the_drawn_order_is_the_real_one() -> None:
    page = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
    assert drawn_order(page) == [row for row in ROWS if not row[0].startswith("__")]
    drawn = {room for row in drawn_order(page) for room in row}
    assert drawn == {room_of(path) for path in SOURCE.rglob("*.py")} - {"__init__", "__main__"}


def test_the_import_test_can_fail() -> None:
    assert upstream_only("networks", imported_rooms("from deepsup.supervision import taps")) == {"supervision"}
    assert upstream_only("errors", imported_rooms("import deepsup.objective.losses")) == {"objective"}
    assert upstream_only("objective", imported_rooms("from deepsup.supervision import Companion")) == set()


def test_all_is_what_is_public() -> None:
    assert deepsup.__all__ == sorted(deepsup.__all__)
    assert sorted(dir(deepsup)) == deepsup.__all__
    for name in deepsup.__all__:
        thing = getattr(deepsup, name)
        assert thing.__doc__, f"{name} has no docstring"
        assert thing.__module__.startswith("deepsup.")


@pytest.mark.parametrize("room", sorted(m.name for m in pkgutil.iter_modules([str(SOURCE)]) if m.ispkg))
def test_each_room_says_what_is_public(room: str) -> None:
    """A package's ``__all__`` is exactly the classes and functions that its ``__init__`` brings in."""
    package = importlib.import_module(f"deepsup.{room}")
    brought = {
        name
        for name, thing in vars(package).items()
        if not name.startswith("_") and (inspect.isclass(thing) or inspect.isfunction(thing))
    }
    assert brought == set(package.__all__)


def test_unknown_name_in_the_facade() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'supervize'"):
        deepsup.supervize  # noqa: B018 - the access is what is tested


def test_importing_the_facade_does_not_import_torch() -> None:
    code = "import sys, deepsup; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
