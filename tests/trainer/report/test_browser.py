"""The page in a real browser: no error, no request, every figure with size and words, nothing wider than the screen."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deepsup.trainer.report import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed (Debian: apt-get install chromium)"),
]

FIGURES = """() => [...document.querySelectorAll('figure svg, img')].map(element => {
    const box = element.getBoundingClientRect();
    const words = element.getAttribute('alt') || element.closest('figure').getAttribute('aria-label');
    return {width: box.width, height: box.height, words: words || ''};
})"""
# of the texts that are not in a scrolling table: how far right they reach, and how small they are
TEXTS = """() => [...document.querySelectorAll('h1, h2, p, dt, dd, figcaption, td, th')]
    .filter(element => element.getBoundingClientRect().width > 0)
    .map(element => ({
        right: element.closest('.scroll') ? 0 : element.getBoundingClientRect().right,
        size: parseFloat(getComputedStyle(element).fontSize),
    }))"""
FONTS = """() => [...document.querySelectorAll('figure svg text')].map(text => {
    const place = text.getScreenCTM();
    return parseFloat(getComputedStyle(text).fontSize) * Math.hypot(place.a, place.b); })"""
# what is wider than its box: name, how much is hidden, and whether it scrolls inside its own box
CUT = """() => [...document.querySelectorAll('.scroll, pre, figure, section, .cards div')]
    .filter(element => element.scrollWidth > element.clientWidth + 1 && element.clientWidth > 0)
    .map(element => ({name: element.tagName + '.' + element.className,
        hidden: element.scrollWidth - element.clientWidth,
        scrolls: getComputedStyle(element).overflowX === 'auto'}))"""
# the fills of the markers of a figure, and the colour of the paper
MARKERS = """name => ({
    paper: getComputedStyle(document.body).backgroundColor,
    fills: [...document.querySelectorAll(`figure[aria-label^="${name}"] svg use`)]
        .map(marker => getComputedStyle(marker).fill)})"""
CONTRAST = """() => { const style = getComputedStyle(document.body);
    const light = colour => { const [r, g, b] = colour.match(/[0-9.]+/g).map(Number); return r + g + b; };
    return light(style.color) - light(style.backgroundColor); }"""


@pytest.fixture(scope="module")
def pages() -> dict[str, Path]:
    """Pages that were written already: they are the same for every screen."""
    return {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1300, 1600])
def test_a_page_about_everything(
    browser: Any, make_run: Callable[..., Path], make_comparison: Callable[..., Path], pages: dict[str, Path],
    width: int, scheme: str,
) -> None:  # fmt: skip
    if not pages:
        classes = ("a class with a very long name", "三毛猫", "강아지")
        ours = make_run("ours", tuple(f"conv{n}" for n in range(1, 7)), classes=classes, data="a/" * 40 + "photos")
        pages["all"] = write_report([make_comparison(), ours, make_run("theirs", taps=())])
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(pages["all"].as_uri())
    page.wait_for_load_state()
    for folded in page.query_selector_all("summary"):
        folded.click()
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [pages["all"].as_uri()]
    figures = page.evaluate(FIGURES)
    assert len(figures) > 20
    for figure in figures:
        assert figure["width"] >= 50, figure
        assert figure["height"] >= 20, figure
        assert figure["width"] <= width, figure
        assert len(figure["words"]) > 10, figure
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    texts = page.evaluate(TEXTS)
    assert max(text["right"] for text in texts) <= width
    assert min(text["size"] for text in texts) >= 12
    # the texts in figures, in pixels of the screen
    sizes = page.evaluate(FONTS)
    assert min(sizes) >= 7.5, sizes
    cut = page.evaluate(CUT)
    assert [each for each in cut if width > 400 or not each["scrolls"]] == []
    # hollow is the colour of the paper, light or dark
    markers = page.evaluate(MARKERS, "Test error of the methods")
    assert markers["paper"] in markers["fills"]
    assert "rgb(255, 255, 255)" not in markers["fills"]
    light_on_dark = page.evaluate(CONTRAST) > 0
    assert light_on_dark is (scheme == "dark")
    page.close()
