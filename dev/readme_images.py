"""The folder of a comparison in, the README's pictures out: docs/images/report.png, four-methods.png and layers.png.

    python dev/readme_images.py runs/compare [FOLDER]

Without a folder it rewrites those of the README. report.png is the first screen of the page: it needs chromium (Debian:
apt-get install chromium) and playwright (pip install 'deepsup[dev]').
"""

import shutil
import sys
from pathlib import Path

from deepsup.errors import RunError
from deepsup.trainer.report import write_report
from deepsup.trainer.report._layer_figures import draw_layers, probed_pairs
from deepsup.trainer.report._method_figures import methods_figure
from deepsup.trainer.report._read import read_comparison

IMAGES = Path(__file__).parent.parent / "docs" / "images"
WIDTH, HEIGHT = 1200, 900
# where the first screen ends: below the first figures, with the page's own margin
END = "document.querySelector('.figures').getBoundingClientRect().bottom + 20"


def make(comparison: Path, folder: Path) -> None:
    """Write the three pictures."""
    record = read_comparison(comparison)
    pairs = probed_pairs(record)
    layers = draw_layers(next(iter(pairs.values())), wide=True) if pairs else None
    if layers is None:
        raise RunError(f"no net in {comparison} was inspected; expected a CNN and a DSN; run deepsup inspect on them")
    folder.mkdir(parents=True, exist_ok=True)
    layers.save_png(folder / "layers.png")
    methods_figure(record.table).save_png(folder / "four-methods.png")
    photograph(write_report([comparison]), folder / "report.png")


def photograph(page: Path, out: Path) -> None:
    """Take a picture of the page's first screen, with nothing cut off."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        view.goto(page.resolve().as_uri())
        height = view.evaluate(END)
        view.set_viewport_size({"width": WIDTH, "height": round(height)})
        view.screenshot(path=str(out))
        browser.close()


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    try:
        make(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else IMAGES)
    except RunError as error:
        sys.exit(str(error))
