"""docs/segmentation.md and examples/segmentation.py: their code runs."""

import subprocess
import sys
from pathlib import Path

import pytest

from deepsup.trainer.data import COMPOSED

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "segmentation.md").read_text()

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:monai", "ignore::FutureWarning:monai")


def test_the_page_names_all_scenes() -> None:
    for each in COMPOSED.values():
        assert f"| `{each.name}` |" in PAGE


def test_the_example_runs_with_one_short_epoch(tmp_path: Path) -> None:
    script = (ROOT / "examples" / "segmentation.py").read_text()
    short = script.replace("epochs = 6", "epochs = 1").replace("data.train.images)", "data.train.images[:20])")
    assert short != script
    (tmp_path / "short.py").write_text(short.replace("data.train.labels)", "data.train.labels[:20])"))
    done = subprocess.run([sys.executable, str(tmp_path / "short.py")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "pruned at decoder2" in done.stdout
