"""The live page of the docs is one that this version writes."""

from pathlib import Path

from deepsup.trainer.demo import _demo_page as demo_page

DOCS = Path(__file__).parents[3] / "docs"
HERE = Path(demo_page.__file__).parent


def test_the_live_page_is_up_to_date() -> None:
    """If not, write it again: docs/demo.md has the commands; --out docs/glass-box.html."""
    page = (DOCS / "glass-box.html").read_text(encoding="utf-8")
    for name in ("interpreter.js", "drawing.js", "page.js", "demo.css"):
        assert (HERE / name).read_text(encoding="utf-8").strip() in page, name
    assert len(page) < 1_000_000
