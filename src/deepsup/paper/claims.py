"""The paper's claims, one by one, and the verdict that the records give on each: by rule, never by hand.

A number that stands in no record is not run. A comparison counts as reproduced where the paired difference over seeds
goes the paper's way with its whole 95 % interval.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from deepsup.paper.fast_targets import FAST, FEW, MINUTES, WITH, WITHOUT
from deepsup.paper.printed import GAIN_AT_500, TABLES, VARIANCE_RATIO

REPRODUCED, NOT_REPRODUCED, NOT_RUN = "reproduced", "not reproduced", "not run"
GUESSING = 80.0  # percent: a net of ten classes with a higher error has learned nothing
Record = Mapping[str, Any]
Judged = tuple[str, str]  # what was found, the verdict


@dataclass(frozen=True)
class Claim:
    """One claim: what the paper says, the target whose record answers, and how."""

    what: str
    paper: str
    target: str
    judge: Callable[[Record], Judged]
    rule: str


def row(record: Record, name: str) -> Mapping[str, Any] | None:
    """Return a row or a reading by its name, if it holds a number."""
    found = [each for each in (*record["rows"], *record.get("readings", [])) if each["row"] == name]
    return found[0] if found and found[0]["mean"] is not None else None


def comparison(record: Record, name: str) -> Mapping[str, Any] | None:
    """Return a paired test by its name, if it has an interval."""
    found = [each for each in record.get("tests", []) if each["test"] == name]
    return found[0] if found and found[0]["interval"] is not None else None


def shown(each: Mapping[str, Any]) -> str:
    """Say a mean, its deviation and how many seeds it is of."""
    deviation = "" if each["deviation"] is None else f" ± {each['deviation']:.2g}"
    return f"{each['mean']:.3g}{deviation} (n {len(each['values'])})"


def better(each: Mapping[str, Any] | None) -> bool:
    """Whether the whole interval of a paired difference lies below 0."""
    return each is not None and each["interval"][1] < 0


def table_error(name: str, record: Record) -> Judged:
    """Judge the error of DSN in a table: by a row that was trained on all images."""
    held = row(record, "DSN-SVM")
    if held is None:
        return "", NOT_RUN
    if (size := held["config"]["train_size"]) is not None:
        return f"{shown(held)} with {size:,} training images", NOT_RUN
    return shown(held), REPRODUCED if held["mean"] <= TABLES[name].rows["DSN-SVM"][0] else NOT_REPRODUCED


def table_order(name: str, record: Record) -> Judged:
    """Judge whether DSN beats every rival of a table: by rows that were trained on all images."""
    rows = [each for each in record["rows"] if each["row"] in TABLES[name].rows and each["mean"] is not None]
    if not any(each["row"] == "DSN-SVM" for each in rows) or len(rows) < 2:
        return "", NOT_RUN
    order = sorted(rows, key=lambda each: float(each["mean"]))
    seen = " < ".join(f"{each['row']} {each['mean']:.3g}" for each in order)
    if any(each["config"]["train_size"] is not None for each in rows) or len(rows) < len(TABLES[name].rows):
        return f"few images, one seed: {seen}", NOT_RUN
    return seen, REPRODUCED if order[0]["row"] == "DSN-SVM" else NOT_REPRODUCED


def methods(record: Record) -> Judged:
    """Judge whether both DSNs beat their CNNs on MNIST."""
    names = ("DSN-Softmax - CNN-Softmax", "DSN-SVM - CNN-SVM")
    found = [comparison(record, name) for name in names]
    told = "; ".join(f"{each['test']} {each['mean']:+.2f} (p {each['p']:.2g})" for each in found if each)
    return told, (REPRODUCED if all(map(better, found)) else NOT_REPRODUCED) if told else NOT_RUN


def gain(record: Record) -> Judged:
    """Judge the gain of DSN-SVM over CNN-Softmax at 500 digits: on the paper's net where it was run."""
    told, verdicts = [], []
    for where in ("NIN, 500 digits", "500 digits"):
        each, pair = row(record, f"gain, {where}"), comparison(record, f"DSN-SVM, {where} - CNN-Softmax, {where}")
        if each and pair:
            base = row(record, f"CNN-Softmax, {where}")
            if base and base["mean"] > GUESSING:
                told.append(f"{where}: CNN-Softmax learned nothing ({base['mean']:.1f} %), no gain to speak of")
                continue
            told.append(f"{where}: {each['mean']:+.1f} % (p {pair['p']:.2g}, n {pair['n']})")
            verdicts.append(better(pair) and each["mean"] >= 0.75 * GAIN_AT_500)
    return "; ".join(told), (REPRODUCED if verdicts[0] else NOT_REPRODUCED) if verdicts else NOT_RUN


