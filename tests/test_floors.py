"""What is installable alone works alone: the library with torch, numpy and safetensors; the trainer without extras."""

import os
import re
import subprocess
import sys
import tomllib
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent

ONLY = """
import sys, sysconfig
from pathlib import Path

class Only:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        place, top = Path(sysconfig.get_path("purelib")), name.partition(".")[0]
        if top in ALLOWED or not (any(place.glob(f"{top}.*")) or (place / top).exists()):
            return self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = [Only(finder) for finder in sys.meta_path]
"""


@cache
def brought_by(extra: str | None = None) -> tuple[str, ...]:
    """Return what pip installs with deepsup, or with an extra of it: the names of packages under which they import."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    missing = [*project["dependencies"], *(project["optional-dependencies"][extra] if extra else [])]
    distributions: set[str] = set()
    while missing:
        requirement = Requirement(missing.pop())
        name = canonicalize_name(requirement.name)
        if name in distributions or not (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            continue
        distributions.add(name)
        with suppress(PackageNotFoundError):  # for another platform
            missing += requires(name) or []
    return tuple(
        package
        for package, names in packages_distributions().items()
        if distributions.intersection(map(canonicalize_name, names))
    )


def run(extra: str | None, code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code in an interpreter of its own in which only what an extra brings can be imported."""
    return subprocess.run(
        [sys.executable, "-c", f"ALLOWED = {('deepsup', *brought_by(extra))}\n{ONLY}{code}"],
        cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "DEEPSUP_DATA": str(folder)},
    )  # fmt: skip


def test_the_library_needs_torch_numpy_and_safetensors_alone(tmp_path: Path) -> None:
    """The README's first block, shortened; then probes, early exits and an export of its model."""
    (first,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    short = first.replace("range(20)", "range(1)")
    assert short != first
    more = """
import deepsup
from deepsup import EarlyExit, create_network, export, probe

assert probe(model, "auto", (x[:200], y[:200])).layers
net = supervise(create_network("cnn"), num_classes=10, example=x[:1])
assert len(EarlyExit(net, [0.9, 0.9])(x[:2]).scores) == 2
export(net, "model.safetensors", x[:2])
for name in ("tyro", "yaml", "scipy", "PIL", "matplotlib", "onnx", "sklearn"):
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    sys.exit(f"{name} can be imported: this test blocks nothing")
for call in ("train(deepsup.Config())", "compare(len, None, None)"):
    try:
        eval(f"deepsup.{call}")
    except deepsup.DeepsupError as error:
        print(error)
"""
    ran = run(None, short + more, tmp_path)
    assert ran.returncode == 0, ran.stderr[-2000:]
    without, with_, *missing = ran.stdout.splitlines()
    assert without.startswith("without companions: ")
    assert with_.startswith("with companions: ")
    assert missing == [
        f'deepsup.{name} needs the package {package}, which is not installed; pip install "deepsup[train]"'
        for name, package in (("train", "yaml"), ("compare", "scipy"))
    ]


def test_the_command_says_which_extra_brings_it(tmp_path: Path) -> None:
    ran = run(None, "from deepsup.__main__ import main; sys.exit(main())", tmp_path)
    assert ran.returncode == 2
    assert re.fullmatch(
        r"deepsup: the command line needs the package \w+, which is not installed; pip install \"deepsup\[train\]\"\n",
        ran.stderr,
    )


@pytest.mark.slow
def test_verbs_say_which_extra_they_need(tmp_path: Path) -> None:
    """The trainer alone trains and evaluates; each verb that needs more says so in one line, with the extra."""
    verbs = {
        "report runs/one": "figures",
        "demo runs/one": "export",
        "export runs/one --to onnx": "export",
        "sweep --data mnist-mini --budget 1 --out runs/sweep": "sweep",
        "compare --data mnist-mini --engine ray": "ray",
    }
    code = """
from deepsup.cli import main

WORKS = ["--version", "data list", "train --train-size 50 --batch-size 10 --epochs 1 --out runs/one",
         "evaluate runs/one", "inspect runs/one", "export runs/one --to safetensors"]
for words in WORKS:
    assert main(words.split()) == 0, words
"""
    code += f"for words in {list(verbs)}:\n    assert main(words.split()) == 2, words\n"
    ran = run("train", code, tmp_path)
    assert ran.returncode == 0, ran.stderr[-2000:]
    said = [line for line in ran.stderr.splitlines() if line.startswith("deepsup: ")]
    assert [re.search(r'which is not installed; pip install "deepsup\[(\w+)\]"', line)[1] for line in said] == [
        *verbs.values()
    ]
