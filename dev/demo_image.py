"""Take the picture of the glass box for the docs: ``python dev/demo_image.py demo.html docs/images/glass-box.png``.

A seven of the test's strokes is drawn on the page, on which the first layers of the main job's net see a two.
"""

import io
import json
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

DIGIT = 77
CLIP = {"x": 0, "y": 0, "width": 1180, "height": 1310}
DRAW = "([strokes, pen]) => { clear(); Object.assign(state, {strokes, pen}); paint(); see(); select(0, 0); }"


def main() -> None:
    """Open the page, draw, and write the picture."""
    page_file, out = map(Path, sys.argv[1:])
    strokes = Path(__file__).parents[1] / "tests/trainer/demo/strokes.json"
    digit = json.loads(strokes.read_text(encoding="utf-8"))[DIGIT]
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1180, "height": 860})
        page.goto(page_file.resolve().as_uri())
        page.wait_for_timeout(1000)
        page.evaluate(DRAW, [digit["strokes"], digit["pen"]])
        page.wait_for_timeout(1000)
        picture = Image.open(io.BytesIO(page.screenshot(full_page=True, clip=CLIP)))
        browser.close()
    picture.convert("RGB").save(out, optimize=True)


if __name__ == "__main__":
    main()
