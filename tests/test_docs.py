"""The Markdown pages: Python that runs as printed, one paragraph per line, links that lead somewhere."""

import itertools
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import deepsup.trainer.data
from deepsup.trainer.data._dataset import Dataset, Part

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


SLOW = {"tutorial.md"}
PRINTED = {"training.md": ["0.01 mnist-mini cnn 3\n", "torch.Size([4, 10])"]}
"""What some pages say that their code prints."""
RUNNABLE = [
    pytest.param(page, id=page.name, marks=[pytest.mark.slow] * (page.name in SLOW))
    for page in PAGES
    if page.parent.name == "docs" and "```python" in page.read_text()
]


def python_of(page: str) -> list[str]:
    """Return the Python of a page, in order: blocks, and before them what a comment "run first" holds."""
    hidden = re.findall(r"^<!-- run first\n(.*?)^-->", page, re.MULTILINE | re.DOTALL)
    return hidden + re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of two kinds of photos, and small random images in place of the sets that have to be downloaded."""
    monkeypatch.chdir(tmp_path)
    for kind, number in itertools.product(("cats", "dogs"), range(10)):
        Path("my-photos", kind).mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((40, 50, 3), 10 * number, np.uint8)).save(f"my-photos/{kind}/{number}.png")
    real, draw = deepsup.trainer.data.load_data, np.random.default_rng(0)

    def part(count: int, side: int) -> Part:
        channels = 1 if side == 28 else 3
        return Part(
            draw.integers(0, 256, (count, channels, side, side), np.uint8), np.arange(count, dtype=np.int64) % 10
        )

    def small(source="mnist-mini", *, extra=False, **more):
        if source not in ("mnist", "cifar10", "svhn"):
            return real(source, **more)
        side = 28 if source == "mnist" else 32
        counts = (12_000, 200) if source == "mnist" else (6_000, 200)
        more_images = part(6_000, 32) if extra else None
        return Dataset(source, tuple("0123456789"), part(counts[0], side), part(counts[1], side), extra=more_images)

    monkeypatch.setattr(deepsup.trainer.data, "load_data", small)


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("page", RUNNABLE)
def test_python_of_the_docs_runs_as_printed(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    state = torch.random.get_rng_state()
    for number, block in enumerate(python_of(page.read_text()), 1):
        exec(compile(block, f"{page.name}, block {number}", "exec"), names)
    torch.random.set_rng_state(state)
    printed = capsys.readouterr().out
    assert [line for line in PRINTED.get(page.name, []) if line not in printed] == []


def wrapped(text: str) -> list[str]:
    """Return the lines of prose that follow another line of prose: a paragraph that was wrapped."""
    text = re.sub(r"^(```.*?^```|<!--.*?-->)$", "", text, flags=re.MULTILINE | re.DOTALL)
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


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """A dead link, a page in no table of contents, a docstring that is no valid markup: each is a warning."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-E", "docs", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert built.returncode == 0, built.stderr
    pages = {page.with_suffix(".html").name for page in (ROOT / "docs").glob("*.md")}
    assert pages <= {page.name for page in tmp_path.glob("*.html")}
    assert "deepsup.supervise" in (tmp_path / "api.html").read_text()
