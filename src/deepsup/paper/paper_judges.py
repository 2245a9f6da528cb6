"""The judges of the paper's claims: a record -> what it says of one claim, and the verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, log
from statistics import linear_regression, mean
from typing import Any

from deepsup.paper.budget_curves import equally_many
from deepsup.paper.paper_targets import FORMS
from deepsup.paper.printed import GAIN_AT_500, TABLES, VARIANCE_RATIO
from deepsup.paper.row_id import RowId
from deepsup.paper.theory.findings import AFTER_CORRECTION, AS_PRINTED
from deepsup.paper.verdicts import (
    CORRECTED,
    EQUAL_WITHIN,
    NOT_COMPARABLE,
    NOT_JUDGED,
    NOT_REPRODUCED,
    PARTLY,
    REPRODUCED,
    UNDECIDED,
    UNKNOWN,
    Cases,
    Judged,
    Record,
    all_or_some,
    at_chance,
    below_1,
    compare_rows,
    ends_words,
    errors_of,
    estimate,
    find_row,
    has_guessing_seed,
    judge_ratios,
    lower,
    ratio_words,
    why_unlearned,
)
from deepsup.trainer.studies import LEAST, equivalence, error_ratio, log_ratios, mean_test

FITS = 0.5
"""Percent of training errors at most, of a net that fits the training images."""
LEAST_RATIO = 1e-6


def beside_twin(**more: Any) -> Cases:
    """Return DSN and its twin under each loss; one-vs-rest and multiclass are forms of the SVM."""
    names = {"softmax": ("Softmax", ""), **{f"{form} hinge": ("SVM", form) for form in FORMS}}
    return {
        words: (RowId(f"DSN-{loss}", loss=form, **more), RowId(f"CNN-{loss}", loss=form, **more))
        for words, (loss, form) in names.items()
    }


IN_TABLE: Cases = {
    words: (RowId(f"DSN-{loss}"), RowId(f"CNN-{loss}"))
    for words, loss in (("softmax", "Softmax"), ("one-vs-rest hinge", "SVM"))
}
AT_500: dict[str, Any] = {"network": "nin-mnist", "size": 500, "width": 1.0}


def table_number(name: str, record: Record) -> Judged:
    """Judge the error of DSN in a table: only by the paper's budget."""
    row = find_row(record, RowId("DSN-SVM")) or find_row(record, RowId("DSN-Softmax"))
    if row is None:
        return UNKNOWN
    words = f"{row['row']} {estimate(errors_of(row))}"
    if record["preset"] != "paper":
        return Judged(f"{words}, {row['config']['epochs']} epochs", NOT_JUDGED)
    return Judged(words, REPRODUCED if row["mean"] <= TABLES[name].rows["DSN-SVM"][0] else NOT_REPRODUCED)


def gain(form: str, record: Record) -> Judged:
    """Judge the gain of DSN-SVM over CNN-Softmax at 500 digits."""
    ours, theirs = RowId("DSN-SVM", loss=form, **AT_500), RowId("CNN-Softmax", **AT_500)
    test = compare_rows(record, ours, theirs)
    if test is None:
        return UNKNOWN
    if why := why_unlearned(record, theirs):
        return Judged(why, NOT_COMPARABLE)
    less = 100 * (1 - test["ratio"])
    words = f"{abs(less):.0f} % {'less' if less >= 0 else 'more'} error, ratio {ratio_words(test)}"
    if not (good := lower(record, ours, theirs)):
        return Judged(words, all_or_some([good]))
    sure = not has_guessing_seed(record, ours, theirs)  # such a seed leaves the direction, not the size
    return Judged(words, REPRODUCED if sure and less >= 0.75 * GAIN_AT_500 else PARTLY)


