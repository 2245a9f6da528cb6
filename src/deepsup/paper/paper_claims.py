"""The claims of the paper: each with the target whose record answers, and the judge."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from math import exp, log
from statistics import mean
from typing import Any

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
    UNKNOWN,
    Cases,
    Claim,
    Judged,
    Record,
    all_or_some,
    compare_rows,
    errors_of,
    estimate,
    find_row,
    judge_ratios,
    lower,
    ratio_words,
    why_unlearned,
)
from deepsup.trainer.studies import equivalence, excludes, mean_test

FORMS = ("one-vs-rest", "multiclass")


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
    test, reading = compare_rows(record, ours, theirs), find_row(record, replace(ours, reading="gain"))
    if test is None or reading is None:
        return UNKNOWN
    if why := why_unlearned(record, theirs):
        return Judged(why, NOT_COMPARABLE)
    words = f"{reading['mean']:+.0f} %: {ratio_words(test)}"
    if not lower(record, ours, theirs):
        return Judged(words, NOT_REPRODUCED)
    return Judged(words, REPRODUCED if reading["mean"] >= 0.75 * GAIN_AT_500 else PARTLY)


def gain_over_sizes(record: Record) -> Judged:
    """Judge whether the gain grows as the training set shrinks: at half width, over all sizes that ran."""
    ratios: dict[int, tuple[dict[str, Any], bool]] = {}
    for row in record["rows"]:
        ours = RowId.of(row)
        theirs = replace(ours, method="CNN-Softmax", loss="")
        if (ours.method, ours.loss, ours.width) == ("DSN-SVM", "one-vs-rest", 0.5) and not why_unlearned(
            record, theirs
        ):
            test = compare_rows(record, ours, theirs)
            ratios |= {ours.size or 0: (test, lower(record, ours, theirs))} if test else {}
    if len(ratios) < 3:
        return UNKNOWN
    sizes = sorted(ratios)
    words = "; ".join(f"{size:,}: {ratio_words(ratios[size][0])}" for size in sizes)
    values = [ratios[size][0]["ratio"] for size in sizes]
    certain = ratios[sizes[0]][1]
    if certain and all(smaller < larger for smaller, larger in pairwise(values)):
        return Judged(words, REPRODUCED)
    return Judged(words, PARTLY if certain and values[0] == min(values) else NOT_REPRODUCED)


def distance(which: str, record: Record) -> Judged:
    """Judge faster or better by the budget curves: the interval lies below 1, for every loss."""
    rows = [row for row in record.get("readings", []) if RowId.of(row).reading == which]
    if not rows:
        return UNKNOWN
    words = [
        f"{row['row']}: {row['mean']:.2f} times" + (
            ", no interval" if row["interval"] is None else " (95 % {:.2f} to {:.2f})".format(*row["interval"])
        ) for row in rows
    ]  # fmt: skip
    goes = [row["mean"] < 1 and excludes(row["interval"], 1) for row in rows]
    return Judged("; ".join(words), all_or_some(goes))


def both_fit(record: Record) -> Judged:
    """Judge Fig. 2c: both nets fit the training digits, and DSN has the lower test error."""
    words, goes = [], []
    for loss in ("Softmax", "SVM"):
        dsn, cnn = RowId(f"DSN-{loss}"), RowId(f"CNN-{loss}")
        trained = [find_row(record, replace(each, reading="training error")) for each in (dsn, cnn)]
        test = compare_rows(record, dsn, cnn)
        if test is None or trained[0] is None or trained[1] is None:
            continue
        fits = [f"{each['mean']:.2g} %" for each in trained if each]
        words.append(f"{loss}: training errors {' and '.join(fits)} (DSN, CNN), test {ratio_words(test)}")
        goes += [all(each["mean"] < 0.5 for each in trained if each), lower(record, dsn, cnn)]
    return Judged("; ".join(words), all_or_some(goes)) if words else UNKNOWN


def variance(record: Record) -> Judged:
    """Judge the ratio of the variances of the first convolution's gradient: at every alpha that was tried."""
    rows = [
        row
        for row in record.get("readings", [])
        if (RowId.of(row).reading, RowId.of(row).layer) == ("variance", "conv1")
    ]
    if not rows:
        return UNKNOWN
    if why := next((why for row in rows if (why := why_unlearned(record, RowId.of(row, "base")))), ""):
        return Judged(why, NOT_COMPARABLE)
    tests = [mean_test([log(value) for value in row["values"]]) for row in rows]
    words = "; ".join(f"alpha {RowId.of(row).alpha:g}: {estimate(row['values'], ' times')}" for row in rows)
    above = [test["interval"] is not None and test["interval"][0] > 0 for test in tests]
    close = [VARIANCE_RATIO / 1.5 <= exp(test["mean"]) <= VARIANCE_RATIO * 1.5 for test in tests]
    if not any(above):
        return Judged(words, NOT_REPRODUCED)
    return Judged(words, REPRODUCED if all(above) and all(close) else PARTLY)