def smaller_is_better(record: Record) -> Judged:
    """Judge whether the gain grows as the training set shrinks."""
    gains = {each["row"]: each["mean"] for each in record.get("readings", []) if "NIN" not in each["row"]}
    if len(gains) < 2:
        return "", NOT_RUN
    by_size = sorted((int(name.split(", ")[1].split()[0].replace(",", "")), value) for name, value in gains.items())
    told = ", ".join(f"{size:,}: {value:+.1f} %" for size, value in by_size)
    falling = all(a[1] > b[1] for a, b in pairwise(by_size))
    return told, REPRODUCED if falling and by_size[0][1] > 0 else NOT_REPRODUCED


def generalisation(record: Record) -> Judged:
    """Judge whether both nets fit the training digits and DSN has the lower test error."""
    trained = {name: row(record, f"{name}, training error") for name in ("CNN-SVM", "DSN-SVM")}
    pair = comparison(record, "DSN-SVM - CNN-SVM")
    if pair is None or None in trained.values():
        return "", NOT_RUN
    told = ", ".join(f"{name} {each['mean']:.2f} % in training" for name, each in trained.items() if each)
    fits = all(each["mean"] < 0.5 for each in trained.values() if each)
    return f"{told}; test {pair['mean']:+.2f} (p {pair['p']:.2g})", REPRODUCED if fits and better(
        pair
    ) else NOT_REPRODUCED


def variance(record: Record) -> Judged:
    """Judge the ratio of the first convolution's gradient variances."""
    each = row(record, "variance of conv1's gradient, DSN over CNN")
    if each is None:
        return "", NOT_RUN
    close = VARIANCE_RATIO / 1.5 <= each["mean"] <= VARIANCE_RATIO * 1.5
    return f"{shown(each)} times", REPRODUCED if close else NOT_REPRODUCED


def feature_maps(record: Record) -> Judged:
    """Judge the first convolution by what a linear probe reads in it."""
    dsn, cnn = (row(record, f"{name}, linear probe on conv1") for name in ("DSN-SVM", "CNN-SVM"))
    if dsn is None or cnn is None:
        return "", NOT_RUN
    told = f"a linear probe on conv1 errs on {dsn['mean']:.1f} % (DSN) and {cnn['mean']:.1f} % (CNN), one seed"
    return told, REPRODUCED if dsn["mean"] < cnn["mean"] - 1 else NOT_REPRODUCED


def robust(record: Record) -> Judged:
    """Judge the mean error over the grid of rates, for both losses."""
    pairs = [[row(record, f"{kind}-{loss}, mean over the rates") for kind in ("DSN", "CNN")]
             for loss in ("Softmax", "SVM")]  # fmt: skip
    if any(each is None for pair in pairs for each in pair):
        return "", NOT_RUN
    told = "; ".join(f"{loss}: {dsn['mean']:.1f} (DSN), {cnn['mean']:.1f} (CNN)" for loss, (dsn, cnn) in
                     zip(("Softmax", "SVM"), pairs, strict=True) if dsn and cnn)  # fmt: skip
    return told, REPRODUCED if all(dsn["mean"] < cnn["mean"] for dsn, cnn in pairs if dsn and cnn) else NOT_REPRODUCED


def faster(record: Record) -> Judged:
    """Judge how many epochs each net needs to come within 10 % of the CNN's last error."""
    held = {
        each["row"].split(",")[0]: each["mean"] for each in record.get("readings", []) if "epochs to" in each["row"]
    }
    if len(held) < 4:
        return "", NOT_RUN
    told = ", ".join(f"{name} {epochs:g}" for name, epochs in held.items())
    sooner = all(held[f"DSN-{loss}"] < held[f"CNN-{loss}"] for loss in ("Softmax", "SVM"))
    return f"{told} epochs", REPRODUCED if sooner else NOT_REPRODUCED


def hinges(record: Record) -> Judged:
    """Judge whether the two hinges differ by less than a tenth of the error, or not certainly."""
    found = [comparison(record, f"{name}, L2 - {name}, L1") for name in ("DSN-SVM", "CNN-SVM")]
    if None in found:
        return "", NOT_RUN
    told = "; ".join(f"{each['test']} {each['mean']:+.2f} (p {each['p']:.2g})" for each in found if each)
    base = row(record, "DSN-SVM, L2")
    little = all(
        each["interval"][0] <= 0 <= each["interval"][1] or (base and abs(each["mean"]) < 0.1 * base["mean"])
        for each in found if each
    )  # fmt: skip
    return told, REPRODUCED if little else NOT_REPRODUCED


def joint(record: Record) -> Judged:
    """Judge whether joint training beats greedy pre-training with fine-tuning."""
    pair = comparison(record, "DSN-SVM, joint - greedy pre-training")
    if pair is None:
        return "", NOT_RUN
    return f"{pair['mean']:+.2f} points (p {pair['p']:.2g}, n {pair['n']})", REPRODUCED if better(
        pair
    ) else NOT_REPRODUCED


