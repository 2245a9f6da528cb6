"""What our own recipes are to show, and the verdict that the records give on each."""

from dataclasses import replace
from functools import partial

from deepsup.paper.fast_targets import FAST, FEW, MINUTES, WITH, WITHOUT
from deepsup.paper.printed import TABLES
from deepsup.paper.row_id import RowId
from deepsup.paper.verdicts import (
    NOT_COMPARABLE,
    NOT_REPRODUCED,
    NOT_RUN,
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
    unlearned,
)
from deepsup.paper.when_targets import DEPTHS, NORMS, OPTIMIZERS, SIZE


def fast_error(name: str, record: Record) -> Judged:
    """Judge the error of a fast recipe by the paper's, and by the minutes that a run took."""
    row = find_row(record, RowId(WITH))
    if row is None:
        return UNKNOWN
    longest = max(row["seconds"]) / 60
    told = f"{estimate(row['values'])}, {longest:.0f} minutes"
    if (plain := find_row(record, RowId(WITHOUT))) is not None:
        told += f"; without companions {estimate(plain['values'])}"
    good = row["mean"] <= row["paper"] and longest < MINUTES[name]
    return Judged(told, REPRODUCED if good else NOT_REPRODUCED)


def helped(record: Record) -> Judged:
    """Judge whether companions lower the error of the modern trunk, at every number of images."""
    found = {size: find_test(record, RowId(WITH, size=size), RowId(WITHOUT, size=size)) for size in FEW}
    told = "; ".join(f"{size:,} images: {difference(test)}" for size, test in found.items() if test)
    if not all(found.values()):
        return Judged(told, NOT_RUN)
    return Judged(told, in_all_or_some([better(test) for test in found.values()]))


def helped_at_depth(optimizer: str, norm: str, record: Record) -> Judged:
    """Judge whether companions lower the error of plain nets, at every depth at which the net without them learns."""
    told: list[str] = []
    goes: list[bool] = []
    for depth in DEPTHS:
        name = RowId(WITH, "plain", depth, norm, optimizer, size=SIZE)
        base = replace(name, method=WITHOUT)
        test = find_test(record, name, base)
        if test is None:
            return Judged("; ".join(told), NOT_RUN)
        why = unlearned(record, base)
        told.append(f"{depth} layers: {why or difference(test)}")
        goes += [] if why else [better(test)]
    return Judged("; ".join(told), in_all_or_some(goes) if goes else NOT_COMPARABLE)


INTERVAL = "the 95 % interval of the paired difference lies below 0"
RECIPE_CLAIMS = (
    *(Claim(f"The recipe {name} has DSN's error on {TABLES[FAST[name]].title}, on two CPU cores",
            f"{TABLES[FAST[name]].rows['DSN-SVM'][0]} %", name, partial(fast_error, name),
            f"mean error at or below the paper's, every run under {minutes} minutes")
      for name, minutes in MINUTES.items()),
    Claim("Companions lower the error of the net fast with few images", "", "fast-few", helped,
          f"{INTERVAL}, at {' and '.join(f'{size:,}' for size in FEW)} images; partly: at some"),
    *(Claim(f"Companions lower the error of plain nets at every depth, {words}, {optimizer}", "", "when",
            partial(helped_at_depth, optimizer, norm), f"{INTERVAL}, wherever the net without them learns; partly: at "
            f"some depths")
      for optimizer in OPTIMIZERS for norm, words in NORMS.items()),
)  # fmt: skip
