"""A record -> what it says of one claim of the paper, and the verdict: by rule, never by hand.

A comparison counts as reproduced if the paired difference over seeds goes the paper's way with its whole 95 % interval.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from statistics import mean

from deepsup.paper.printed import GAIN_AT_500, TABLES, VARIANCE_RATIO
from deepsup.paper.row_id import COMPANIONS, RowId
from deepsup.paper.theory.findings import AFTER_CORRECTION, AS_PRINTED
from deepsup.paper.verdicts import (
    CORRECTED,
    NOT_COMPARABLE,
    NOT_REPRODUCED,
    NOT_RUN,
    PARTLY,
    REPRODUCED,
    UNKNOWN,
    Entry,
    Judged,
    Record,
    better,
    difference,
    estimate,
    find_row,
    find_test,
    in_all_or_some,
    unlearned,
)
from deepsup.trainer.config import Config
from deepsup.trainer.studies import paired

EQUIVALENT = 0.1
"""Of the error: the bound within which L1 and L2 count as equal."""
LOSSES = ("Softmax", "SVM")
Cases = Mapping[str, tuple[RowId, RowId]]
"""Words for people -> the row with companions and the row that it is compared with."""


def on_all_images(row: Entry) -> bool:
    """Whether a row was trained on all training images."""
    return Config.recorded(row["config"]).data.train_size is None


def table_error(name: str, record: Record) -> Judged:
    """Judge the error of DSN in a table: by a row that was trained on all images."""
    row = find_row(record, RowId("DSN-SVM"))
    if row is None:
        return UNKNOWN
    if not on_all_images(row):
        return Judged(f"{estimate(row['values'])} on few images", NOT_RUN)
    below = row["mean"] <= TABLES[name].rows["DSN-SVM"][0]
    return Judged(estimate(row["values"]), REPRODUCED if below else NOT_REPRODUCED)


def table_order(name: str, record: Record) -> Judged:
    """Judge whether DSN beats every rival of a table: by rows that were trained on all images."""
    found = {method: find_row(record, RowId(method)) for method in TABLES[name].rows}
    rows = {method: row for method, row in found.items() if row is not None}
    if "DSN-SVM" not in rows or len(rows) < 2:
        return UNKNOWN
    order = sorted(rows, key=lambda method: float(rows[method]["mean"]))
    seen = " < ".join(f"{method} {estimate(rows[method]['values'])}" for method in order)
    if len(rows) < len(found) or not all(map(on_all_images, rows.values())):
        return Judged(f"few images or rows: {seen}", NOT_RUN)
    return Judged(seen, REPRODUCED if order[0] == "DSN-SVM" else NOT_REPRODUCED)


def helped(cases: Cases, record: Record) -> Judged:
    """Judge whether companions lower the error in every case in which the net that they are compared with learns."""
    told: list[str] = []
    goes: list[bool] = []
    for words, (ours, theirs) in cases.items():
        test = find_test(record, ours, theirs)
        if test is None:
            return Judged("; ".join(told), NOT_RUN)
        why = unlearned(record, theirs)
        told.append(f"{words}: {why or difference(test)}")
        goes += [] if why else [better(test)]
    return Judged("; ".join(told), in_all_or_some(goes) if goes else NOT_COMPARABLE)


def gain(network: str, companions: str, record: Record) -> Judged:
    """Judge the gain of DSN-SVM over CNN-Softmax at 500 digits."""
    ours, theirs = RowId("DSN-SVM", network, companions=companions, size=500), RowId("CNN-Softmax", network, size=500)
    reading, test = find_row(record, replace(ours, reading="gain")), find_test(record, ours, theirs)
    if reading is None or test is None:
        return UNKNOWN
    if why := unlearned(record, theirs):
        return Judged(why, NOT_COMPARABLE)
    told = f"{reading['mean']:+.1f} %: {difference(test)}"
    if not better(test):
        return Judged(told, NOT_REPRODUCED)
    return Judged(told, REPRODUCED if reading["mean"] >= 0.75 * GAIN_AT_500 else PARTLY)


def smaller_is_better(network: str, record: Record) -> Judged:
    """Judge whether the gain grows as the training set shrinks, by the kind of companions with more sizes."""
    found = max((gains_of(network, kind, record) for kind in ("", *COMPANIONS)), key=len)
    if len(found) < 2:
        return UNKNOWN
    by_size = [found[size] for size in sorted(found)]
    told = "; ".join(f"{size:,}: {value:+.1f} %, {difference(test)}" for size, (value, test) in sorted(found.items()))
    falling = all(smaller[0] > larger[0] for smaller, larger in pairwise(by_size))
    certain = better(by_size[0][1])
    largest = by_size[0][0] == max(value for value, _ in by_size)
    return Judged(told, REPRODUCED if falling and certain else PARTLY if largest and certain else NOT_REPRODUCED)


def gains_of(network: str, companions: str, record: Record) -> dict[int, tuple[float, Entry]]:
    """Return number of digits -> the gain of DSN-SVM over CNN-Softmax, and its test, where the CNN learned."""
    found = {}
    for reading in record.get("readings", []):
        name = RowId.of(reading)
        if (name.reading, name.network, name.companions) != ("gain", network, companions) or name.size is None:
            continue
        base = RowId("CNN-Softmax", network, size=name.size)
        test = find_test(record, replace(name, reading=""), base)
        if test is not None and not unlearned(record, base):
            found[name.size] = reading["mean"], test
    return found


def generalisation(record: Record) -> Judged:
    """Judge whether both nets fit the training digits and DSN has the lower test error."""
    names = ("CNN-SVM", "DSN-SVM")
    trained = [find_row(record, RowId(name, reading="training error")) for name in names]
    test = find_test(record, RowId("DSN-SVM"), RowId("CNN-SVM"))
    rows = [row for row in trained if row is not None]
    if test is None or len(rows) < 2:
        return UNKNOWN
    if why := unlearned(record, RowId("CNN-SVM")):
        return Judged(why, NOT_COMPARABLE)
    told = ", ".join(f"{name} {estimate(row['values'])} in training" for name, row in zip(names, rows, strict=True))
    return Judged(
        f"{told}; test {difference(test)}", in_all_or_some([all(row["mean"] < 0.5 for row in rows), better(test)])
    )


def recorded_loss(record: Record) -> str:
    """Return the loss of a record with one DSN and one CNN."""
    return next((loss for loss in LOSSES if find_row(record, RowId(f"CNN-{loss}"))), LOSSES[0])


def variance(record: Record) -> Judged:
    """Judge the ratio of the variances of the first convolution's gradient."""
    loss = recorded_loss(record)
    row = find_row(record, RowId(f"DSN-{loss}", reading="variance", layer="conv1"))
    if row is None:
        return UNKNOWN
    if why := unlearned(record, RowId(f"CNN-{loss}")):
        return Judged(why, NOT_COMPARABLE)
    close = VARIANCE_RATIO / 1.5 <= row["mean"] <= VARIANCE_RATIO * 1.5
    verdict = REPRODUCED if close else PARTLY if row["mean"] > 1 else NOT_REPRODUCED
    return Judged(estimate(row["values"], " times"), verdict)


