"""Write sections of text, tables and figures as one self-contained HTML page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from deepsup.io import disk_errors_named, folder_below, printable, whole_file
from deepsup.trainer.report._names import cut
from deepsup.trainer.report._style import Drawing

MOST_ROWS, LONGEST_CELL = 2000, 5000
"""Of a table, and letters of a text: a file of a stranger can hold millions."""


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

    def save(self, plots: Path, prefix: str) -> None:
        """Write the figures to a folder; on the page their ids begin with a prefix."""
        for place, figure in enumerate(self.figures):
            figure.drawing.salt = f"{prefix}f{place}"
            figure.drawing.save(plots)

    def bound(self) -> None:
        """Leave out what nobody can read."""
        self.title, self.text = read_at_once(self.title), read_at_once(self.text)
        self.cards = [(read_at_once(name), read_at_once(value)) for name, value in self.cards]
        self.commands = [(why, read_at_once(command)) for why, command in self.commands]
        for table in self.tables:
            left = len(table.rows) - MOST_ROWS
            rows = [*table.rows[:MOST_ROWS], *([[f"and {left:,} more"]] if left > 0 else [])]
            table.header, *table.rows = [[read_at_once(cell) for cell in row] for row in (table.header, *rows)]
        for picture in self.pictures:
            picture.alt, picture.lines = read_at_once(picture.alt), [read_at_once(line) for line in picture.lines]
        for figure in self.figures:
            figure.drawing.alt = read_at_once(figure.drawing.alt)

    def close(self) -> None:
        """Give the memory of the figures back."""
        for figure in self.figures:
            figure.drawing.close()

    @property
    def empty(self) -> bool:
        """Whether the section has no content."""
        return not (self.text or self.cards or self.tables or self.figures or self.pictures or self.commands)


def write_page(title: str, lead: Sequence[str], sections: Iterable[Section], out: Path) -> None:
    """Write the page, in which every text is escaped, and every figure as PNG and SVG into ``plots/`` beside it.

    lead: the paragraphs of the introduction.
    sections: drawn one after the other and closed when they are written: many runs take no more memory than one.
    """
    with disk_errors_named(out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
    plots = folder_below(out.parent, "plots")
    environment = Environment(
        loader=PackageLoader("deepsup.trainer.report", "."), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=shown,
    )  # fmt: skip
    part, titles = environment.get_template("section.html.j2"), list[str]()
    with TemporaryFile("w+", encoding="utf-8", newline="") as body:  # the titles stand above the sections
        for section in sections:
            if not section.empty:
                section.bound()
                section.save(plots, f"s{len(titles)}")
                body.write(part.render(section=section, index=len(titles)))
                titles.append(section.title)
            section.close()
        body.seek(0)
        chunks = map(Markup, iter(partial(body.read, 2**20), ""))
        page = environment.get_template("page.html.j2")
        with whole_file(out) as file:
            lead = [read_at_once(each) for each in lead]
            for text in page.generate(title=read_at_once(title), lead=lead, titles=titles, body=chunks):
                file.write(text.encode())


def read_at_once(value: Any) -> Any:
    """Return a text without its middle, if it is too long to be read; all else as it is."""
    return cut(value, LONGEST_CELL) if isinstance(value, str) else value


def shown(value: Any) -> Any:
    """Return what the page says for a value: control characters of names are spelled out."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value