def gain_over_sizes(record: Record) -> Judged:
    """Judge whether the gain grows as the training set shrinks: at half width, over all sizes that ran."""
    ratios: dict[int, dict[int, float]] = {}
    cases: dict[int, tuple[RowId, RowId]] = {}
    for row in record["rows"]:
        ours = RowId.of(row)
        theirs = replace(ours, method="CNN-Softmax", loss="")
        if (ours.method, ours.loss, ours.width) != ("DSN-SVM", "one-vs-rest", 0.5) or why_unlearned(record, theirs):
            continue
        if each := ratios_by_seed(record, ours, theirs):
            ratios[ours.size or 0], cases[ours.size or 0] = each, (ours, theirs)
    sizes = sorted(ratios)
    seeds = sorted(set.intersection(*(set(each) for each in ratios.values()))) if ratios else []
    if len(sizes) < 3 or not seeds:
        return UNKNOWN
    means = [exp(mean(ratios[size][seed] for seed in seeds)) for size in sizes]
    logs = [log(size) for size in sizes]
    test = mean_test([linear_regression(logs, [ratios[size][seed] for size in sizes]).slope for seed in seeds])
    around = interval_words(test["interval"] and [2**end for end in test["interval"]])
    words = ", ".join(f"{size:,} digits {each:.2f}" for size, each in zip(sizes, means, strict=True))
    words = f"ratio with {words}; {2 ** test['mean']:.2f} times for twice the digits{around}"
    certain, rises = lower(record, *cases[sizes[0]]), test["interval"] is not None and test["interval"][0] > 0
    if certain and rises:
        return Judged(words, REPRODUCED)
    if certain and means[0] == min(means):
        return Judged(words, PARTLY)
    return Judged(words, UNDECIDED if test["interval"] is None or certain is None else NOT_REPRODUCED)


def ratios_by_seed(record: Record, ours: RowId, theirs: RowId) -> dict[int, float]:
    """Return the logarithm of the ratio of two rows' errors for every seed that both have."""
    rows = [next((row for row in record["rows"] if RowId.of(row) == name), None) for name in (ours, theirs)]
    first, second = (dict(zip(row["seeds"], errors_of(row), strict=True)) if row else {} for row in rows)
    return {seed: log_ratios([first[seed]], [second[seed]])[0] for seed in sorted(first.keys() & second.keys())}


def interval_words(interval: Sequence[float] | None, level: int = 95) -> str:
    """Say the interval of a ratio in brackets.

    >>> interval_words([0.8, 0.9]), interval_words(None)
    (' (95 % 0.80 to 0.90)', ' (one seed)')
    """
    return " (one seed)" if interval is None else f" ({level} % {ends_words(interval)})"


def loss_words(name: RowId) -> str:
    """Say the loss of a method's row."""
    return f"{name.loss} hinge" if name.loss else "softmax"


def faster(record: Record) -> Judged:
    """Judge the speed-up by the budget curves, for every loss; where the curves have no common error, say so."""
    rows = {RowId.of(row): row for row in record.get("readings", [])}
    words: list[str] = []
    goes: list[bool | None] = []
    for better in [name for name in rows if name.reading == "better"]:
        row = rows.get(replace(better, reading="faster", epochs=None))
        if (
            row is None
            and len({name.epochs for row in record["rows"] if (name := RowId.of(row)).loss == better.loss}) < 2
        ):
            continue  # one budget is no curve
        if row is None:
            words.append(f"{loss_words(better)}: the curves have no error in common")
            continue
        none = ", no interval" if row["interval"] is None else interval_words(row["interval"])
        words.append(f"{loss_words(better)}: the twin's error in {row['mean']:.2f} of the epochs{none}")
        goes.append(below_1(row["interval"]))
    if not words:
        return UNKNOWN
    return Judged("; ".join(words), all_or_some(goes) if goes else NOT_COMPARABLE)


