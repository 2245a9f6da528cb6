"""Verdicts follow the records by the rules: change a record, and the verdict changes. Labels say nothing."""

import copy
import json
from dataclasses import replace
from itertools import product
from math import exp, log
from pathlib import Path

import pytest
from scipy import stats

from deepsup.errors import RunError
from deepsup.paper.budget_curves import distances
from deepsup.paper.own_claims import OWN_CLAIMS
from deepsup.paper.paper_claims import PAPER_CLAIMS, verdict
from deepsup.paper.row_id import WITH, WITHOUT, RowId
from deepsup.paper.targets import NAMES
from deepsup.paper.verdicts import (
    CORRECTED,
    NOT_COMPARABLE,
    NOT_JUDGED,
    NOT_REPRODUCED,
    PARTLY,
    REPRODUCED,
    RULES,
    UNDECIDED,
    Judged,
    all_or_some,
    compare_rows,
    estimate,
    holm_corrections,
)
from deepsup.paper.when_targets import DEPTHS

CLAIMS = (*PAPER_CLAIMS, *OWN_CLAIMS)
RESULTS = Path(__file__).parents[2] / "results"
BETTER, WORSE, UNSURE, EQUAL = [0.5, 0.52, 0.48], [1.9, 2.0, 2.1], [0.5, 1.2, 1.1], [0.99, 1.0, 1.01]
"""Errors of three seeds over those of a twin that has 5 % in each."""


def judge(what: str, target: str, record: dict) -> Judged:
    (claim,) = [claim for claim in CLAIMS if claim.what.startswith(what) and claim.target == target]
    return verdict(claim, {target: record})


def row(name: RowId, *values: float | None, **more: object) -> dict:
    """A row whose label says nothing: claims must not need it."""
    ended = [value for value in values if value is not None]
    return {"id": name.to_dict(), "row": "?", "mean": sum(ended) / len(ended) if ended else None, "deviation": None,
            "values": list(values), "seeds": list(range(len(values))), "guessing": 90.0, **more}  # fmt: skip


def twins(*cases: tuple[RowId, list[float]], base: float = 5.0) -> dict:
    """A record of DSN rows with these ratios, their twins, and a comparison of each."""
    rows, tests = [], []
    for dsn, ratios in cases:
        cnn = replace(dsn, method=dsn.method.replace("DSN", "CNN").replace(WITH, WITHOUT))
        rows += [row(dsn, *(base * ratio for ratio in ratios)), row(cnn, *[base] * len(ratios))]
        tests.append({"ours": dsn.to_dict(), "theirs": cnn.to_dict()})
    return {"preset": "cpu", "rows": rows, "tests": tests}


def test_every_claim_has_a_rule_a_known_target_and_an_answer_without_a_record() -> None:
    for claim in CLAIMS:
        assert claim.target in NAMES
        assert claim.rule in RULES or claim.target == "theory"
        assert verdict(claim, {}) == ("", NOT_JUDGED)
        assert verdict(claim, {claim.target: {"rows": [], "preset": "cpu"}}).verdict == NOT_JUDGED


def test_labels_are_for_people_only() -> None:
    """Every label of every record blanked: no verdict changes."""
    for path in sorted(RESULTS.glob("*-cpu.json")):
        record = json.loads(path.read_text())
        blank = copy.deepcopy(record)
        for entry in (*blank["rows"], *blank.get("readings", []), *blank.get("tests", []), *blank.get("findings", [])):
            entry |= {key: "?" for key in ("row", "test", "statement") if key in entry}
        for claim in CLAIMS:
            if claim.target == record["target"]:
                verdicts = [verdict(claim, {claim.target: each}).verdict for each in (record, blank)]
                assert verdicts[0] == verdicts[1]


