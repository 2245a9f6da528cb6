"""Verdicts follow the records by the rules: change a record, and the verdict changes. Labels say nothing."""

import copy
import json
from dataclasses import replace
from math import exp, log
from pathlib import Path

import pytest
from scipy import stats

from deepsup.errors import RunError
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
    Judged,
    compare_rows,
    estimate,
    holm_corrections,
)
from deepsup.paper.when_targets import DEPTHS

CLAIMS = (*PAPER_CLAIMS, *OWN_CLAIMS)
RESULTS = Path(__file__).parents[2] / "results"
BETTER, WORSE, UNSURE = [0.5, 0.52, 0.48], [1.9, 2.0, 2.1], [0.5, 1.2, 1.1]
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
    [(BETTER, BETTER, REPRODUCED), (BETTER, WORSE, PARTLY), (UNSURE, BETTER, PARTLY), (WORSE, UNSURE, NOT_REPRODUCED)],
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
    assert judge(what, "cifar100", many).verdict == NOT_REPRODUCED
    p = stats.ttest_1samp([log(each) for each in values], 0).pvalue
    key = RowId("DSN-Softmax"), RowId("CNN-Softmax")
    assert holm_corrections(alone)[key] == pytest.approx(p)
    assert holm_corrections(many)[key] == pytest.approx(40 * p)


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
    [([0.74, 0.75, 0.73], REPRODUCED), ([0.9, 0.91, 0.89], PARTLY), ([0.5, 1.2, 1.1], NOT_REPRODUCED)],
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
    sure = [0.5, 0.51, 0.49]
    assert judge(what, "fig2b-nin", over_sizes({250: sure, 500: [0.7] * 3, 1000: [0.9] * 3})).verdict == REPRODUCED
    assert judge(what, "fig2b-nin", over_sizes({250: sure, 500: [0.9] * 3, 1000: [0.8] * 3})).verdict == PARTLY
    assert judge(what, "fig2b-nin", over_sizes({250: [0.9] * 3, 500: sure, 1000: sure})).verdict == NOT_REPRODUCED
    assert judge(what, "fig2b-nin", over_sizes({250: sure, 500: sure})).verdict == NOT_JUDGED  # two sizes are no trend


def test_a_number_of_a_table_needs_the_papers_budget() -> None:
    record = {"preset": "cpu", "rows": [row(RowId("DSN-SVM"), 0.38, 0.36, config={"epochs": 8})]}
    answer = judge("DSN's error: MNIST", "mnist", record)
    assert (answer.verdict, "8 epochs" in answer.words) == (NOT_JUDGED, True)
    assert judge("DSN's error: MNIST", "mnist", record | {"preset": "paper"}).verdict == REPRODUCED
    worse = [row(RowId("DSN-SVM"), 0.41, 0.40, config={})]
    assert judge("DSN's error: MNIST", "mnist", {"preset": "paper", "rows": worse}).verdict == NOT_REPRODUCED


def test_faster_and_better_are_judged_by_their_intervals() -> None:
    for which, what in (("faster", "DSN converges faster, 500"), ("better", "DSN generalises better at the longest")):

        def record(*intervals: list[float] | None, which: str = which) -> dict:
            return {"rows": [], "readings": [
                row(RowId("DSN-Softmax", loss=str(place), reading=which), 0.8, interval=each)
                for place, each in enumerate(intervals)
            ]}  # fmt: skip

        assert judge(what, "budget", record([0.7, 0.9], [0.6, 0.95])).verdict == REPRODUCED
        assert judge(what, "budget", record([0.7, 0.9], [0.6, 1.05])).verdict == PARTLY
        assert judge(what, "budget", record([0.7, 1.1], None)).verdict == NOT_REPRODUCED


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
    assert judge(what, "gradient-variance", variance({1.0: [0.9, 1.1, 1.0]})).verdict == NOT_REPRODUCED
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


def test_equal_hinges_need_a_narrow_interval() -> None:
    def record(cnn: list[float], dsn: list[float], error: float = 5.0) -> dict:
        pairs = {"DSN-SVM": dsn, "CNN-SVM": cnn}
        return {"rows": [row(RowId(method, loss=loss), *(error * each for each in values))
                         for method, ratios in pairs.items()
                         for loss, values in (("hinge", ratios), ("squared_hinge", [1.0] * len(ratios)))]}  # fmt: skip

    same, wide = [1.01, 0.99, 1.02, 0.98], [1.3, 0.7, 1.2, 0.9]
    assert judge("L1 and L2", "l1-l2-nin", record(same, same)).verdict == REPRODUCED
    assert judge("L1 and L2", "l1-l2-nin", record(same, wide)).verdict == PARTLY
    assert judge("L1 and L2", "l1-l2-nin", record(wide, wide)).verdict == NOT_REPRODUCED
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
    assert judge("Feature maps", "fig3", record([45.0, 55.0, 53.0])).verdict == NOT_REPRODUCED


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
    assert "companions change it by 2.00" in answer.words
    assert judge("The recipe fast-cifar10 ", "fast-cifar10", {"rows": [supervised]}).verdict == NOT_JUDGED


def test_a_mean_is_said_with_its_interval() -> None:
    assert estimate([1.0, 2.0, 3.0]) == "2 % (95 % -0.484 to 4.48, n 3)"
    assert estimate([2.0, None], "") == "2 (n 1, no interval)"
    assert estimate([2.0, 2.0]) == "2 % (95 % 2 to 2, n 2)"


def test_a_record_without_ids_is_refused_in_one_line() -> None:
    with pytest.raises(RunError, match=r"has no valid 'id'.*run its command again"):
        judge("DSN beats its twin: MNIST", "mnist", {"rows": [{"row": "DSN-SVM", "mean": 0.4}]})
    with pytest.raises(RunError, match="has no valid 'id'"):
        RowId.of({"id": {"method": "a", "colour": "red"}})
