"""What our own recipes are to show, and the verdict that the records give on each."""

from dataclasses import replace
from functools import partial

from deepsup.paper.claim_rules import Cases, helped
from deepsup.paper.companion_targets import FACTORS, combinations
from deepsup.paper.companion_targets import id_of as companion_id
from deepsup.paper.control_targets import CONTROLS, id_of
from deepsup.paper.fast_targets import FAST, FEW, MINUTES, WITH, WITHOUT
from deepsup.paper.printed import TABLES
from deepsup.paper.row_id import RowId
from deepsup.paper.tuning_targets import CLASSES, PER_CLASS
from deepsup.paper.verdicts import (
    NOT_REPRODUCED,
    REPRODUCED,
    UNKNOWN,
    Claim,
    Judged,
    Record,
    better,
    difference,
    estimate,
    find_row,
    find_test,
    in_all_or_some,
)
from deepsup.paper.when_targets import DEPTH, DEPTHS, NORMS, OPTIMIZERS, SIZE, SIZES
from deepsup.trainer.studies import paired

TUNING_SIZES = tuple(CLASSES * each for each in PER_CLASS)


def fast_error(name: str, record: Record) -> Judged:
    """Judge the error of a fast recipe by the paper's, and by the minutes that a run took."""
    row = find_row(record, RowId(WITH))
    if row is None:
        return UNKNOWN
    longest = max(row["seconds"]) / 60
    told = f"{estimate(row['values'])}, {longest:.0f} minutes"
    if (plain := find_row(record, RowId(WITHOUT))) is not None:
        told += f"; without companions {estimate(plain['values'])}"
    if (test := find_test(record, RowId(WITH), RowId(WITHOUT))) is not None:
        told += f", difference {difference(test)}"
    good = row["mean"] <= row["paper"] and longest < MINUTES[name]
    return Judged(told, REPRODUCED if good else NOT_REPRODUCED)


def paper_choices(record: Record) -> Judged:
    """Judge what the paper's side of each choice does, over all combinations of the others."""
    rows = {factor: find_row(record, RowId(factor, reading="effect")) for factor in FACTORS}
    values = {factor: row["values"] for factor, row in rows.items() if row is not None and len(row["values"]) > 1}
    if len(values) < len(FACTORS):
        return UNKNOWN
    tests = {factor: {**paired(each, [0.0] * len(each)), "n": len(each)} for factor, each in values.items()}
    told = "; ".join(f"{list(FACTORS[factor])[1]} instead of {next(iter(FACTORS[factor]))}: {difference(test)}"
                     for factor, test in tests.items())  # fmt: skip
    return Judged(told, in_all_or_some([better(test) for test in tests.values()]))


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
CONTROLLED: Cases = {f"against {name}": (id_of(WITH), id_of(name)) for name in CONTROLS}
COMBINED: Cases = {name: (companion_id(name), companion_id(WITHOUT)) for name in combinations() if name != WITHOUT}
WHOSE = {"": "Default companions", "flat": "Flat companions", "printed": "Companions as printed"}
KINDS = (("none", ""), ("none", "flat"), ("none", "printed"), ("batch", ""))
"""Norm layers and companions of the rows of ``when``."""
LEARNS = "wherever the net without them learns"
INTERVAL = "the 95 % interval of the paired difference lies below 0"
RECIPE_CLAIMS = (
    *(Claim(f"The recipe {name} has DSN's error on {TABLES[FAST[name]].title}, on two CPU cores",
            f"{TABLES[FAST[name]].rows['DSN-SVM'][0]} %", name, partial(fast_error, name),
            f"mean error at or below the paper's, every run under {minutes} minutes")
      for name, minutes in MINUTES.items()),
    Claim("Companions lower the error of the net fast with few images", "", "fast-few", partial(helped, AT_FEW),
          f"{INTERVAL}, at {' and '.join(f'{size:,}' for size in FEW)} images; partly: at some"),
    *(Claim(f"{WHOSE[of]} lower the error of plain nets at every depth, {NORMS[norm]}, {optimizer}", "", "when",
            partial(helped, at_depths(optimizer, norm, of)), f"{INTERVAL}, {LEARNS}; partly: at some depths")
      for optimizer in OPTIMIZERS for norm, of in KINDS),
    *(Claim(f"{WHOSE[of]} lower the error of a plain net of {DEPTH} layers at every number of images, {NORMS[norm]}",
            "", "when", partial(helped, at_sizes(norm, of)), f"{INTERVAL}, {LEARNS}; partly: at some numbers")
      for norm, of in KINDS if of != "printed"),
    Claim("Companions lower the error of NIN of half width with 500 digits, whichever they are", "", "when-companions",
          partial(helped, COMBINED), f"{INTERVAL}, for every combination; partly: for some"),
    Claim("The paper's side of each choice lowers the error of NIN of half width more than the other side", "",
          "when-companions", paper_choices, f"{INTERVAL}, seed by seed, mean over the others; partly: of some choices"),
    Claim("Companions lower the error of a trained net that is tuned on few images of other classes", "",
          "when-tuning", partial(helped, TUNED), f"{INTERVAL}, {LEARNS}; partly: at some numbers of images"),
    Claim("Flat companions lower the error of a plain net more than each control does", "", "when-controls",
          partial(helped, CONTROLLED), f"{INTERVAL}, against every control that learns; partly: against some"),
)  # fmt: skip