def feature_maps(record: Record) -> Judged:
    """Judge the first convolution by what a linear probe reads in it, paired over seeds."""
    names = tuple(f"{kind}-{recorded_loss(record)}" for kind in ("DSN", "CNN"))
    rows = [row for name in names if (row := find_row(record, RowId(name, reading="probe", layer="conv1")))]
    if len(rows) < 2 or len(rows[0]["values"]) != len(rows[1]["values"]):
        return UNKNOWN
    if why := unlearned(record, RowId(names[1])):
        return Judged(why, NOT_COMPARABLE)
    told = ", ".join(f"{name} {row['mean']:.4g} %" for name, row in zip(names, rows, strict=True))
    test = {**paired(rows[0]["values"], rows[1]["values"]), "n": len(rows[0]["values"])}
    if test["interval"] is None:
        return Judged(f"linear probe on conv1: {told} (one seed)", PARTLY if test["mean"] < -1 else NOT_REPRODUCED)
    lower = REPRODUCED if better(test) else NOT_REPRODUCED
    return Judged(f"linear probe on conv1: {told}, {difference(test)}", lower)


def robust(companions: str, record: Record) -> Judged:
    """Judge the mean error over the learning rates, paired over seeds, for both losses."""
    told, lower = [], []
    for loss in LOSSES:
        rows = (RowId(f"DSN-{loss}", companions=companions), RowId(f"CNN-{loss}"))
        dsn, cnn = (mean_over_rates(record, row) for row in rows)
        if min(len(dsn), len(cnn)) < 2 or len({rates_of(record, row) for row in rows}) > 1:
            return UNKNOWN
        test = {**paired(dsn, cnn), "n": len(dsn)}
        lower.append(better(test))
        told.append(f"{loss}: {mean(dsn):.1f} (DSN), {mean(cnn):.1f} (CNN), {difference(test)}")
    return Judged("; ".join(told), in_all_or_some(lower))


