"""The Markdown pages: one paragraph per line, links that lead somewhere, a short glossary."""

import itertools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def wrapped(text: str) -> list[str]:
    """Return the lines of prose that follow another line of prose: a paragraph that was wrapped."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    prose = re.compile(r"(?!\||#|<!--|!\[|    |\s*[-*] |\s*\d+\. )\s*\S")
    lines = text.splitlines()
    before = re.compile(r"(?!\||#|<!--|!\[|    )\s*\S")
    return [line for last, line in itertools.pairwise(lines) if before.match(last) and prose.match(line)]


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_the_check_sees_a_wrapped_paragraph() -> None:
    text = (
        "One line.\nIts second.\n\n- item\n  goes on\n- next\n\n```\na\nb\n```\n\n| a |\n| b |\n\n    code\n    code\n"
    )
    assert wrapped(text) == ["Its second.", "  goes on"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_paragraph_is_one_line(page: Path) -> None:
    assert wrapped(page.read_text()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text()):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_glossary_is_short_and_linked() -> None:
    entries = re.findall(r"^- \*\*.+?\*\*: (.*)$", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert 0 < len(entries) <= 12
    assert all(entry.endswith(".") and ". " not in entry for entry in entries), "one sentence each"
    for page in ("README.md", "docs/supervision.md", "docs/insight.md"):
        assert "glossary.md)" in (ROOT / page).read_text(), page
