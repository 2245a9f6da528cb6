"""Render sections of text, tables and figures as one self-contained HTML page."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from deepsup.io import disk_errors_named, folder_below, printable
from deepsup.report.style import Drawing


@dataclass
class PageTable:
    """A header and rows of cells; the first column names the row."""

    header: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass
class Shown:
    """A drawing with its caption."""

    drawing: Drawing
    caption: str

    @property
    def svg(self) -> Markup:
        """The SVG, which matplotlib has escaped."""
        return Markup(self.drawing.svg())


@dataclass
class Picture:
    """A small image with lines of text under it."""

    uri: str
    alt: str
    lines: Sequence[str]


@dataclass
class Section:
    """A part of the page under one title."""

    title: str
    text: str = ""
    cards: list[tuple[str, str]] = field(default_factory=list)
    tables: list[PageTable] = field(default_factory=list)
    figures: list[Shown] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    columns: int = 0
    """Pictures per row; 0: as many as fit."""
    legend: list[tuple[str, str]] = field(default_factory=list)
    """Colours in the pictures, and what they stand for."""
    commands: list[tuple[str, str]] = field(default_factory=list)
    """Reason and command."""
    folded: bool = False

    def show(self, drawing: Drawing | None, caption: str) -> None:
        """Add a drawing, if there is one."""
        if drawing is not None:
            self.figures.append(Shown(drawing, caption))

    def set_apart(self, name: str) -> None:
        """Add a name to the title and to the file names, for a page about several runs."""
        self.title = f"{name}: {self.title[0].lower()}{self.title[1:]}"
        for figure in self.figures:
            figure.drawing.name = f"{name.replace('/', '-')}-{figure.drawing.name}"

    @property
    def empty(self) -> bool:
        """Whether the section has no content."""
        return not (self.text or self.cards or self.tables or self.figures or self.pictures or self.commands)


def render(title: str, lead: Sequence[str], sections: Sequence[Section]) -> str:
    """Return the page; every text in it is escaped.

    lead: the paragraphs of the introduction.
    """
    environment = Environment(
        loader=PackageLoader("deepsup.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=shown,
    )  # fmt: skip
    parts = [section for section in sections if not section.empty]
    for section, prefix in ((section, f"s{index}") for index, section in enumerate(parts)):
        for place, figure in enumerate(section.figures):
            figure.drawing.salt = f"{prefix}f{place}"
    return environment.get_template("page.html.j2").render(title=title, lead=lead, sections=parts)


def shown(value: Any) -> Any:
    """Return what the page says for a value: control characters of names are spelled out."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def save_drawings(sections: Sequence[Section], folder: Path) -> None:
    """Write every figure of the sections into ``plots/`` of a folder, as PNG and SVG."""
    with disk_errors_named(folder):
        folder.mkdir(parents=True, exist_ok=True)
    plots = folder_below(folder, "plots")
    for section in sections:
        for figure in section.figures:
            figure.drawing.save(plots)
