"""What our own recipes and studies are to show, and the judge of each."""

from dataclasses import replace
from functools import partial

from deepsup.paper.own_targets import FAST, FEW, MINUTES
from deepsup.paper.printed import TABLES
from deepsup.paper.row_id import WITH, WITHOUT, RowId
from deepsup.paper.verdicts import (
    NOT_REPRODUCED,
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
    ratio_words,
)
from deepsup.paper.when_targets import (
    CLASSES,
    CONTROLS,
    DEPTH,
    DEPTHS,
    FACTORS,
    NORMS,
    OPTIMIZERS,
    PER_CLASS,
    SIZE,
    SIZES,
    combinations,
    companion_id,
    control_id,
)
from deepsup.trainer.studies import excludes, mean_test

TUNING_SIZES = tuple(CLASSES * each for each in PER_CLASS)


def fast_error(name: str, record: Record) -> Judged:
    """Judge the error of a fast recipe, which has no companions, by the paper's DSN, and by the minutes of a run."""
    row, supervised = find_row(record, RowId(WITHOUT)), find_row(record, RowId(WITH))
    if row is None:
        return UNKNOWN
    longest = max(row["seconds"]) / 60
    words = f"{estimate(errors_of(row))}, {longest:.0f} minutes"
    if supervised is not None and (test := compare_rows(record, RowId(WITH), RowId(WITHOUT))) is not None:
        words += f"; ratio with companions {ratio_words(test)}"
    good = row["mean"] <= TABLES[FAST[name]].rows["DSN-SVM"][0] and longest < MINUTES[name]
    return Judged(words, REPRODUCED if good else NOT_REPRODUCED)


def paper_choices(record: Record) -> Judged:
    """Judge what the paper's side of each choice does, over all combinations of the others."""
    rows = {factor: find_row(record, RowId(factor, reading="effect")) for factor in FACTORS}
    values = {factor: row["values"] for factor, row in rows.items() if row is not None and len(row["values"]) > 1}
    if len(values) < len(FACTORS):
        return UNKNOWN
    tests = {factor: mean_test(each) for factor, each in values.items()}
    words = "; ".join(
        "{} instead of {}: {:+.2f} points (95 % {:+.2f} to {:+.2f})".format(
            list(FACTORS[factor])[1], next(iter(FACTORS[factor])), test["mean"], *(test["interval"] or ())
        ) for factor, test in tests.items()
    )  # fmt: skip
    return Judged(words, all_or_some([test["mean"] < 0 and excludes(test["interval"], 0) for test in tests.values()]))


def beside_none(name: RowId) -> tuple[RowId, RowId]:
    """Return a row with companions, and the same without."""
    return replace(name, method=WITH), replace(name, method=WITHOUT, companions="")


def at_depths(optimizer: str, norm: str, companions: str = "") -> Cases:
    """Return the rows over depth of the target ``when``."""
    rows = {depth: RowId(WITH, "plain", depth, norm, optimizer, companions, size=SIZE) for depth in DEPTHS}
    return {f"{depth} layers": beside_none(row) for depth, row in rows.items()}


def at_sizes(norm: str, companions: str = "") -> Cases:
    """Return the rows over the number of images of the target ``when``."""
    rows = {size: RowId(WITH, "plain", DEPTH, norm, "sgd", companions, size=size) for size in sorted((SIZE, *SIZES))}
    return {f"{size:,} digits": beside_none(row) for size, row in rows.items()}


AT_FEW: Cases = {f"{size:,} images": beside_none(RowId(WITH, size=size)) for size in FEW}
TUNED: Cases = {f"{size:,} images": beside_none(RowId(WITH, "fast", size=size)) for size in TUNING_SIZES}
CONTROLLED: Cases = {f"against {name}": (control_id(WITH), control_id(name)) for name in CONTROLS}
COMBINED: Cases = {name: (companion_id(name), companion_id(WITHOUT)) for name in combinations() if name != WITHOUT}
WHOSE = {"": "Default companions", "flat": "Flat companions", "printed": "Companions as printed"}
KINDS = (("none", ""), ("none", "flat"), ("none", "printed"), ("batch", ""))
"""Norm layers and companions of the rows of ``when``."""
OWN_CLAIMS = (
    *(Claim(f"The recipe {name} has at most DSN's error on {TABLES[FAST[name]].title}, on two CPU cores, in under "
            f"{minutes} minutes", f"{TABLES[FAST[name]].rows['DSN-SVM'][0]} %", name, partial(fast_error, name),
            "number")
      for name, minutes in MINUTES.items()),
    Claim("Companions lower the error of the net fast with few images", "", "fast-few", partial(judge_ratios, AT_FEW)),
    *(Claim(f"{WHOSE[of]} lower the error of plain nets at every depth, {NORMS[norm]}, {optimizer}", "", "when",
            partial(judge_ratios, at_depths(optimizer, norm, of)))
      for optimizer in OPTIMIZERS for norm, of in KINDS),
    *(Claim(f"{WHOSE[of]} lower the error of a plain net of {DEPTH} layers at every number of images, {NORMS[norm]}",
            "", "when", partial(judge_ratios, at_sizes(norm, of)))
      for norm, of in KINDS if of != "printed"),
    Claim("Companions lower the error of NIN of half width with 500 digits, whichever they are", "", "when-companions",
          partial(judge_ratios, COMBINED)),
    Claim("The paper's side of each choice lowers the error of NIN of half width more than the other side", "",
          "when-companions", paper_choices),
    Claim("Companions lower the error of a trained net that is tuned on few images of other classes", "",
          "when-tuning", partial(judge_ratios, TUNED)),
    Claim("Flat companions lower the error of a plain net more than each control does", "", "when-controls",
          partial(judge_ratios, CONTROLLED)),
)  # fmt: skip