@pytest.mark.parametrize(
    ("softmax", "svm", "expected"),
    [
        (BETTER, BETTER, REPRODUCED),
        (BETTER, WORSE, PARTLY),
        (UNSURE, BETTER, PARTLY),
        (WORSE, UNSURE, UNDECIDED),
        (WORSE, EQUAL, NOT_REPRODUCED),
    ],
)
def test_a_claim_on_both_losses_is_partly_reproduced_by_one(
    softmax: list[float], svm: list[float], expected: str
) -> None:
    record = twins((RowId("DSN-Softmax"), softmax), (RowId("DSN-SVM"), svm))
    answer = judge("DSN beats its twin: CIFAR-10, no", "cifar10", record)
    assert answer.verdict == expected
    assert "sign test p" in answer.words


def test_a_base_at_chance_is_no_base_and_a_diverged_seed_counts_as_chance() -> None:
    case = (RowId("DSN-Softmax"), BETTER)
    assert judge("DSN beats its twin: SVHN", "svhn", twins(case, base=88.0)).verdict == NOT_COMPARABLE
    record = twins(case)
    record["rows"][1]["values"] = [None, None, 5.0]  # the twin diverges twice: 61.7 % in the mean, one seed is left out
    test = compare_rows(record, RowId("DSN-Softmax"), RowId("CNN-Softmax"))
    assert test is not None
    ours = [2.5, 2.6, 2.4]
    assert test["ratio"] == pytest.approx(exp(sum(log(a / b) for a, b in zip(ours, [90, 90, 5], strict=True)) / 3))
    record["rows"][1]["values"] = [None, None, None]
    assert judge("DSN beats its twin: SVHN", "svhn", record).verdict == NOT_COMPARABLE
    record = twins(case)
    record["rows"][1]["chosen_on"] = {"further": "looked further: no candidate learned"}
    assert judge("DSN beats its twin: SVHN", "svhn", record).verdict == NOT_COMPARABLE


def test_seeds_are_paired_by_their_number() -> None:
    record = twins((RowId("DSN-Softmax"), [0.5, 0.6, 0.7]))
    record["rows"][1] |= {"seeds": [2, 1], "values": [5.0, 10.0]}
    test = compare_rows(record, RowId("DSN-Softmax"), RowId("CNN-Softmax"))
    assert test is not None
    assert (test["pairs"], test["ratio"]) == (2, pytest.approx((3.5 / 5 * 3.0 / 10) ** 0.5))


def test_many_comparisons_ask_more_of_each() -> None:
    """The same three seeds: enough for one comparison, not for one of forty; p by scipy, the correction by hand."""
    values = [0.7, 0.8, 0.75]
    alone = twins((RowId("DSN-Softmax"), values))
    many = twins((RowId("DSN-Softmax"), values), *((RowId("DSN-SVM", size=size), UNSURE) for size in range(1, 40)))
    what = "DSN beats its twin: CIFAR-100"
    assert judge(what, "cifar100", alone).verdict == REPRODUCED
    answer = judge(what, "cifar100", many)
    assert answer.verdict == UNDECIDED
    assert "not after the correction" in answer.words
    p = stats.ttest_1samp([log(each) for each in values], 0).pvalue
    key = RowId("DSN-Softmax"), RowId("CNN-Softmax")
    assert holm_corrections(alone)[key] == pytest.approx(p)
    assert holm_corrections(many)[key] == pytest.approx(40 * p)
    assert holm_corrections({**alone, "unrun": 39})[key] == pytest.approx(40 * p)  # planned, not run: p 1


def test_one_seed_and_a_wide_interval_decide_nothing() -> None:
    what = "DSN beats its twin: CIFAR-100"
    one = judge(what, "cifar100", twins((RowId("DSN-Softmax"), [0.5])))
    assert one == ("softmax: 0.50 (one seed)", UNDECIDED)
    assert judge(what, "cifar100", twins((RowId("DSN-Softmax"), UNSURE))).verdict == UNDECIDED
    assert judge(what, "cifar100", twins((RowId("DSN-Softmax"), EQUAL))).verdict == NOT_REPRODUCED
    assert judge(what, "cifar100", twins((RowId("DSN-Softmax"), WORSE))).verdict == NOT_REPRODUCED
    with pytest.raises(AssertionError):
        all_or_some([])  # all of none is true: no claim may be reproduced by that


