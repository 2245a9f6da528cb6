"""The paper's claims, one by one: each with the target whose record answers, the judge and the rule."""

from collections.abc import Mapping
from functools import partial

from deepsup.paper.claim_rules import (
    LOSSES,
    Cases,
    faster,
    feature_maps,
    gain,
    generalisation,
    helped,
    hinges,
    joint,
    robust,
    smaller_is_better,
    statement,
    table_error,
    table_order,
    variance,
)
from deepsup.paper.printed import GAIN_AT_500, TABLES, VARIANCE_RATIO
from deepsup.paper.row_id import COMPANIONS, RowId
from deepsup.paper.verdicts import UNKNOWN, Claim, Judged, Record

HALF = "NIN (half width on a CPU)"
NETS = {f"{HALF}, flat companions": "-nin", "on a LeNet": ""}
"""The nets of Figs. 2a and 2c -> what the names of their targets end with."""
WEAK_NETS = {f"{HALF}, weak companions": "-nin", "on a LeNet": ""}
"""The same for the other studies on digits."""
INTERVAL = "the 95 % interval of the paired difference lies below 0"
GAIN_RULE = f"{INTERVAL}; partly if the gain is below three quarters of the paper's"
GROWS_RULE = (
    "the gain falls from each size to the next larger one, and at the smallest size its interval leaves out 0; partly "
    "if it is only largest there"
)
WHOSE = {"": "default companions", **COMPANIONS}
"""Companions of a row on NIN -> how a claim says it."""
RATE_GRIDS = {each: WHOSE[each] for each in ("", "flat")}


def beside_cnn(network: str = "", size: int | None = None, companions: str = "") -> Cases:
    """Return, for each loss, the rows of DSN and CNN."""
    return {
        loss: (
            RowId(f"DSN-{loss}", network, companions=companions, size=size),
            RowId(f"CNN-{loss}", network, size=size),
        )
        for loss in LOSSES
    }


BESIDE_NIN: Cases = {loss: (RowId(f"DSN-{loss}"), RowId("NIN")) for loss in LOSSES}
LEMMAS = {
    "Lemma 1": ("lemma-1",),
    "Lemma 2": ("lemma-2",),
    "Lemma 3": ("lemma-3",),
    "Theorem 1": ("theorem-1-known-step", "theorem-1-plain-step"),
}
CLAIMS = (
    *(Claim(f"DSN on {table.title}", f"{table.rows['DSN-SVM'][0]} %", name, partial(table_error, name),
            "mean error of a DSN-SVM trained on all images at or below the paper's") for name, table in TABLES.items()),
    *(Claim(f"DSN has the lowest error of the table: {table.title}", "yes", name, partial(table_order, name),
            "all rows, trained on all images") for name, table in TABLES.items()),
    *(Claim(f"DSN beats NIN under softmax and under SVM, 5,000 images, half width: {table.title}", "yes", name,
            partial(helped, BESIDE_NIN), f"{INTERVAL}, for both; partly: for one") for name, table in TABLES.items()),
    *(Claim(f"DSN beats CNN under softmax and under SVM (Fig. 2a), {net}", "yes", f"fig2a{suffix}",
            partial(helped, beside_cnn()),
            f"{INTERVAL}, for both; partly: for one") for net, suffix in NETS.items()),
    *(Claim(f"DSN beats CNN under softmax and under SVM with 500 digits (Fig. 2b), NIN, {whose}", "yes",
            "fig2b-nin", partial(helped, beside_cnn("nin-mnist", 500, companions)),
            f"{INTERVAL}, for both; partly: for one")
      for companions, whose in WHOSE.items()),
    *(Claim(f"DSN-SVM is better than CNN-Softmax with 500 digits (Fig. 2b), NIN, {whose}",
            f"{GAIN_AT_500:g} %", "fig2b-nin", partial(gain, "nin-mnist", companions), GAIN_RULE)
      for companions, whose in WHOSE.items()),
    Claim("DSN-SVM is better than CNN-Softmax with 500 digits, on a LeNet", f"{GAIN_AT_500:g} %", "fig2b",
          partial(gain, "cnn", ""), GAIN_RULE),
    Claim("The gain grows as the training set shrinks (Fig. 2b), NIN", "yes", "fig2b-nin",
          partial(smaller_is_better, "nin-mnist"), GROWS_RULE),
    Claim("The gain grows as the training set shrinks, on a LeNet", "yes", "fig2b",
          partial(smaller_is_better, "cnn"), GROWS_RULE),
    *(Claim(f"Both fit the training digits, DSN generalises better (Fig. 2c), {net}", "yes", f"fig2c{suffix}",
            generalisation, f"training errors below 0.5 %, and {INTERVAL}; partly: one of them")
      for net, suffix in NETS.items()),
    *(Claim(f"DSN converges faster (Fig. 2a), {net}", "yes", f"fig2a{suffix}", faster,
            "fewer epochs to within 10 % of the CNN's last test error: the 95 % interval lies below 0, for both "
            "losses; partly: for one") for net, suffix in NETS.items()),
    Claim("Feature maps of the first convolution are more discriminative (Fig. 3)", "yes", "fig3", feature_maps,
          "a linear probe on DSN's errs less: the 95 % interval of the paired difference lies below 0; with one seed "
          "partly at best"),
    Claim("The first convolution's gradient varies more in DSN", f"{VARIANCE_RATIO} times", "gradient-variance",
          variance, "within a factor 1.5 of the paper's; partly: above 1"),
    *(Claim(f"DSN is more robust to the learning rate, {net}", "yes", target, partial(robust, companions),
            "mean error over the grid, a diverged run counts 90 %: the 95 % interval of the paired difference lies "
            "below 0, for both losses; partly: for one")
      for net, target, companions in (
          *((f"{HALF}, {whose}", "robustness-nin", each)
            for each, whose in RATE_GRIDS.items()),
          ("on a LeNet", "robustness", ""))),
    *(Claim(f"Joint training is better than greedy pre-training, {net}", "yes", f"pretraining{suffix}", joint, INTERVAL)
      for net, suffix in WEAK_NETS.items()),
    *(Claim(f"L1 and L2 hinge differ negligibly, {net}", "yes", f"l1-l2{suffix}", hinges,
            "equivalence: the 90 % interval of the paired difference lies within 10 % of the error, with companions "
            "and without; partly: for one") for net, suffix in WEAK_NETS.items()),
    *(Claim(name, "proved", "theory", partial(statement, names),
            "holds as printed, in algebra and simulation; corrected: holds after a correction")
      for name, names in LEMMAS.items()),
)  # fmt: skip


def verdict(claim: Claim, records: Mapping[str, Record]) -> Judged:
    """Return what the record of a claim's target says of it."""
    record = records.get(claim.target)
    return claim.judge(record) if record is not None else UNKNOWN
