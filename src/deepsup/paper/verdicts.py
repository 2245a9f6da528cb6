"""Entries of a record -> the words and numbers that verdicts are made of: found by id, never by label."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from deepsup.paper.row_id import RowId
from deepsup.trainer.config import Config
from deepsup.trainer.data import HALVES, KNOWN

REPRODUCED, PARTLY, NOT_REPRODUCED = "reproduced", "partly", "not reproduced"
CORRECTED = "corrected"
"""A lemma that holds after a correction."""
NOT_COMPARABLE = "not comparable"
"""The base of the comparison did not learn."""
NOT_RUN = "not run"
ONE_LEARNED, NONE_LEARNED = (f"looked further: {which} candidate learned" for which in ("a", "no"))
"""What a row says whose planned candidates all were at chance."""
Record = Mapping[str, Any]
Entry = Mapping[str, Any]


class Judged(NamedTuple):
    """What was found, with n and the interval, and the verdict on it."""

    found: str
    verdict: str


UNKNOWN = Judged("", NOT_RUN)


@dataclass(frozen=True)
class Claim:
    """What is claimed, the target whose record answers, and the rule by which it does."""

    what: str
    paper: str
    target: str
    judge: Callable[[Record], Judged]
    rule: str


def guessing(config: Config) -> float:
    """Return the error of guessing in percent; data without a known name are the digits of the smoke preset."""
    known = (KNOWN | HALVES).get(config.data.source)
    return 100 - 100 / (10 if known is None else len(known.classes))


def at_chance(error: float, guess: float) -> bool:
    """Whether a net did not learn: it is right less than twice as often as guessing.

    >>> at_chance(88.65, 90.0), at_chance(77.0, 90.0), at_chance(97.0, 99.0)
    (True, False, False)
    """
    return error > 2 * guess - 100


def find_row(record: Record, name: RowId) -> Entry | None:
    """Return a row or a reading by its id, if it has a number."""
    entries = (*record["rows"], *record.get("readings", []))
    found = [each for each in entries if each["mean"] is not None and RowId.of(each) == name]
    return found[0] if found else None


def find_test(record: Record, ours: RowId, theirs: RowId) -> Entry | None:
    """Return the paired test of two rows, if it has an interval."""
    for each in record.get("tests", []):
        if each["interval"] is not None and (RowId.of(each, "ours"), RowId.of(each, "theirs")) == (ours, theirs):
            found: Entry = each
            return found
    return None


def unlearned(record: Record, base: RowId) -> str:
    """Say that a row did not learn, or that none of its candidates did before its seeds were trained; or nothing."""
    row = find_row(record, base)
    if row is None or "guessing" not in row:
        return ""
    if at_chance(row["mean"], row["guessing"]):
        return f"{row['row']} did not learn ({row['mean']:.1f} % error)"
    if row.get("chosen_on", {}).get("further") == NONE_LEARNED:
        return f"{row['row']} learned at no rate on held-out images ({row['mean']:.1f} % test error)"
    return ""


def not_comparable(record: Record, entry: Entry) -> str:
    """Say why a reading or a paired test means nothing: the row it is relative to did not learn. Or nothing."""
    key = "base" if "base" in entry else "theirs"
    return unlearned(record, RowId.of(entry, key)) if key in entry else ""


def better(test: Entry | None) -> bool:
    """Whether the whole interval of a paired difference lies below 0."""
    return test is not None and test["interval"][1] < 0


def difference(test: Entry) -> str:
    """Say a paired difference with its interval and n."""
    low, high = test["interval"]
    return f"{test['mean']:+.2f} points (95 % {low:+.2f} to {high:+.2f}, n {test['n']})"


def estimate(values: Sequence[float], unit: str = " %") -> str:
    """Say a mean with its 95 % interval over seeds (Student's t) and n.

    >>> estimate([1.0, 2.0, 3.0]), estimate([2.0])
    ('2 % (95 % -0.484 to 4.48, n 3)', '2 % (n 1, no interval)')
    """
    from scipy import stats

    ended = [value for value in values if value is not None]
    middle = sum(ended) / len(ended)
    if len(ended) < 2:
        return f"{middle:.4g}{unit} (n 1, no interval)"
    low, high = stats.ttest_1samp(ended, 0).confidence_interval(0.95) if len(set(ended)) > 1 else (middle, middle)
    return f"{middle:.4g}{unit} (95 % {low:.3g} to {high:.3g}, n {len(ended)})"


def in_all_or_some(goes: Sequence[bool]) -> str:
    """Return the verdict on a claim of several parts."""
    return REPRODUCED if all(goes) else PARTLY if any(goes) else NOT_REPRODUCED