def better(longest: Mapping[str, int], record: Record) -> Judged:
    """Judge the error at the longest budget, for every loss whose rows at it have run."""
    epochs = longest["paper" if record["preset"] == "paper" else "cpu"]
    ours = [
        name for row in record["rows"] if (name := RowId.of(row)).method.startswith("DSN") and name.epochs == epochs
    ]
    cases = {loss_words(each): (each, replace(each, method=each.method.replace("DSN", "CNN"))) for each in ours}
    judged = judge_ratios(cases, record)
    return judged._replace(words=f"at {epochs} epochs, {judged.words}") if judged.words else judged


def both_fit(record: Record) -> Judged:
    """Judge Fig. 2c: both nets fit the training digits, and DSN has the lower test error."""
    words: list[str] = []
    goes: list[bool | None] = []
    for case, (dsn, cnn) in IN_TABLE.items():
        trained = [find_row(record, replace(each, reading="training error")) for each in (dsn, cnn)]
        test = compare_rows(record, dsn, cnn)
        if test is None or trained[0] is None or trained[1] is None:
            continue
        fits = [f"{each['mean']:.2g} %" for each in trained if each]
        words.append(f"{case}: training error {' and '.join(fits)} (DSN, CNN), test ratio {ratio_words(test)}")
        goes += [all(each["mean"] < FITS for each in trained if each), lower(record, dsn, cnn)]
    return Judged("; ".join(words), all_or_some(goes)) if words else UNKNOWN


def variance(record: Record) -> Judged:
    """Judge the ratio of the variances of the first convolution's gradient: at every alpha that was tried."""
    rows = [
        row
        for row in record.get("readings", [])
        if (RowId.of(row).reading, RowId.of(row).layer) == ("variance", "conv1") and row["values"]
    ]
    if not rows:
        return UNKNOWN
    if why := next((why for row in rows if (why := why_unlearned(record, RowId.of(row, "base")))), ""):
        return Judged(why, NOT_COMPARABLE)
    words: list[str] = []
    above: list[bool | None] = []
    close: list[bool] = []
    for row in rows:
        test = mean_test([log(max(value, LEAST_RATIO)) for value in row["values"]])
        ends = None if test["interval"] is None else [exp(end) for end in test["interval"]]
        words.append(f"alpha {RowId.of(row).alpha:g}: {exp(test['mean']):.2f} times{interval_words(ends)}")
        above.append(below_1(None if ends is None else [1 / max(end, LEAST_RATIO) for end in reversed(ends)]))
        close.append(VARIANCE_RATIO / 1.5 <= exp(test["mean"]) <= VARIANCE_RATIO * 1.5)
    answer = all_or_some(above)
    return Judged("; ".join(words), PARTLY if answer == REPRODUCED and not all(close) else answer)


def feature_maps(record: Record) -> Judged:
    """Judge the first convolution by what a linear probe reads in it, seed by seed, at every alpha."""
    rows = {RowId.of(row): row for row in record.get("readings", []) if RowId.of(row).reading == "probe"}
    cnn = next((name for name in rows if name.method.startswith("CNN")), None)
    if cnn is None or len(rows) < 2:
        return UNKNOWN
    if why := why_unlearned(record, replace(cnn, reading="", layer="")):
        return Judged(why, NOT_COMPARABLE)
    words: list[str] = []
    goes: list[bool | None] = []
    for name, row in rows.items():
        if name == cnn or len(row["values"]) != len(rows[cnn]["values"]):
            continue  # a seed diverged
        test = error_ratio(row["values"], rows[cnn]["values"])
        words.append(f"alpha {name.alpha:g}: a probe on it has {test['ratio']:.2f} times the error of one on the twin's"
                     f"{interval_words(test['interval'])}")  # fmt: skip
        goes.append(below_1(test["interval"]))
    return Judged("; ".join(words), all_or_some(goes)) if words else UNKNOWN


