"""The documentation site: ``make docs``, then open build/docs/index.html."""

import re
from pathlib import Path
from typing import Any

from deepsup.cli.settings import default_of, help_of
from deepsup.trainer.config import GROUPS, Config, settings_of

project = "deepsup"
author = "deepsup contributors"
copyright = "deepsup contributors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "sphinx_copybutton"]
html_theme = "furo"
html_title = "deepsup"
html_show_sphinx = False
html_theme_options = {
    theme: {"code-font-size": "72%"} for theme in ("light_css_variables", "dark_css_variables")
}  # lines of 100 characters fit
exclude_patterns = ["_build"]
html_extra_path = ["glass-box.html"]  # a live page of deepsup demo
myst_heading_anchors = 4
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}

ROOT_PAGES = {"CHANGELOG.md": "changelog.md", "README.md": "overview.md", "RESULTS.md": "results.md"}
"""Files of the repository's root -> the pages of the site that show them."""


def linked(_app: Any, _page: str, source: list[str]) -> None:
    """Lead links to files of the root, which GitHub shows, to the pages of the site."""
    for name, page in ROOT_PAGES.items():
        source[0] = source[0].replace(f"](../{name}", f"]({page}")


def included(_app: Any, _path: Path, _parent: str, source: list[str]) -> None:
    """Lead the links of a file of the root, which start there, to the pages of the site."""
    source[0] = re.sub(r"\]\(docs/", "](", source[0])
    for name, page in ROOT_PAGES.items():
        source[0] = source[0].replace(f"]({name}", f"]({page}")
    source[0] = re.sub(r"\]\((results/)", r"](../\1", source[0])


def settings(_app: Any, page: str, source: list[str]) -> None:
    """Write the tables of all settings into the reference."""
    if page == "api":
        defaults = Config()
        parts = []
        for name, group in GROUPS.items():
            rows = [
                f"| `{each.name}` | {default_of(each, defaults)} | {help_of(each)} |" for each in settings_of(group)
            ]
            parts += [f"**{name}**", "\n".join(["| setting | default | what it sets |", "|---|---|---|", *rows])]
        source[0] = source[0].replace("<!-- settings -->", "\n\n".join(parts).replace("|w|", "\\|w\\|"))


def parameters(_app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Turn lines such as ``jobs: number of processes`` of a docstring into a list of parameters."""
    lines[:] = [re.sub(r"(?<!`)\|", r"\\|", line) for line in lines]  # |w|^2 is no substitution
    for place, line in enumerate(lines):
        if found := re.match(r"(\w+(?:, \w+)*): (?=\S)", line):
            lines[place] = f":param {found[1].replace(', ', ',')}: {line[found.end() :]}"


def setup(app: Any) -> None:
    """Connect the functions above."""
    app.connect("source-read", linked)
    app.connect("source-read", settings)
    app.connect("include-read", included)
    app.connect("autodoc-process-docstring", parameters)
