"""The paper, reproduced: a target in, its runs, its record and its lines in RESULTS.md out."""

from deepsup.reproduction.plan import PRESETS, minutes
from deepsup.reproduction.reproduce import plan_of, read_record, record_folder, repeat, reproduce
from deepsup.reproduction.summary import keep, summarise
from deepsup.reproduction.targets import NAMES, TARGETS

__all__ = [
    "NAMES", "PRESETS", "TARGETS", "keep", "minutes", "plan_of", "read_record", "record_folder", "repeat", "reproduce",
    "summarise",
]  # fmt: skip