def test_where_a_seed_guesses_the_signs_count_too() -> None:
    """Nine seeds gain a fifth, one gains all: Student's t sees nothing, the signs do."""
    what, values = "DSN beats its twin: CIFAR-100", [0.8, 0.81, 0.79] * 3 + [0.8]
    record = twins((RowId("DSN-Softmax"), values))
    record["rows"][1]["values"][9] = None
    answer = judge(what, "cifar100", record)
    assert answer.verdict == REPRODUCED
    assert "lower in 10 of 10, sign test p 0.002" in answer.words
    key = RowId("DSN-Softmax"), RowId("CNN-Softmax")
    assert holm_corrections(record)[key] == pytest.approx(2 * 2 / 2**10)
    logs = [log(ours / theirs) for ours, theirs in zip(record["rows"][0]["values"], [5.0] * 9 + [90.0], strict=True)]
    assert stats.ttest_1samp(logs, 0).pvalue > 0.05
    for entry in record["rows"]:  # with five seeds, signs alone cannot decide
        entry |= {"values": entry["values"][5:], "seeds": [0, 1, 2, 3, 4]}
    assert judge(what, "cifar100", record).verdict == UNDECIDED
    nan = twins((RowId("DSN-Softmax"), [0.8, 0.81, float("nan")]))
    assert judge(what, "cifar100", nan).verdict == UNDECIDED  # an error that is no number is none


def test_what_is_not_comparable_says_both_errors() -> None:
    record = twins((RowId("DSN-Softmax"), [0.1] * 3), base=88.0)
    assert judge("DSN beats its twin: SVHN", "svhn", record).words == (
        "softmax: ? did not learn (88.0 % error), ? has 8.8 %"
    )


def at_500(form: str, ratios: list[float]) -> dict:
    dsn = RowId("DSN-SVM", "nin-mnist", loss=form, size=500, width=1.0)
    record = twins((dsn, ratios))
    cnn = replace(dsn, method="CNN-Softmax", loss="")
    record["rows"].append(row(cnn, *[5.0] * len(ratios)))
    record["tests"].append({"ours": dsn.to_dict(), "theirs": cnn.to_dict()})
    gain = 100 * (1 - sum(ratios) / len(ratios))
    record["readings"] = [row(replace(dsn, reading="gain"), gain, base=cnn.to_dict())]
    return record


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [([0.74, 0.75, 0.73], REPRODUCED), ([0.9, 0.91, 0.89], PARTLY), (UNSURE, UNDECIDED), (WORSE, NOT_REPRODUCED)],
)
def test_the_gain_at_500_needs_both_size_and_certainty(ratios: list[float], expected: str) -> None:
    for form, other in (("one-vs-rest", "multiclass"), ("multiclass", "one-vs-rest")):
        record = at_500(form, ratios)
        assert judge(f"DSN-SVM ({form}) beats", "fig2b-nin", record).verdict == expected
        assert judge(f"DSN-SVM ({other}) beats", "fig2b-nin", record).verdict == NOT_JUDGED


def over_sizes(ratios: dict[int, list[float]]) -> dict:
    rows, tests = [], []
    for size, each in ratios.items():
        dsn = RowId("DSN-SVM", "nin-mnist", loss="one-vs-rest", size=size, width=0.5)
        cnn = replace(dsn, method="CNN-Softmax", loss="")
        rows += [row(dsn, *(5 * ratio for ratio in each)), row(cnn, 5, 5, 5)]
        tests.append({"ours": dsn.to_dict(), "theirs": cnn.to_dict()})
    return {"rows": rows, "tests": tests}


