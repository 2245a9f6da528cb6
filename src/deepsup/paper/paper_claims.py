"""The claims of the paper: each with the target whose record answers, and the judge."""

from collections.abc import Mapping
from functools import partial

from deepsup.paper.paper_judges import (
    AT_500,
    IN_TABLE,
    beside_twin,
    better,
    both_fit,
    faster,
    feature_maps,
    gain,
    gain_over_sizes,
    robust,
    same_hinge,
    statement,
    table_number,
    variance,
)
from deepsup.paper.paper_targets import BUDGETS, CIFAR_BUDGETS, FORMS
from deepsup.paper.printed import GAIN_AT_500, TABLES, VARIANCE_RATIO
from deepsup.paper.row_id import RowId
from deepsup.paper.verdicts import UNKNOWN, Cases, Claim, Judged, Record, judge_ratios

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
TWINS = "DSN has less error than its twin, the same net without companions (tables)"
NUMBERS = "The printed errors of the tables"
SMALL = "With 500 digits (Fig. 2b)"
FASTER, BETTER = "DSN converges faster (budget curves)", "DSN generalises better at the longest budget"
THEORY = "The theory, simulated"
PAPER_CLAIMS = (
    *(Claim(f"DSN beats its twin: {table.title}", "yes", name, partial(judge_ratios, IN_TABLE), group=TWINS,
            part=table.title.removesuffix(", no augmentation"))
      for name, table in TABLES.items()),
    *(Claim(f"DSN's error: {table.title}", f"{table.rows['DSN-SVM'][0]} %", name, partial(table_number, name), "number",
            NUMBERS, table.title.removesuffix(", no augmentation"))
      for name, table in TABLES.items()),
    Claim("DSN beats its twin with 500 digits (Fig. 2b)", "yes", "fig2b-nin",
          partial(judge_ratios, beside_twin(**AT_500)), group=SMALL, part="DSN beats its twin"),
    *(Claim(f"DSN-SVM ({form}) beats CNN-Softmax with 500 digits (Fig. 2b)", f"{GAIN_AT_500:g} %", "fig2b-nin",
            partial(gain, form), "number", SMALL, f"DSN-SVM, {form}, has {GAIN_AT_500:g} % less error than CNN-Softmax")
      for form in FORMS),
    Claim("The gain grows as the training set shrinks (Fig. 2b)", "yes", "fig2b-nin", gain_over_sizes),
    Claim("DSN converges faster, 500 digits", "yes", "budget", faster, "budget curves", FASTER, "500 digits"),
    Claim("DSN converges faster, CIFAR-10", "yes", "budget-cifar10", faster, "budget curves", FASTER, "CIFAR-10"),
    Claim("DSN generalises better at the longest budget, 500 digits", "yes", "budget",
          partial(better, dict.fromkeys(CIFAR_BUDGETS, BUDGETS[-1])), "budget curves", BETTER, "500 digits"),
    Claim("DSN generalises better at the longest budget, CIFAR-10", "yes", "budget-cifar10",
          partial(better, {preset: each[-1] for preset, each in CIFAR_BUDGETS.items()}), "budget curves", BETTER,
          "CIFAR-10"),
    Claim("Both fit the training digits, DSN generalises better (Fig. 2c)", "yes", "fig2c-nin", both_fit),
    Claim("Feature maps of the first convolution are more discriminative (Fig. 3)", "yes", "fig3", feature_maps),
    Claim("The first convolution's gradient varies more in DSN", f"{VARIANCE_RATIO} times", "gradient-variance",
          variance, "number", f"The first convolution's gradient varies more in DSN, {VARIANCE_RATIO} times"),
    Claim("DSN is more robust to the learning rate", "yes", "robustness-nin", robust),
    Claim("Joint training beats greedy pre-training", "yes", "pretraining-nin", partial(judge_ratios, JOINT)),
    Claim("L1 and L2 hinge differ negligibly", "yes", "l1-l2-nin", same_hinge, "equivalence"),
    *(Claim(name, "proved", "theory", partial(statement, names), "theory", THEORY, name)
      for name, names in LEMMAS.items()),
)  # fmt: skip


def verdict(claim: Claim, records: Mapping[str, Record]) -> Judged:
    """Return what the record of a claim's target says of it, and how many of its rows are still to be trained."""
    record = records.get(claim.target)
    if record is None:
        return UNKNOWN
    judged, left = claim.judge(record), len(record.get("missing", ()))
    if not judged.words or not left:
        return judged
    return judged._replace(words=f"{judged.words}; {left} row{'s' * (left > 1)} of the study not run yet")
