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
from deepsup.trainer.statistics import RatioTest
from deepsup.trainer.studies import error_ratio, excludes, holm, mean_test

REPRODUCED, PARTLY, NOT_REPRODUCED = "reproduced", "partly", "not reproduced"
CORRECTED, UNDECIDED = "corrected", "undecided"
NOT_COMPARABLE, NOT_JUDGED = "not comparable", "not judged"
VERDICTS = (REPRODUCED, CORRECTED, PARTLY, UNDECIDED, NOT_REPRODUCED, NOT_COMPARABLE, NOT_JUDGED)
"""In the order in which a page counts them."""
ONE_LEARNED, NONE_LEARNED = (f"looked further: {which} candidate learned" for which in ("a", "no"))
"""What a row says whose planned candidates all were at chance."""
EQUAL_WITHIN = 1.1
RULES = {
    "comparison": (
        "Error over the twin's error, seed by seed, on the logarithm; an error of 0 counts as 0.01 %. Reproduced: the "
        "95 % interval of the mean (Student's t) lies below 1, and p, corrected by Holm for all comparisons that the "
        "study plans, is at most 0.05; one that has not run counts with p 1. The exact sign test stands beside it; "
        "where a seed is no better than guessing, the smaller p of the two tests, doubled, counts.",
        "Errors differ by factors, not by points, from seed to seed and from net to net; the scale was fixed before "
        "the runs. Without the correction, one of 20 comparisons of equal nets would be called a difference. The sign "
        "test assumes nothing of the errors' distribution, but has p 0.06 at best with five seeds; a seed that guesses "
        "is so far from the others that Student's t would see no gain even if every seed shows one.",
    ),
    "several parts": (
        "Reproduced: in all parts (losses, sizes). Partly: in some.",
        "The paper claims it for softmax and SVM alike.",
    ),
    "undecided": (
        "No part is reproduced, and in one the interval does not exclude a gain of a tenth (a ratio of 1 / 1.1), or "
        "there is one seed.",
        "Too few seeds are our fault, not the method's. Not reproduced is what shows less gain than that, or harm.",
    ),
    "chance": (
        "A training that diverged counts as guessing. A net that is right less than twice as often as guessing has not "
        "learned; what is compared with it is not comparable.",
        "Leaving such seeds out flatters an unstable method; a ratio to a net that guesses says nothing of the method.",
    ),
    "equivalence": (
        "\"No difference\" is reproduced if the 90 % interval of the ratio lies within 1 / 1.1 and 1.1 (two one-sided "
        "tests at 5 %), not reproduced if it lies outside, else undecided.",
        "That a test finds no difference shows nothing: few seeds never find one.",
    ),
    "budget curves": (
        "Faster: the mean over all errors that both curves reach of epochs over the twin's epochs, on the logarithm; "
        "its interval is Student's t of the seeds left out one by one (jackknife). Better: the comparison at the "
        "longest budget, once it has run.",
        "With one budget a faster start cannot be told from a better end. Resampling three or five seeds gives "
        "intervals that are too narrow.",
    ),
    "number": (
        "An error is judged on all images with the paper's epochs: its mean is at most the paper's. A gain is "
        "reproduced from three quarters of the paper's on, a ratio of variances within a factor of 1.5; partly, if "
        "only the direction is certain.",
        "A smaller budget says what companions do, not whether the method reaches the number.",
    ),
    "not judged": (
        "No record by this protocol answers.",
        "The records of the first protocol used rates that were too high for the hinge losses, or a base that did not "
        "learn.",
    ),
}  # fmt: skip
"""Rule -> what it says, and its reason."""
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
    group: str = ""
    """What docs/claims.md calls this claim and those like it; default: what is claimed."""
    part: str = ""
    """Which of them it is."""


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
    return [row["guessing"] if value is None or value != value else value for value in row["values"]]


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


def compare_rows(record: Record, ours: RowId, theirs: RowId) -> RatioTest | None:
    """Return the ratio of two rows' errors over the seeds that both have, with its interval and tests, if both ran."""
    rows = [next((row for row in record["rows"] if RowId.of(row) == name), None) for name in (ours, theirs)]
    if rows[0] is None or rows[1] is None:
        return None
    first, second = (dict(zip(row["seeds"], errors_of(row), strict=True)) for row in rows if row is not None)
    seeds = sorted(first.keys() & second.keys())
    return error_ratio([first[seed] for seed in seeds], [second[seed] for seed in seeds]) if seeds else None


def holm_corrections(record: Record) -> dict[tuple[RowId, RowId], float]:
    """Return the p of every comparison of a record, corrected by Holm for all of them whose base learned.

    Comparisons that the study plans and that have not run, ``unrun`` of them, and those of one seed count with p 1.
    """
    pairs = [(RowId.of(test, "ours"), RowId.of(test, "theirs")) for test in record.get("tests", [])]
    tests = {
        pair: test for pair in pairs if (test := compare_rows(record, *pair)) and not why_unlearned(record, pair[1])
    }
    ps = {pair: p_of(test, has_guessing_seed(record, *pair)) for pair, test in tests.items()}
    return dict(zip(ps, holm([*ps.values(), *[1.0] * record.get("unrun", 0)]), strict=False))