def statement(name: str, record: Record) -> Judged:
    """Judge a lemma or the theorem by the findings of the simulation."""
    found = [each for each in record.get("findings", []) if each["statement"].startswith(name)]
    if not found:
        return "", NOT_RUN
    holds = all(each["verdict"] == "holds as printed" for each in found)
    return "; ".join(dict.fromkeys(each["verdict"] for each in found)), REPRODUCED if holds else NOT_REPRODUCED


def fast_error(name: str, record: Record) -> Judged:
    """Judge the error of a fast recipe by the paper's, and by the minutes that a run took."""
    held, bound = row(record, WITH), MINUTES[name]
    if held is None:
        return "", NOT_RUN
    longest = max(held["seconds"]) / 60
    told = f"{shown(held)} %, {longest:.0f} minutes"
    if (plain := row(record, WITHOUT)) is not None:
        told += f"; without companions {shown(plain)} %"
    return told, REPRODUCED if held["mean"] <= held["paper"] and longest < bound else NOT_REPRODUCED


def helped(record: Record) -> Judged:
    """Judge whether companions lower the error of the modern trunk, at every number of images."""
    found = [comparison(record, f"{WITH}, {size:,} images - {WITHOUT}, {size:,} images") for size in FEW]
    told = "; ".join(
        f"{size:,} images: {each['mean']:+.2f} (p {each['p']:.2g})"
        for size, each in zip(FEW, found, strict=True)
        if each
    )
    if not all(found):
        return told, NOT_RUN
    return told, REPRODUCED if all(map(better, found)) else NOT_REPRODUCED


INTERVAL = "the 95 % interval of the paired difference lies below 0"
CLAIMS = (
    *(Claim(f"DSN on {table.title}", f"{table.rows['DSN-SVM'][0]} %", name, partial(table_error, name),
            "mean error of a DSN-SVM trained on all images at or below the paper's") for name, table in TABLES.items()),
    *(Claim(f"DSN has the lowest error of the table: {table.title}", "yes", name, partial(table_order, name),
            "all rows, trained on all images") for name, table in TABLES.items()),
    Claim("DSN beats CNN under softmax and under SVM (Fig. 2a)", "yes", "fig2a", methods, f"{INTERVAL}, for both"),
    Claim("DSN-SVM is better than CNN-Softmax with 500 digits (Fig. 2b)", f"{GAIN_AT_500:g} %", "fig2b", gain,
          f"{INTERVAL}, and the gain is at least three quarters of the paper's; on NIN where its CNN learned"),
    Claim("The gain grows as the training set shrinks (Fig. 2b)", "yes", "fig2b", smaller_is_better,
          "the gain falls from each size to the next larger one"),
    Claim("Both fit the training digits, DSN generalises better (Fig. 2c)", "yes", "fig2c", generalisation,
          f"training errors below 0.5 %, and {INTERVAL}"),
    Claim("DSN converges faster (Fig. 2a)", "yes", "fig2a", faster,
          "fewer epochs to within 10 % of the CNN's last test error, for both losses"),
    Claim("Feature maps of the first convolution are more discriminative (Fig. 3)", "yes", "fig3", feature_maps,
          "a linear probe on DSN's errs less by more than a point"),
    Claim("The first convolution's gradient varies more in DSN", f"{VARIANCE_RATIO} times", "gradient-variance",
          variance, "within a factor 1.5 of the paper's"),
    Claim("DSN is more robust to the learning rate", "yes", "robustness", robust,
          "a lower mean error over the grid, for both losses; a diverged run counts 90 %"),
    Claim("Joint training is better than greedy pre-training", "yes", "pretraining", joint, INTERVAL),
    Claim("L1 and L2 hinge differ negligibly", "yes", "l1-l2", hinges,
          "the 95 % interval contains 0, or the difference is below a tenth of the error"),
    *(Claim(f"DSN's error on {TABLES[FAST[name]].title}, in minutes on two CPU cores",
            f"{TABLES[FAST[name]].rows['DSN-SVM'][0]} %", name, partial(fast_error, name),
            f"mean error of the recipe at or below the paper's, every run under {minutes} minutes")
      for name, minutes in MINUTES.items()),
    Claim("Companions help with few images, on today's trunk", "yes, on its own nets", "fast-few", helped, INTERVAL),
    *(Claim(name, "proved", "theory", partial(statement, name), "holds as printed, in algebra and simulation")
      for name in ("Lemma 1", "Lemma 2", "Lemma 3", "Theorem 1")),
)  # fmt: skip


def verdict(claim: Claim, records: Mapping[str, Record]) -> Judged:
    """Return what the record of a claim's target says of it."""
    record = records.get(claim.target)
    return claim.judge(record) if record is not None else ("", NOT_RUN)
