"""Measure speed, compared with what a user would write instead, and the effect of companions on the error."""

from deepsup.paper.bench.answer import markdown, read_answer, write_page

__all__ = ["markdown", "read_answer", "write_page"]