def feature_maps(record: Record) -> Judged:
    """Judge the first convolution by what a linear probe reads in it, seed by seed, at every alpha."""
    rows = {RowId.of(row): row for row in record.get("readings", []) if RowId.of(row).reading == "probe"}
    cnn = next((name for name in rows if name.method.startswith("CNN")), None)
    if cnn is None or len(rows) < 2:
        return UNKNOWN
    if why := why_unlearned(record, replace(cnn, reading="", layer="")):
        return Judged(why, NOT_COMPARABLE)
    words, goes = [], []
    for name, row in rows.items():
        if name == cnn or len(row["values"]) != len(rows[cnn]["values"]):
            continue
        test = mean_test([log(a / b) for a, b in zip(row["values"], rows[cnn]["values"], strict=True)])
        around = "" if test["interval"] is None else " (95 % {:.2f} to {:.2f})".format(*map(exp, test["interval"]))
        words.append(f"alpha {name.alpha:g}: probe's error {exp(test['mean']):.2f} times the twin's{around}")
        goes.append(test["mean"] < 0 and excludes(test["interval"], 0))
    return Judged("; ".join(words), all_or_some(goes))


def robust(record: Record) -> Judged:
    """Judge the error over the grid of rates, relative to the method's own best, seed by seed, for both losses."""
    words, goes = [], []
    for case, (dsn, cnn) in {"softmax": ("Softmax", ""), "one-vs-rest hinge": ("SVM", "one-vs-rest")}.items():
        above = [above_best(record, RowId(f"{kind}-{dsn}", loss=cnn)) for kind in ("DSN", "CNN")]
        if not above[0] or len(above[0]) != len(above[1]):
            continue
        test = mean_test([a - b for a, b in zip(*above, strict=True)])
        around = "" if test["interval"] is None else ", ratio 95 % {:.2f} to {:.2f}".format(*map(exp, test["interval"]))
        words.append(f"{case}: {exp(mean(above[0])):.2f} times its best (DSN), {exp(mean(above[1])):.2f} (CNN){around}")
        goes.append(test["mean"] < 0 and excludes(test["interval"], 0))
    return Judged("; ".join(words), all_or_some(goes)) if words else UNKNOWN


def above_best(record: Record, line: RowId) -> list[float]:
    """Return, seed by seed, the mean of log(error / best) over the grid; best: the lowest mean error of all."""
    rows = [errors_of(row) for row in record["rows"] if replace(RowId.of(row), lr=None) == line and RowId.of(row).lr]
    if len(rows) < 3:
        return []
    best = log(max(min(map(mean, rows)), 0.01))
    return [mean(log(max(error, 0.01)) - best for error in seed) for seed in zip(*rows, strict=True)]


