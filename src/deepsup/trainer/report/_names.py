"""Shorten names, long or in any script, so that they fit in a figure and can be drawn.

A browser has fonts for every script, so an SVG keeps the name. A PNG only has the installed fonts.
"""

import unicodedata
from functools import cache

from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font

_CJK = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei",
    "PingFang SC", "Hiragino Sans", "Apple SD Gothic Neo", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic",
    "Arial Unicode MS",
)  # fmt: skip
_INSTALLED = set(fontManager.get_font_names())
FONTS = ["DejaVu Sans", *(name for name in _CJK if name in _INSTALLED), "sans-serif"]


def shorten(name: str, limit: int) -> str:
    """Shorten a name in the middle to ``limit`` characters; a Chinese, Japanese or Korean one counts as two.

    >>> shorten("golden retriever puppy", 14)
    'golden re…uppy'
    >>> shorten("猫", 14)
    '猫'
    """
    name = " ".join(name.split())
    if width(name) <= limit:
        return name
    head, tail = name[:limit], name[-limit:]
    while width(head) > 2 * (limit - 1) // 3 + 1:
        head = head[:-1]
    while width(tail) > limit - 1 - width(head):
        tail = tail[1:]
    return f"{head}…{tail}"


def cut(text: str, limit: int) -> str:
    """Leave out the middle of a text that is too long to be read, without looking at all of it.

    >>> cut("a" * 50_000_000 + "b", 4)
    'aa…ab'
    """
    return text if len(text) <= limit else f"{text[: limit // 2]}…{text[len(text) - limit // 2 :]}"


def width(name: str) -> int:
    """Return the width of a name in Latin characters."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in name)


def drawable_name(name: str, limit: int) -> str:
    r"""Return a name that fits, with characters without a glyph written as their Unicode numbers.

    >>> drawable_name("a \ue000", 14)
    'a \\ue000'
    """
    return shorten("".join(letter if has_glyphs(letter) else f"\\u{ord(letter):04x}" for letter in name), limit)


def has_glyphs(name: str) -> bool:
    """Whether every character of a name can be drawn; white space always can."""
    return all(letter.isspace() or ord(letter) in glyphs() for letter in name)


@cache
def glyphs() -> frozenset[int]:
    """Return the characters that the fonts of a PNG can draw."""
    fonts = [get_font(findfont(FontProperties(family=[family]))) for family in FONTS]
    return frozenset(number for font in fonts for number in font.get_charmap())