def p_of(test: Mapping[str, Any], guesses: bool) -> float:
    """Return p of a comparison: Student's; where a seed guesses, the smaller of Student's and the signs', doubled.

    >>> p_of({"p_ratio": 0.2, "p": 0.002}, guesses=True), p_of({"p_ratio": 0.2, "p": 0.002}, guesses=False)
    (0.004, 0.2)
    """
    student = 1.0 if test["p_ratio"] is None else test["p_ratio"]
    return min(1.0, 2 * min(student, test["p"])) if guesses else student


def has_guessing_seed(record: Record, *names: RowId) -> bool:
    """Whether a seed of some rows is no better than guessing: logarithms of such errors are far from the others."""
    rows = [row for row in record["rows"] if RowId.of(row) in names and "guessing" in row]
    return any(at_chance(error, row["guessing"]) for row in rows for error in errors_of(row))


def lower(record: Record, ours: RowId, theirs: RowId) -> bool | None:
    """Whether the first row has the lower error by the rule of comparisons; None: undecided."""
    test, p = compare_rows(record, ours, theirs), holm_corrections(record).get((ours, theirs), 1.0)
    if test is None:
        return None
    if p <= 0.05 and test["ratio"] < 1 and (excludes(test["interval"], 1) or has_guessing_seed(record, ours, theirs)):
        return True
    return None if reaches_a_gain(test["interval"]) else False


def reaches_a_gain(interval: Sequence[float] | None) -> bool:
    """Whether the interval of a ratio does not exclude a gain of a tenth; no interval excludes nothing.

    >>> reaches_a_gain([0.8, 1.3]), reaches_a_gain([0.95, 1.3]), reaches_a_gain(None)
    (True, False, True)
    """
    return interval is None or interval[0] < 1 / EQUAL_WITHIN


def below_1(interval: Sequence[float] | None) -> bool | None:
    """Whether the interval of a ratio lies below 1; None: undecided.

    >>> below_1([0.8, 0.9]), below_1([0.8, 1.3]), below_1([0.95, 1.3])
    (True, None, False)
    """
    if interval is not None and interval[1] < 1:
        return True
    return None if reaches_a_gain(interval) else False


def ratio_words(test: Mapping[str, Any]) -> str:
    """Say a ratio with its interval and the sign test.

    >>> ratio_words({"ratio": 0.85, "interval": [0.81, 0.9], "pairs": 10, "lower": 10, "p": 0.002})
    '0.85 (95 % 0.81 to 0.90; lower in 10 of 10, sign test p 0.002)'
    """
    if test["interval"] is None:
        return f"{test['ratio']:.2f} (one seed)"
    around = f"95 % {ends_words(test['interval'])}"
    equal = f", equal in {test['equal']}" if test.get("equal") else ""
    split = f"lower in {test['lower']} of {test['pairs']}{equal}"
    return f"{test['ratio']:.2f} ({around}; {split}, sign test p {test['p']:.2g})"


def ends_words(interval: Sequence[float]) -> str:
    """Say the ends of a ratio's interval.

    >>> ends_words([0.851, 1.2]), ends_words([0.0004, 12345.0])
    ('0.85 to 1.20', '0.0004 to 12,345')
    """
    return " to ".join(
        f"{end:.1g}" if end < 0.01 else f"{end:,.0f}" if end >= 100 else f"{end:.2f}" for end in interval
    )


def judge_ratios(cases: Cases, record: Record) -> Judged:
    """Judge whether the error is lower in every case in which the net that it is compared with learns."""
    words: list[str] = []
    goes: list[bool | None] = []
    for case, (ours, theirs) in cases.items():
        test = compare_rows(record, ours, theirs)
        if test is None:
            continue
        why, good = why_unlearned(record, theirs), lower(record, ours, theirs)
        if why:
            words.append(f"{case}: {why}, {why_unlearned(record, ours) or error_words(record, ours)}")
            continue
        alone = good is None and test["ratio"] < 1 and excludes(test["interval"], 1)
        words.append(f"{case}: {ratio_words(test)}{', not after the correction' * alone}")
        goes.append(good)
    if not words:
        return UNKNOWN
    return Judged("; ".join(words), all_or_some(goes) if goes else NOT_COMPARABLE)


def error_words(record: Record, name: RowId) -> str:
    """Say the mean error of a row."""
    row = next(row for row in record["rows"] if RowId.of(row) == name)
    return f"{row['row']} has {mean(errors_of(row)):.1f} %"


def all_or_some(goes: Sequence[bool | None]) -> str:
    """Return the verdict on a claim of several parts, at least one; None: that part is undecided."""
    assert goes, "a claim of no parts has no verdict"
    if all(goes):
        return REPRODUCED
    return PARTLY if any(goes) else UNDECIDED if None in goes else NOT_REPRODUCED


def estimate(values: Sequence[float | None], unit: str = " %") -> str:
    """Say a mean with its 95 % interval over seeds (Student's t) and n.

    >>> estimate([1.0, 2.0, 3.0]), estimate([2.0])
    ('2 % (95 % 0 to 4.48, n 3)', '2 % (n 1, no interval)')
    """
    numbers = [value for value in values if value is not None]
    test = mean_test(numbers)
    if test["interval"] is None:
        return f"{test['mean']:.4g}{unit} (n 1, no interval)"
    low, high = test["interval"]
    low = max(0.0, low) if min(numbers) >= 0 else low  # no error is below 0
    return f"{test['mean']:.4g}{unit} (95 % {low:.3g} to {high:.3g}, n {len(numbers)})"