def same_hinge(record: Record) -> Judged:
    """Judge whether L1 and L2 are equivalent, with companions and without."""
    words, goes = [], []
    for method in ("DSN-SVM", "CNN-SVM"):
        ids = [RowId(method, loss=loss) for loss in ("hinge", "squared_hinge")]
        rows = [find_row(record, each) for each in ids]
        if rows[0] is None or rows[1] is None:
            continue
        if why := why_unlearned(record, ids[0]) or why_unlearned(record, ids[1]):  # two nets that guess are equal
            return Judged(why, NOT_COMPARABLE)
        test = equivalence(errors_of(rows[0]), errors_of(rows[1]), EQUAL_WITHIN)
        around = "" if test["interval"] is None else " (90 % {:.2f} to {:.2f})".format(*test["interval"])
        words.append(f"{method}: L1 over L2 {test['ratio']:.2f}{around}")
        goes.append(bool(test["equivalent"]))
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


LEMMAS = {
    "Lemma 1": ("lemma-1",),
    "Lemma 2": ("lemma-2",),
    "Lemma 3": ("lemma-3",),
    "Theorem 1": ("theorem-1-known-step", "theorem-1-plain-step"),
}
JOINT: Cases = {
    "equal epochs": (RowId("DSN-Softmax"), RowId("greedy")),
    "twice the epochs for greedy": (RowId("DSN-Softmax"), RowId("greedy", epochs=120)),
}
PAPER_CLAIMS = (
    *(Claim(f"DSN beats its twin: {table.title}", "yes", name, partial(judge_ratios, IN_TABLE))
      for name, table in TABLES.items()),
    *(Claim(f"DSN's error: {table.title}", f"{table.rows['DSN-SVM'][0]} %", name, partial(table_number, name), "number")
      for name, table in TABLES.items()),
    Claim("DSN beats its twin with 500 digits (Fig. 2b)", "yes", "fig2b-nin",
          partial(judge_ratios, beside_twin(**AT_500))),
    *(Claim(f"DSN-SVM ({form}) beats CNN-Softmax with 500 digits (Fig. 2b)", f"{GAIN_AT_500:g} %", "fig2b-nin",
            partial(gain, form), "number") for form in FORMS),
    Claim("The gain grows as the training set shrinks (Fig. 2b)", "yes", "fig2b-nin", gain_over_sizes),
    Claim("DSN converges faster, 500 digits", "yes", "budget", partial(distance, "faster")),
    Claim("DSN converges faster, CIFAR-10", "yes", "budget-cifar10", partial(distance, "faster")),
    Claim("DSN generalises better at the longest budget, 500 digits", "yes", "budget", partial(distance, "better")),
    Claim("DSN generalises better at the longest budget, CIFAR-10", "yes", "budget-cifar10",
          partial(distance, "better")),
    Claim("Both fit the training digits, DSN generalises better (Fig. 2c)", "yes", "fig2c-nin", both_fit),
    Claim("Feature maps of the first convolution are more discriminative (Fig. 3)", "yes", "fig3", feature_maps),
    Claim("The first convolution's gradient varies more in DSN", f"{VARIANCE_RATIO} times", "gradient-variance",
          variance, "number"),
    Claim("DSN is more robust to the learning rate", "yes", "robustness-nin", robust),
    Claim("Joint training beats greedy pre-training", "yes", "pretraining-nin", partial(judge_ratios, JOINT)),
    Claim("L1 and L2 hinge differ negligibly", "yes", "l1-l2-nin", same_hinge, "equivalence"),
    *(Claim(name, "proved", "theory", partial(statement, names), "theory") for name, names in LEMMAS.items()),
)  # fmt: skip


def verdict(claim: Claim, records: Mapping[str, Record]) -> Judged:
    """Return what the record of a claim's target says of it, and how many of its rows are still to be trained."""
    record = records.get(claim.target)
    if record is None:
        return UNKNOWN
    judged, left = claim.judge(record), len(record.get("missing", ()))
    return judged._replace(words=f"{judged.words}; {left} rows not run yet") if judged.words and left else judged
