"""Every script in examples/ runs as it stands there, without data of its own, and prints a few plain lines."""

import os
import re
import runpy
import subprocess
import sys
import time
from pathlib import Path

import pytest

SLOW = {"early_exits", "export_onnx", "finetune_timm", "hugging_face_resnet", "scikit_learn", "segmentation"}
"""Other tests run a short form of these, or supervise models of the same kind."""
EXAMPLES = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.slow] * (path.stem in SLOW))
    for path in sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
]


def no_worse_than_an_svc(lines: list[str]) -> None:
    found = re.findall(r"^(\w+) +(\d\.\d+)$", "\n".join(lines), re.MULTILINE)
    scores = {name: float(score) for name, score in found}
    assert {"SVC", "net", "relu1", "output"} <= scores.keys()
    assert scores["net"] > scores["SVC"] - 0.005


CHECKS = {"scikit_learn": no_worse_than_an_svc}


@pytest.mark.filterwarnings("default")  # what other packages deprecate is not the examples' business
@pytest.mark.parametrize("path", EXAMPLES)
def test_an_example(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """In this process, since most of their time is the import of packages that other tests have imported too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path)])
    began = time.process_time()
    runpy.run_path(str(path), run_name="__main__")
    assert time.process_time() - began < 60
    lines = capsys.readouterr().out.splitlines()
    assert 1 <= len(lines) <= 20
    CHECKS.get(path.stem, len)(lines)
    assert list(tmp_path.iterdir()) == [], "an example leaves nothing behind"


@pytest.mark.slow
def test_packages_that_need_torchvision_import_in_a_process_of_their_own() -> None:
    """The tests declare torchvision's operators for themselves; a user's script has nobody who does."""
    code = "import deepsup.adapters.hugging_face, deepsup.adapters.lightning_module, timm"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
