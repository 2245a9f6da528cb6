"""The rules by which a record answers a claim, each with its reason, and the words of the answers.

Rows are looked up by their ids, never by their labels. ``RULES`` is printed in RESULTS.md; the functions apply it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any, NamedTuple

from deepsup.paper.row_id import RowId
from deepsup.trainer.config import Config
from deepsup.trainer.data import HALVES, KNOWN
from deepsup.trainer.studies import error_ratio, excludes, holm, mean_test

REPRODUCED, PARTLY, NOT_REPRODUCED = "reproduced", "partly", "not reproduced"
CORRECTED = "corrected"
NOT_COMPARABLE, NOT_JUDGED = "not comparable", "not judged"
ONE_LEARNED, NONE_LEARNED = (f"looked further: {which} candidate learned" for which in ("a", "no"))
"""What a row says whose planned candidates all were at chance."""
RULES = {
    "comparison": (
        "Error over the twin's error, seed by seed, on the logarithm. Reproduced: the 95 % interval of the mean "
        "(Student's t) lies below 1, and p, corrected by Holm for all comparisons of the study, is at most 0.05. The "
        "exact sign test stands beside it.",
        "Errors differ by factors, not by points, from seed to seed and from net to net; the scale was fixed before "
        "the runs. Without the correction, one of 20 comparisons of equal nets would be called a difference. The sign "
        "test assumes nothing of the errors' distribution.",
    ),
    "several parts": (
        "Reproduced: in all parts (losses, sizes). Partly: in some.",
        "The paper claims it for softmax and SVM alike.",
    ),
    "chance": (
        "A training that diverged counts as guessing. A net that is right less than twice as often as guessing has not "
        "learned; what is compared with it is not comparable.",
        "Leaving such seeds out flatters an unstable method; a ratio to a net that guesses says nothing of the method.",
    ),
    "equivalence": (
        "\"No difference\" is reproduced if the 90 % interval of the ratio lies within 1 / 1.1 and 1.1 (two one-sided "
        "tests at 5 %).",
        "That a test finds no difference shows nothing: few seeds never find one.",
    ),
    "number": (
        "An error is judged on all images with the paper's epochs. A gain is reproduced from three quarters of the "
        "paper's on, a ratio of variances within a factor of 1.5; partly, if only the direction is certain.",
        "A smaller budget says what companions do, not whether the method reaches the number.",
    ),
    "not judged": (
        "No record by this protocol answers.",
        "The records of the first protocol used rates that were too high for the hinge losses, or a base that did not "
        "learn.",
    ),
}  # fmt: skip
"""Rule -> what it says, and its reason."""
EQUAL_WITHIN = 1.1
Record = Mapping[str, Any]
Entry = Mapping[str, Any]
Cases = Mapping[str, tuple[RowId, RowId]]
"""Words for people -> the row that should have the lower error, and the one that it is compared with."""


class Judged(NamedTuple):
    """What a record says of a claim, and the verdict."""

    words: str
    verdict: str


UNKNOWN = Judged("", NOT_JUDGED)


@dataclass(frozen=True)
class Claim:
    """What is claimed, the target whose record answers, how, and by which of the rules."""

    what: str
    paper: str
    target: str
    judge: Callable[[Record], Judged]
    rule: str = "comparison"


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


def errors_of(row: Entry) -> list[float]:
    """Return the test error of every seed; a training that diverged has that of guessing."""
    return [row["guessing"] if value is None else value for value in row["values"]]


def find_row(record: Record, name: RowId) -> Entry | None:
    """Return a row or a reading by its id, if it has a number."""
    entries = (*record["rows"], *record.get("readings", []))
    return next((each for each in entries if each["mean"] is not None and RowId.of(each) == name), None)


def why_unlearned(record: Record, base: RowId) -> str:
    """Say that a row did not learn, or that none of its candidates did before its seeds were trained; or nothing."""
    row = find_row(record, base)
    if row is None or "guessing" not in row:
        return ""
    error = mean(errors_of(row))
    if at_chance(error, row["guessing"]):
        return f"{row['row']} did not learn ({error:.1f} % error)"
    if row.get("chosen_on", {}).get("further") == NONE_LEARNED:
        return f"{row['row']} learned at no rate on held-out images ({error:.1f} % test error)"
    return ""


def not_comparable(record: Record, entry: Entry) -> str:
    """Say why a reading or a comparison means nothing: the row it is relative to did not learn. Or nothing."""
    key = "base" if "base" in entry else "theirs"
    return why_unlearned(record, RowId.of(entry, key)) if key in entry else ""


def compare_rows(record: Record, ours: RowId, theirs: RowId) -> dict[str, Any] | None:
    """Return the ratio of two rows' errors over the seeds that both have, with its interval and tests, if both ran."""
    rows = [next((row for row in record["rows"] if RowId.of(row) == name), None) for name in (ours, theirs)]
    if rows[0] is None or rows[1] is None:
        return None
    first, second = (dict(zip(row["seeds"], errors_of(row), strict=True)) for row in rows if row is not None)
    seeds = sorted(first.keys() & second.keys())
    return error_ratio([first[seed] for seed in seeds], [second[seed] for seed in seeds]) if seeds else None