def over_rates(record: Record, line: RowId) -> dict[float, Entry]:
    """Return the rows of one method over the grid of learning rates, by their rates."""
    ids = [(RowId.of(row), row) for row in record["rows"]]
    return {name.lr: row for name, row in ids if name.lr is not None and replace(name, lr=None) == line}


def rates_of(record: Record, line: RowId) -> tuple[float, ...]:
    """Return the learning rates at which a method was trained: only equal grids are compared."""
    return tuple(sorted(over_rates(record, line)))


def mean_over_rates(record: Record, line: RowId) -> list[float]:
    """Return the mean error over the grid of learning rates, seed by seed; a diverged run has the error of guessing."""
    rows = over_rates(record, line).values()
    values = [[row["guessing"] if value is None else value for value in row["values"]] for row in rows]
    return [mean(seed) for seed in zip(*values, strict=True)]


def faster(record: Record) -> Judged:
    """Judge how many epochs each net needs to come within 10 % of the CNN's last error, paired over seeds."""
    told, sooner = [], []
    for loss in LOSSES:
        rows = [find_row(record, RowId(f"{kind}-{loss}", reading="epochs")) for kind in ("DSN", "CNN")]
        dsn, cnn = (row["values"] if row else [] for row in rows)
        if not dsn or not cnn:
            return UNKNOWN
        if why := unlearned(record, RowId(f"CNN-{loss}")):
            return Judged(why, NOT_COMPARABLE)
        test = {**paired(dsn, cnn), "n": len(dsn)}
        sooner.append(test["interval"] is not None and better(test))
        low, high = test["interval"] or (None, None)
        sure = "mean curves, no interval" if low is None else f"95 % {low:+.2g} to {high:+.2g}, n {len(dsn)}"
        told.append(f"{loss}: {mean(dsn):.3g} (DSN) and {mean(cnn):.3g} (CNN) epochs, {test['mean']:+.2g} ({sure})")
    return Judged("; ".join(told), in_all_or_some(sooner))


def hinges(record: Record) -> Judged:
    """Judge whether L1 and L2 are equivalent: two one-sided tests, by the 90 % interval within a tenth of the error."""
    told, equal = [], []
    for method in ("DSN-SVM", "CNN-SVM"):
        ids = [RowId(method, loss=loss) for loss in ("squared_hinge", "hinge")]
        l2, l1 = (find_row(record, each) for each in ids)
        if l2 is None or l1 is None:
            return UNKNOWN
        if why := unlearned(record, ids[0]) or unlearned(record, ids[1]):  # two nets that guess are equal
            return Judged(why, NOT_COMPARABLE)
        both = zip(l2["values"], l1["values"], strict=True)
        pairs = [(a, b) for a, b in both if a is not None and b is not None]
        if len(pairs) < 2:
            return UNKNOWN
        squared, plain = zip(*pairs, strict=True)
        test, bound = paired(squared, plain, confidence=0.9), EQUIVALENT * mean((*squared, *plain))
        low, high = test["interval"]
        equal.append(-bound < low and high < bound)
        told.append(f"{method}: {test['mean']:+.2f} points (90 % {low:+.2f} to {high:+.2f}, bound {bound:.2f}, "
                    f"n {len(pairs)})")  # fmt: skip
    return Judged("; ".join(told), in_all_or_some(equal))


def joint(record: Record) -> Judged:
    """Judge whether joint training beats greedy pre-training with fine-tuning."""
    test = find_test(record, RowId("DSN-SVM"), RowId("greedy"))
    if test is None:
        return UNKNOWN
    if why := unlearned(record, RowId("greedy")):
        return Judged(why, NOT_COMPARABLE)
    return Judged(difference(test), REPRODUCED if better(test) else NOT_REPRODUCED)


def statement(names: tuple[str, ...], record: Record) -> Judged:
    """Judge a lemma or the theorem by the findings of the simulation; a proof is told of, not judged."""
    found = {each["id"]: each for each in record.get("findings", [])}
    if not all(name in found for name in names):
        return UNKNOWN
    verdicts = [found[name]["verdict"] for name in names]
    told = "; ".join(dict.fromkeys(verdicts))
    if (proof := found.get(f"{names[0]}-proof")) is not None:
        told += f"; its proof {proof['verdict']}"
    if all(each == AS_PRINTED for each in verdicts):
        return Judged(told, REPRODUCED)
    good = all(each in (AS_PRINTED, AFTER_CORRECTION) for each in verdicts)
    return Judged(told, CORRECTED if good else NOT_REPRODUCED)
