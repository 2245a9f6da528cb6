"""Measure speed, compared with what a user would write instead, and the effect of companions on the error."""

from deepsup.paper.bench.answer import ROWS, find, markdown, page_text, rates, read_answer, rows_of, where, write_page
from deepsup.paper.bench.harm import Budget, all_cells, measure_harm, write_record
from deepsup.paper.bench.models import GROUPS
from deepsup.paper.bench.suite import FULL, QUICK, Bench

__all__ = [
    "FULL",
    "GROUPS",
    "QUICK",
    "ROWS",
    "Bench",
    "Budget",
    "all_cells",
    "find",
    "markdown",
    "measure_harm",
    "page_text",
    "rates",
    "read_answer",
    "rows_of",
    "where",
    "write_page",
    "write_record",
]
