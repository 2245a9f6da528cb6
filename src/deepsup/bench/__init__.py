"""Speed, side by side with what a user would write instead: nothing in, one answer of ratios and rates out."""

from deepsup.bench.answer import markdown, read_answer, write_page

__all__ = ["markdown", "read_answer", "write_page"]