def robust(record: Record) -> Judged:
    """Judge the error over the grid of rates, relative to the method's own best, seed by seed, for both losses."""
    words: list[str] = []
    goes: list[bool | None] = []
    for case, twins in IN_TABLE.items():
        lines = [replace(each, loss="one-vs-rest" if "SVM" in each.method else "") for each in twins]
        grids = [
            {RowId.of(row).lr: row for row in record["rows"] if replace(RowId.of(row), lr=None) == line}
            for line in lines
        ]
        rates = [lr for lr in grids[0] if lr in grids[1]]
        if len(rates) < 3:
            continue
        above, bests = zip(*(above_best([grid[lr] for lr in rates]) for grid in grids), strict=True)
        guess = grids[0][rates[0]]["guessing"]
        lost = [line.method for line, best in zip(lines, bests, strict=True) if at_chance(best, guess)]
        if lost:
            words.append(f"{case}: {' and '.join(lost)} learned at no rate")
            continue
        test = mean_test([a - b for a, b in zip(*above, strict=False)])
        ends = None if test["interval"] is None else [exp(end) for end in test["interval"]]
        times = [exp(mean(each)) for each in above]
        words.append(
            f"{case}: over {len(rates)} rates {times[0]:.2f} times its own best error (DSN), {times[1]:.2f} (CNN), "
            f"ratio {exp(test['mean']):.2f}{interval_words(ends)}"
        )
        goes.append(below_1(ends))
    if not words:
        return UNKNOWN
    return Judged("; ".join(words), all_or_some(goes) if goes else NOT_COMPARABLE)


def above_best(rows: Sequence[Mapping[str, Any]]) -> tuple[list[float], float]:
    """Return, seed by seed, the mean of log(error / best) over the rows of a grid; and best, the lowest mean of all."""
    errors = [errors_of(row) for row in rows]
    best = max(min(map(mean, errors)), LEAST)
    return [mean(log(max(error, LEAST) / best) for error in seed) for seed in zip(*errors, strict=False)], best


def same_hinge(record: Record) -> Judged:
    """Judge whether L1 and L2 are equivalent, with companions and without."""
    words: list[str] = []
    goes: list[bool | None] = []
    for method in ("DSN-SVM", "CNN-SVM"):
        ids = [RowId(method, loss=loss) for loss in ("hinge", "squared_hinge")]
        rows = [find_row(record, each) for each in ids]
        if rows[0] is None or rows[1] is None:
            continue
        if why := why_unlearned(record, ids[0]) or why_unlearned(record, ids[1]):  # two nets that guess are equal
            return Judged(why, NOT_COMPARABLE)
        plain, squared = equally_many(errors_of(rows[0]), errors_of(rows[1]))
        test = equivalence(plain, squared, EQUAL_WITHIN)
        words.append(f"{method}: L1 over L2 {test['ratio']:.2f}{interval_words(test['interval'], 90)}")
        outside = test["interval"] and (test["interval"][0] > EQUAL_WITHIN or test["interval"][1] < 1 / EQUAL_WITHIN)
        goes.append(True if test["equivalent"] else False if outside else None)
    return Judged("; ".join(words), all_or_some(goes)) if words else UNKNOWN


def statement(names: tuple[str, ...], record: Record) -> Judged:
    """Judge a lemma or the theorem by the findings of the simulation; a proof is named, not judged."""
    findings = {each["id"]: each for each in record.get("findings", [])}
    if not all(name in findings for name in names):
        return UNKNOWN
    verdicts = [findings[name]["verdict"] for name in names]
    words = "; ".join(dict.fromkeys(verdicts))
    if (proof := findings.get(f"{names[0]}-proof")) is not None:
        words += f"; its proof {proof['verdict']}"
    if all(each == AS_PRINTED for each in verdicts):
        return Judged(words, REPRODUCED)
    good = all(each in (AS_PRINTED, AFTER_CORRECTION) for each in verdicts)
    return Judged(words, CORRECTED if good else NOT_REPRODUCED)
