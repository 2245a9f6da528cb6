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
    ["trainer.config", "npz", "pretrained"],
    ["trainer.recipes", "trainer.data"],
    ["trainer.preprocess"],
    ["trainer.networks", "supervision"],
    ["objective", "insight"],
    ["trainer.training"],
    ["trainer.runs"],
    ["adapters", "trainer.estimator", "exporting", "trainer.report", "trainer.studies"],
    ["exits"],
    ["trainer.demo", "paper"],
    ["cli"],
    ["__init__", "__main__"],
]
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "trainer" / "__init__.py")
PACKAGES = sorted(
    f"{prefix}{m.name}"
    for folder, prefix in [(SOURCE, ""), (SOURCE / "trainer", "trainer.")]
    for m in pkgutil.iter_modules([str(folder)])
    if m.ispkg and m.name != "trainer"
)
RANK = {room: rank for rank, row in enumerate(ROWS) for room in row}


def room_of(path: Path) -> str:
    return room_named(path.relative_to(SOURCE).with_suffix("").parts)


def room_named(parts: tuple[str, ...]) -> str:
    """The room of a module: ``trainer.data`` of trainer/data/load.py, ``paper`` of paper/claims.py."""
    return ".".join(parts[: 1 + (parts[0] == "trainer")])


def imported_rooms(code: str) -> set[str]:
    """The rooms of deepsup that a source text imports, wherever in the file the import stands."""
    modules: list[str] = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import: write the room's name"
            modules += [f"{node.module}.{alias.name}" for alias in node.names]
    return {room_named(tuple(name.split(".")[1:])) for name in modules if name.startswith("deepsup.")}


def upstream_only(room: str, imported: set[str]) -> set[str]:
    """Return the imports that point downstream or sideways."""
    debt = {"trainer.report"} if room == "insight" else set()  # ProbeResult.report writes a page
    return {other for other in imported - {room} - debt if RANK[other] >= RANK[room]}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
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
    assert drawn == {room_of(path) for path in MODULES} - {"__init__", "__main__"}


def test_the_import_test_can_fail() -> None:
    assert upstream_only("trainer.networks", imported_rooms("from deepsup.supervision import taps")) == {"supervision"}
    assert upstream_only("errors", imported_rooms("import deepsup.objective.losses")) == {"objective"}
    assert upstream_only("objective", imported_rooms("from deepsup.supervision import Companion")) == set()


def test_all_is_what_is_public() -> None:
    assert deepsup.__all__ == sorted(deepsup.__all__)
    assert sorted(dir(deepsup)) == deepsup.__all__
    for name in deepsup.__all__:
        thing = getattr(deepsup, name)
        assert thing.__doc__, f"{name} has no docstring"
        assert thing.__module__.startswith("deepsup.")


@pytest.mark.parametrize("room", PACKAGES)
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