def test_the_gain_grows_if_every_smaller_size_gains_more() -> None:
    what = "The gain grows"
    sure, noise = [0.5, 0.51, 0.49], [0.99, 1.0, 1.01]

    def about(ratio: float) -> list[float]:
        return [ratio * each for each in noise]

    def verdicts(ratios: dict[int, list[float]]) -> str:
        return judge(what, "fig2b-nin", over_sizes(ratios)).verdict

    assert verdicts({250: sure, 500: about(0.7), 1000: about(0.9)}) == REPRODUCED
    assert verdicts({250: sure, 500: about(0.51), 1000: [0.3, 0.8, 0.7]}) == PARTLY  # a gain, its growth not certain
    assert verdicts({250: about(0.9), 500: sure, 1000: sure}) == NOT_REPRODUCED
    assert verdicts({250: sure, 500: sure}) == NOT_JUDGED  # two sizes are no trend
    words = judge(what, "fig2b-nin", over_sizes({250: [0.5] * 3, 500: [0.6] * 3, 1000: [0.72] * 3})).words
    assert "250 digits 0.50, 500 digits 0.60, 1,000 digits 0.72; 1.20 times for twice the digits" in words


def test_a_number_of_a_table_needs_the_papers_budget() -> None:
    record = {"preset": "cpu", "rows": [row(RowId("DSN-SVM"), 0.38, 0.36, config={"epochs": 8})]}
    answer = judge("DSN's error: MNIST", "mnist", record)
    assert (answer.verdict, "8 epochs" in answer.words) == (NOT_JUDGED, True)
    assert judge("DSN's error: MNIST", "mnist", record | {"preset": "paper"}).verdict == REPRODUCED
    worse = [row(RowId("DSN-SVM"), 0.41, 0.40, config={})]
    assert judge("DSN's error: MNIST", "mnist", {"preset": "paper", "rows": worse}).verdict == NOT_REPRODUCED


BUDGETS = (15, 30, 60, 120, 240)


def over_budgets(speed: float, *losses: str, budgets: tuple[int, ...] = BUDGETS, base: float = 300.0) -> dict:
    """Twins whose error falls with the epochs; with companions it falls as if there were more of them."""
    rows, tests = [], []
    for loss, epochs in product(losses, budgets):
        dsn = RowId("DSN-SVM" if loss else "DSN-Softmax", loss=loss, epochs=epochs)
        cnn = replace(dsn, method=dsn.method.replace("DSN", "CNN"))
        for name, faster in ((dsn, speed), (cnn, 1.0)):
            rows.append(row(name, *(base / (epochs * faster) * noise for noise in (0.98, 1.0, 1.01, 1.02, 0.99))))
        rows[-1]["values"] = [
            value * noise for value, noise in zip(rows[-1]["values"], (1, 1, 1.01, 1, 0.99), strict=True)
        ]
        tests.append({"ours": dsn.to_dict(), "theirs": cnn.to_dict()})
    return {"preset": "cpu", "rows": rows, "tests": tests,
            "readings": distances({RowId.of(each): each for each in rows})["rows"]}  # fmt: skip


def test_faster_and_better_are_judged_by_the_curves() -> None:
    what = ("DSN converges faster, 500", "DSN generalises better at the longest budget, 500")

    def verdicts(record: dict) -> list[str]:
        return [judge(each, "budget", record).verdict for each in what]

    assert verdicts(over_budgets(2.0, "", "one-vs-rest")) == [REPRODUCED] * 2
    assert verdicts(over_budgets(1.0, "")) == [NOT_REPRODUCED] * 2
    assert verdicts(over_budgets(0.5, "")) == [NOT_REPRODUCED] * 2
    part = over_budgets(2.0, "", budgets=BUDGETS[:3])
    assert verdicts(part) == [REPRODUCED, NOT_JUDGED]  # the longest budget has not run
    assert verdicts(over_budgets(2.0, "", budgets=BUDGETS[:1])) == [NOT_JUDGED] * 2
    words = [judge(each, "budget", over_budgets(2.0, "")).words for each in what]
    assert words[0].startswith("softmax: the twin's error in 0.50 of the epochs (95 % 0.50 to 0.50)")
    assert words[1].startswith("at 240 epochs, softmax: 0.50 (95 % ")


