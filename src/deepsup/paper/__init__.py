"""The paper, reproduced: a target in, its runs, its record and its lines in RESULTS.md out."""

from deepsup.paper.plan import minutes
from deepsup.paper.reproduce import plan_of, read_record, record_folder, repeat, reproduce, target_list
from deepsup.paper.summary import keep, summarise
from deepsup.paper.targets import NAMES
from deepsup.paper.verdicts import not_comparable, ratio_words

__all__ = [
    "NAMES",
    "keep",
    "minutes",
    "not_comparable",
    "plan_of",
    "ratio_words",
    "read_record",
    "record_folder",
    "repeat",
    "reproduce",
    "summarise",
    "target_list",
]
