"""The paper, reproduced: a target in, its runs, its record and its lines in RESULTS.md out."""

from deepsup.paper.plan import minutes
from deepsup.paper.reproduce import plan_of, read_record, record_folder, repeat, reproduce
from deepsup.paper.summary import keep, summarise
from deepsup.paper.verdicts import not_comparable

__all__ = [
    "keep",
    "minutes",
    "not_comparable",
    "plan_of",
    "read_record",
    "record_folder",
    "repeat",
    "reproduce",
    "summarise",
]