def test_a_twin_that_learns_at_no_budget_is_no_twin() -> None:
    record = over_budgets(2.0, "", "one-vs-rest")
    for each in record["rows"]:
        if each["id"]["method"] == "CNN-SVM":
            each["values"] = [89.0] * 5
    record["readings"] = distances({RowId.of(each): each for each in record["rows"]})["rows"]
    faster = judge("DSN converges faster, 500", "budget", record)
    assert faster.verdict == REPRODUCED
    assert "one-vs-rest hinge: the curves have no error in common" in faster.words
    assert (
        "did not learn (89.0 % error)"
        in judge("DSN generalises better at the longest budget, 500", "budget", record).words
    )


def variance(ratios: dict[float, list[float]], error: float = 50.0) -> dict:
    cnn = RowId("CNN-Softmax")
    return {"rows": [row(cnn, error)], "readings": [
        row(RowId("DSN-Softmax", alpha=alpha, reading="variance", layer="conv1"), *each, base=cnn.to_dict())
        for alpha, each in ratios.items()
    ]}  # fmt: skip


def test_the_variance_is_reproduced_only_if_it_does_not_depend_on_alpha() -> None:
    what, near = "The first convolution's", [4.0, 4.5, 5.0]
    assert judge(what, "gradient-variance", variance({1.0: near, 0.3: near})).verdict == REPRODUCED
    assert judge(what, "gradient-variance", variance({1.0: near, 0.3: [1.5, 1.6, 1.7]})).verdict == PARTLY
    assert judge(what, "gradient-variance", variance({1.0: [0.9, 1.0, 1.1]})).verdict == UNDECIDED
    assert judge(what, "gradient-variance", variance({1.0: [0.99, 1.0, 1.01]})).verdict == NOT_REPRODUCED
    assert judge(what, "gradient-variance", variance({1.0: near, 0.3: []})).verdict == REPRODUCED  # that one diverged
    assert judge(what, "gradient-variance", variance({1.0: [4.5]})).verdict == UNDECIDED
    assert judge(what, "gradient-variance", variance({1.0: near}, error=89.0)).verdict == NOT_COMPARABLE


def test_robustness_is_relative_to_the_methods_own_best() -> None:
    """The lower error does not count, only how little it rises away from the best rate."""

    def grid(steep: float, best: float) -> list[tuple[float, list[float]]]:
        return [(lr, [best * steep ** abs(log(lr)) * noise for noise in (0.99, 1.0, 1.01)]) for lr in (0.1, 1.0, 10.0)]

    def record(dsn: float, cnn: float, best: float = 5.0) -> dict:
        return {"rows": [row(RowId(f"{kind}-Softmax", lr=lr), *values) for kind, steep, low in
                         (("DSN", dsn, best), ("CNN", cnn, 5.0)) for lr, values in grid(steep, low)]}  # fmt: skip

    noisy = record(1.2, 1.5)
    noisy["rows"][0]["values"][0] *= 1.001  # equal differences have no spread
    assert judge("DSN is more robust", "robustness-nin", noisy).verdict == REPRODUCED
    assert judge("DSN is more robust", "robustness-nin", record(1.5, 1.2, best=1.0)).verdict == NOT_REPRODUCED
    lacking = record(1.2, 1.5)
    lacking["rows"][0] |= {"values": [5.0], "seeds": [0]}  # the other seeds of this rate are not trained yet
    assert judge("DSN is more robust", "robustness-nin", lacking).verdict == UNDECIDED
    del lacking["rows"][0]  # two rates are left that both have
    assert judge("DSN is more robust", "robustness-nin", lacking).verdict == NOT_JUDGED
    level = record(1.0, 1.0, best=88.0)  # a net that learns nowhere is the same everywhere
    assert judge("DSN is more robust", "robustness-nin", level).verdict == NOT_COMPARABLE


