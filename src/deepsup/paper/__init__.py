"""The paper, reproduced: a target in, its runs, its record and its lines in RESULTS.md out."""

from deepsup.paper.plan import minutes
from deepsup.paper.reproduce import plan_of, read_record, record_folder, repeat, reproduce
from deepsup.paper.summary import keep, summarise

__all__ = ["keep", "minutes", "plan_of", "read_record", "record_folder", "repeat", "reproduce", "summarise"]
