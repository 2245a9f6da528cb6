"""Three floors with rooms: imports go downstairs, through the front of a room; what is public is what fronts name."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import deepsup

SOURCE = Path(deepsup.__file__).parent
PROJECT = Path(__file__).parents[1]

# From the ground up. A room may import itself and any room of an earlier row; rooms of one row do not know each other.
ROWS = [
    ["errors"],
    ["io", "sampling"],
    ["supervision"],
    ["objective", "insight"],
    ["adapters", "exporting"],
    ["exits"],
    ["trainer.config", "trainer.statistics"],
    ["trainer.recipes", "trainer.data"],
    ["trainer.preprocess", "trainer.networks"],
    ["trainer.training"],
    ["trainer.runs"],
    ["trainer.estimator", "trainer.report", "trainer.studies"],
    ["trainer.demo"],
    ["paper"],
    ["cli"],
    ["__init__", "__main__"],
]
RANK = {room: rank for rank, row in enumerate(ROWS) for room in row}
UPSTAIRS = {
    "supervision": {"trainer.networks"},  # from_pretrained builds a network of deepsup by the name in the folder
    "insight": {"trainer.report"},  # ProbeResult.report writes a page
}
"""What the ground floor may reach upstairs, when it is called."""
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "trainer" / "__init__.py")
PACKAGES = sorted(
    path.parent for path in MODULES if path.name == "__init__.py" and path.parent not in (SOURCE, SOURCE / "cli")
)
PUBLIC = {f"adapters.{name}" for name in ("hugging_face", "lightning_module", "skorch_net", "torchvision_first")}
"""Modules that need a package of their own, so that no front can import them."""


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def room_of(name: str) -> str:
    """The room of a module: ``trainer.data`` of ``trainer.data.load``, ``paper`` of ``paper.claims``."""
    parts = name.split(".")
    return ".".join(parts[: 1 + (parts[0] == "trainer")])


def imported_modules(code: str) -> list[str]:
    """The modules of deepsup that a source text imports, without the first part, wherever the import stands.

    ``import deepsup`` is the empty name.
    """
    found: list[str] = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import: write the room's name"
            packages = ("deepsup", "deepsup.trainer")  # fronts without names of their own: what follows is a room
            whole = node.module in packages
            found += [f"{node.module}.{alias.name}" for alias in node.names] if whole else [str(node.module)]
    return [name.removeprefix("deepsup").removeprefix(".") for name in found if name.partition(".")[0] == "deepsup"]


def faults(module: str, code: str) -> list[str]:
    """Return the imports of a module that go upstairs or sideways, or past the front of another room."""
    here, wrong = room_of(module), []
    for name in imported_modules(code):
        room = room_of(name) if name else ""
        if room == here:
            continue
        if not room and here == "cli":  # the door may know the facade
            continue
        if RANK.get(room, len(ROWS)) >= RANK[here] and room not in UPSTAIRS.get(here, ()):
            wrong.append(f"{here} imports {name or 'the facade'}, which is not below it")
        elif not (SOURCE / Path(*name.split(".")) / "__init__.py").is_file() and name != room:
            wrong.append(f"{name} is inside {room}: import from a front")
    return wrong


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_downstairs_and_through_fronts(path: Path) -> None:
    if path.parent != SOURCE or path.stem not in ("__init__", "__main__"):
        assert faults(dotted(path), path.read_text()) == []


def test_the_import_test_can_fail() -> None:
    assert faults("trainer.data._load", "def f():\n    from deepsup.trainer.runs import Run")
    assert faults("errors", "import deepsup.objective")
    assert faults("objective._losses", "from deepsup.supervision._taps import describe")
    assert faults("supervision._packing", "import deepsup")
    assert faults("exits._stages", "from deepsup import supervise")
    assert not faults("objective._losses", "from deepsup.supervision import Companion")
    assert not faults("insight._probe_result", "from deepsup.trainer.report import write_probe_page")


def test_the_ground_floor_reaches_upstairs_only_when_called() -> None:
    for path in MODULES:
        above = UPSTAIRS.get(room_of(dotted(path)), set())
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert not above & set(map(room_of, filter(None, imported_modules(ast.unparse(node))))), path


def test_modules_that_nobody_outside_may_touch_start_with_an_underscore() -> None:
    """So the names of a front cannot clash with modules either: ``runs.train`` is the function."""
    applications = ("paper", "cli", "__init__", "__main__")  # nobody imports those
    open_modules = {
        dotted(path)
        for path in MODULES
        if path.parent not in (SOURCE, SOURCE / "trainer") and not path.name.startswith("_")
    }
    assert {name for name in open_modules if room_of(name) not in applications} == PUBLIC | {"exits.onnx_runner"}


def drawn_order(page: str) -> list[list[str]]:
    """The rows of the drawing in docs/contributing.md: the indented block under the heading on the order of imports."""
    block = page.split("## Where things live")[1].split("```text")[1].split("```")[0]
    return [line.split("#")[0].split() for line in block.strip().splitlines()]


def test_the_drawn_order_is_the_real_one() -> None:
    rows = drawn_order((PROJECT / "docs" / "contributing.md").read_text())
    assert rows == [row for row in ROWS if not row[0].startswith("__")]
    drawn = {room for row in rows for room in row}
    assert drawn == {room_of(dotted(path)) for path in MODULES} - {"__init__", "__main__"}


def test_the_table_of_where_to_look_names_files_that_are_there() -> None:
    table = (PROJECT / "docs" / "contributing.md").read_text().split("| to find | look in |")[1].split("\n\n")[0]
    paths = [path for path in re.findall(r"`([\w./]+)`", table) if "/" in path or path.endswith(".py")]
    assert len(paths) > 20
    assert [path for path in paths if not (SOURCE / path).exists()] == []


def test_all_is_what_is_public() -> None:
    assert deepsup.__all__ == sorted(deepsup.__all__)
    assert sorted(dir(deepsup)) == deepsup.__all__
    for name in deepsup.__all__:
        thing = getattr(deepsup, name)
        assert thing.__doc__, f"{name} has no docstring"
        assert thing.__module__.startswith("deepsup.")


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda path: dotted(path))
def test_each_front_says_what_it_offers(folder: Path) -> None:
    """A front's ``__all__`` is exactly what it imports from its modules, and every name of it is there."""
    package = importlib.import_module(f"deepsup.{dotted(folder)}")
    tree = ast.parse((folder / "__init__.py").read_text())
    taken = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("deepsup")
        for alias in node.names
    }
    assert {name for name in taken if not name.startswith("_")} == set(package.__all__)
    for name in package.__all__:
        assert not isinstance(getattr(package, name), type(ast)), f"{name} is a module"


def test_no_module_takes_the_place_of_a_function() -> None:
    """Importing a package called ``export`` would replace the function ``deepsup.export``."""
    code = (
        "import importlib, sys, types, deepsup\n"
        f"for name in {[f'deepsup.{dotted(path)}'.removesuffix('.__init__') for path in MODULES]!r}:\n"
        "    if not name.endswith(('__main__', 'onnx_runner')):\n"
        "        importlib.import_module(name)\n"
        "for name in deepsup.__all__:\n"
        "    thing = getattr(deepsup, name)\n"
        "    assert callable(thing) and not isinstance(thing, types.ModuleType), name\n"
        "    if not isinstance(thing, type):\n"
        "        try:\n"
        "            thing(no_such_argument=0)\n"
        "        except TypeError as error:\n"
        "            assert f'{name}()' in str(error), error  # the function of that name has answered\n"
        "        else:\n"
        "            sys.exit(f'{name} took no_such_argument')\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_unknown_name_in_the_facade() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'supervize'"):
        deepsup.supervize  # noqa: B018 - the access is what is tested


def test_importing_the_facade_does_not_import_torch() -> None:
    code = "import sys, deepsup; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