def test_equal_hinges_need_a_narrow_interval() -> None:
    def record(cnn: list[float], dsn: list[float], error: float = 5.0) -> dict:
        pairs = {"DSN-SVM": dsn, "CNN-SVM": cnn}
        return {"rows": [row(RowId(method, loss=loss), *(error * each for each in values))
                         for method, ratios in pairs.items()
                         for loss, values in (("hinge", ratios), ("squared_hinge", [1.0] * len(ratios)))]}  # fmt: skip

    same, wide = [1.01, 0.99, 1.02, 0.98], [1.3, 0.7, 1.2, 0.9]
    assert judge("L1 and L2", "l1-l2-nin", record(same, same)).verdict == REPRODUCED
    assert judge("L1 and L2", "l1-l2-nin", record(same, wide)).verdict == PARTLY
    assert judge("L1 and L2", "l1-l2-nin", record(wide, wide)).verdict == UNDECIDED
    assert judge("L1 and L2", "l1-l2-nin", record([1.3, 1.31], [1.3, 1.31])).verdict == NOT_REPRODUCED
    lacking = record(same, same)
    lacking["rows"][0] |= {"values": [5.0], "seeds": [0]}
    assert judge("L1 and L2", "l1-l2-nin", lacking).verdict == PARTLY
    assert judge("L1 and L2", "l1-l2-nin", record(same, same, error=85.0)).verdict == NOT_COMPARABLE


def test_joint_training_has_to_beat_greedy_nets_with_more_epochs_too() -> None:
    dsn, short, long = RowId("DSN-Softmax"), RowId("greedy"), RowId("greedy", epochs=120)
    rows = [row(dsn, 4.0, 4.1, 3.9), row(short, 5.0, 5.0, 5.0), row(long, 4.0, 4.0, 4.1)]
    tests = [{"ours": dsn.to_dict(), "theirs": each.to_dict()} for each in (short, long)]
    assert judge("Joint training", "pretraining-nin", {"rows": rows, "tests": tests}).verdict == PARTLY
    rows[2] = row(long, 5.0, 5.0, 5.0)
    assert judge("Joint training", "pretraining-nin", {"rows": rows, "tests": tests}).verdict == REPRODUCED


def test_both_nets_have_to_fit_the_digits() -> None:
    record = twins((RowId("DSN-SVM"), BETTER))
    record["readings"] = [row(RowId(f"{kind}-SVM", reading="training error"), 0.1) for kind in ("DSN", "CNN")]
    assert judge("Both fit", "fig2c-nin", record).verdict == REPRODUCED
    record["readings"][1]["mean"] = 1.0
    assert judge("Both fit", "fig2c-nin", record).verdict == PARTLY


def test_feature_maps_are_judged_by_probes() -> None:
    def record(dsn: list[float]) -> dict:
        probes = {RowId("CNN-Softmax"): [50.0, 51.0, 52.0], RowId("DSN-Softmax", alpha=1.0): dsn}
        return {"rows": [row(RowId("CNN-Softmax"), 50.0)], "readings": [
            row(replace(name, reading="probe", layer="conv1"), *values) for name, values in probes.items()
        ]}  # fmt: skip

    assert judge("Feature maps", "fig3", record([45.0, 46.0, 46.5])).verdict == REPRODUCED
    assert judge("Feature maps", "fig3", record([45.0, 55.0, 53.0])).verdict == UNDECIDED
    assert judge("Feature maps", "fig3", record([50.0, 51.5, 52.0])).verdict == NOT_REPRODUCED
    assert judge("Feature maps", "fig3", record([45.0, 46.0])).verdict == NOT_JUDGED  # a seed diverged