def holm_corrections(record: Record) -> dict[tuple[RowId, RowId], float]:
    """Return the p of every comparison of a record, corrected by Holm for all of them whose base learned."""
    pairs = [(RowId.of(test, "ours"), RowId.of(test, "theirs")) for test in record.get("tests", [])]
    tests = {
        pair: test for pair in pairs if (test := compare_rows(record, *pair)) and not why_unlearned(record, pair[1])
    }
    ps = {pair: test["p_ratio"] for pair, test in tests.items() if test["p_ratio"] is not None}
    return dict(zip(ps, holm(list(ps.values())), strict=True))


def lower(record: Record, ours: RowId, theirs: RowId) -> bool:
    """Whether the first row has the lower error by the rule of comparisons."""
    test, p = compare_rows(record, ours, theirs), holm_corrections(record).get((ours, theirs), 1.0)
    return test is not None and test["ratio"] < 1 and excludes(test["interval"], 1) and p <= 0.05


def ratio_words(test: Mapping[str, Any]) -> str:
    """Say a ratio with its interval and the sign test.

    >>> ratio_words({"ratio": 0.85, "interval": [0.81, 0.9], "pairs": 10, "lower": 10, "p": 0.002})
    '0.85 (95 % 0.81 to 0.90; lower in 10 of 10, sign test p 0.002)'
    """
    around = "" if test["interval"] is None else "95 % {:.2f} to {:.2f}; ".format(*test["interval"])
    return f"{test['ratio']:.2f} ({around}lower in {test['lower']} of {test['pairs']}, sign test p {test['p']:.2g})"


def judge_ratios(cases: Cases, record: Record) -> Judged:
    """Judge whether the error is lower in every case in which the net that it is compared with learns."""
    words: list[str] = []
    goes: list[bool] = []
    for case, (ours, theirs) in cases.items():
        test = compare_rows(record, ours, theirs)
        if test is None:
            continue
        why, good = why_unlearned(record, theirs), lower(record, ours, theirs)
        alone = not good and test["ratio"] < 1 and excludes(test["interval"], 1)
        words.append(f"{case}: {why or ratio_words(test)}{', not after the correction' * (alone and not why)}")
        goes += [] if why else [good]
    if not words:
        return UNKNOWN
    return Judged("; ".join(words), all_or_some(goes) if goes else NOT_COMPARABLE)


def all_or_some(goes: Sequence[bool]) -> str:
    """Return the verdict on a claim of several parts."""
    return REPRODUCED if all(goes) else PARTLY if any(goes) else NOT_REPRODUCED


def estimate(values: Sequence[float | None], unit: str = " %") -> str:
    """Say a mean with its 95 % interval over seeds (Student's t) and n.

    >>> estimate([1.0, 2.0, 3.0]), estimate([2.0])
    ('2 % (95 % -0.484 to 4.48, n 3)', '2 % (n 1, no interval)')
    """
    numbers = [value for value in values if value is not None]
    test = mean_test(numbers)
    if test["interval"] is None:
        return f"{test['mean']:.4g}{unit} (n 1, no interval)"
    low, high = test["interval"]
    return f"{test['mean']:.4g}{unit} (95 % {low:.3g} to {high:.3g}, n {len(numbers)})"
