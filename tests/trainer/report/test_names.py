"""Class names of any length and script: no warning, no missing glyph, the whole name in a tooltip."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.text import Text

from deepsup.trainer.report import _names as names
from deepsup.trainer.report import write_report
from deepsup.trainer.report._insight_figures import draw_confusion
from deepsup.trainer.report._names import drawable_name, shorten, width
from deepsup.trainer.report._read import read_run

LONG = "a class with a very long name & a <tag>"
CLASSES = (LONG, "三毛猫", "강아지")


@given(st.text(), st.integers(6, 30))
def test_a_short_name_fits_and_keeps_both_ends(name: str, limit: int) -> None:
    found = shorten(name, limit)
    assert width(found) <= limit
    if width(" ".join(name.split())) > limit:
        head, tail = found.split("…")[0], found.split("…")[-1]
        assert " ".join(name.split()).startswith(head)
        assert " ".join(name.split()).endswith(tail)


def test_wide_letters_count_twice() -> None:
    assert [width(name) for name in ("cat", "三毛猫", "")] == [3, 6, 0]


@pytest.fixture
def only_latin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a font for other scripts."""
    monkeypatch.setattr(names, "glyphs", lambda: frozenset(range(0x20, 0x17F)) | {ord("…")})


@pytest.mark.usefixtures("only_latin")
def test_a_letter_without_a_glyph_is_written_as_its_number() -> None:
    assert drawable_name("猫 cat", 14) == r"\u732b cat"


@pytest.mark.usefixtures("only_latin")
def test_no_figure_draws_a_letter_without_a_glyph(make_run: Callable[..., Path]) -> None:
    """The PNG has letters that can be drawn, the SVG the names; a warning of matplotlib would be an error here."""
    drawing = draw_confusion(read_run(make_run("mine", classes=CLASSES)))
    assert drawing is not None
    svg = drawing.svg()
    assert all(names.has_glyphs(text.get_text()) for text in drawing.figure.findobj(Text))  # type: ignore[attr-defined]
    for name in CLASSES[1:]:
        assert len(re.findall(f"<title>{name}</title>\\s*<text[^>]*>{name}</text>", svg)) == 2  # row and column
    whole = "a class with a very long name &amp; a &lt;tag&gt;"
    assert len(re.findall(f"<title>{whole}</title>\\s*<text[^>]*>[^<]*…[^<]*</text>", svg)) == 2
    assert "name0" not in svg


def test_the_page_of_a_run_with_such_names(make_run: Callable[..., Path]) -> None:
    folder = make_run("mine", classes=CLASSES, data="写真")
    page = write_report([folder]).read_text()
    assert page.count("<title>三毛猫</title>") == 3  # rows and columns of the confusion matrix, and feature maps
    assert "写真" in page
    assert (folder / "plots" / "confusion.png").is_file()