def test_a_lemma_that_holds_after_a_correction_is_corrected() -> None:
    def judged(name: str, *findings: tuple[str, str]) -> str:
        entries = [{"id": key, "statement": "?", "verdict": verdict_} for key, verdict_ in findings]
        return judge(name, "theory", {"rows": [], "findings": entries}).verdict

    assert judged("Lemma 2", ("lemma-2", "holds as printed")) == REPRODUCED
    assert judged("Lemma 2", ("lemma-2", "holds after a correction")) == CORRECTED
    assert judged("Lemma 2", ("lemma-2", "does not hold as printed")) == NOT_REPRODUCED
    broken = ("lemma-3-proof", "does not hold as printed")
    assert judged("Lemma 3", ("lemma-3", "holds after a correction"), broken) == CORRECTED
    steps = ("theorem-1-known-step", "holds as printed"), ("theorem-1-plain-step", "does not hold as printed")
    assert judged("Theorem 1", *steps) == NOT_REPRODUCED
    assert judged("Theorem 1", steps[0]) == NOT_JUDGED


def test_plain_nets_are_judged_where_the_base_learns() -> None:
    what = "Default companions lower the error of plain nets at every depth, no norm layers, sgd"

    def record(ratios: list[list[float]], bases: list[float]) -> dict:
        parts = [twins((RowId(WITH, "plain", depth, "none", "sgd", size=500), each), base=base)
                 for depth, each, base in zip(DEPTHS, ratios, bases, strict=True)]  # fmt: skip
        return {key: [each for part in parts for each in part[key]] for key in ("rows", "tests")}

    assert judge(what, "when", record([BETTER] * 4, [5] * 4)).verdict == REPRODUCED
    assert judge(what, "when", record([BETTER, WORSE, WORSE, WORSE], [5] * 4)).verdict == PARTLY
    assert judge(what, "when", record([WORSE, WORSE, BETTER, BETTER], [5, 5, 90, 90])).verdict == NOT_REPRODUCED
    assert judge(what, "when", record([BETTER] * 4, [90] * 4)).verdict == NOT_COMPARABLE


@pytest.mark.parametrize(
    ("error", "minutes", "expected"),
    [(8.0, 12.0, REPRODUCED), (8.22, 19.9, REPRODUCED), (8.23, 12.0, NOT_REPRODUCED), (8.0, 20.5, NOT_REPRODUCED)],
)
def test_a_fast_recipe_must_keep_the_error_and_the_minutes(error: float, minutes: float, expected: str) -> None:
    """Of the recipe as it stands, which has no companions."""
    bare = row(RowId(WITHOUT), error, error, seconds=[60.0, minutes * 60])
    supervised = row(RowId(WITH), 2 * error, 2 * error, seconds=[60.0, 60.0])
    answer = judge("The recipe fast-cifar10 ", "fast-cifar10", {"rows": [bare, supervised]})
    assert answer.verdict == expected
    assert "ratio with companions 2.00 (95 %" in answer.words
    assert judge("The recipe fast-cifar10 ", "fast-cifar10", {"rows": [supervised]}).verdict == NOT_JUDGED


def test_a_mean_is_said_with_its_interval() -> None:
    assert estimate([1.0, 2.0, 3.0]) == "2 % (95 % 0 to 4.48, n 3)"
    assert estimate([2.0, None], "") == "2 (n 1, no interval)"
    assert estimate([2.0, 2.0]) == "2 % (95 % 2 to 2, n 2)"


def test_a_record_without_ids_is_refused_in_one_line() -> None:
    with pytest.raises(RunError, match=r"has no valid 'id'.*run its command again"):
        judge("DSN beats its twin: MNIST", "mnist", {"rows": [{"row": "DSN-SVM", "mean": 0.4}]})
    with pytest.raises(RunError, match="has no valid 'id'"):
        RowId.of({"id": {"method": "a", "colour": "red"}})
