"""The script that renews the README's pictures: three PNG files, the page's first screen with nothing cut off."""

import runpy
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from deepsup.errors import RunError

SCRIPT = runpy.run_path(str(Path(__file__).parents[3] / "dev" / "readme_images.py"))


@pytest.mark.skipif(
    shutil.which("chromium") is None, reason="no chromium is installed (Debian: apt-get install chromium)"
)
def test_three_pictures(make_comparison: Callable[..., Path], tmp_path: Path) -> None:
    SCRIPT["make"](make_comparison(), tmp_path / "images")
    sizes = {}
    for path in (tmp_path / "images").iterdir():
        with Image.open(path) as image:
            sizes[path.name] = image.size
    assert sizes.keys() == {"report.png", "four-methods.png", "layers.png"}
    assert sizes["layers.png"] == (1350, 525)  # 900 x 350 on a screen, in one and a half times the pixels
    width, height = sizes["report.png"]
    assert width == 1200
    assert 600 < height < 1000


def test_a_comparison_without_probes(make_comparison: Callable[..., Path], tmp_path: Path) -> None:
    folder = make_comparison()
    for path in folder.glob("*/insight.json"):
        path.unlink()
    with pytest.raises(RunError, match="was inspected; expected a CNN and a DSN; run deepsup inspect"):
        SCRIPT["make"](folder, tmp_path / "images")
