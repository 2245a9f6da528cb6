"""The paper, reproduced: a target in, its runs, its record and its lines in RESULTS.md out."""

from deepsup.reproduction.plan import minutes
from deepsup.reproduction.reproduce import plan_of, read_record, record_folder, repeat, reproduce
from deepsup.reproduction.summary import keep, summarise

__all__ = ["keep", "minutes", "plan_of", "read_record", "record_folder", "repeat", "reproduce", "summarise"]
