"""RESULTS.md is what the records say, and verdicts follow the records: change a record, and they change."""

import copy
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from scipy import stats

from deepsup.errors import RunError
from deepsup.paper.claims import CLAIMS, verdict
from deepsup.paper.fast_targets import FEW, WITH, WITHOUT
from deepsup.paper.provenance import chosen_words
from deepsup.paper.recipe_claims import RECIPE_CLAIMS, fast_error
from deepsup.paper.row_id import RowId
from deepsup.paper.summary import BEGIN, END, keep, section, settings_text, summarise
from deepsup.paper.targets import NAMES
from deepsup.paper.verdicts import (
    CORRECTED,
    NOT_COMPARABLE,
    NOT_REPRODUCED,
    NOT_RUN,
    PARTLY,
    REPRODUCED,
    estimate,
)
from deepsup.paper.when_targets import DEPTHS

PROJECT = Path(__file__).parents[2]


def claim_verdict(what: str, target: str, record: dict) -> str:
    claims = (*CLAIMS, *RECIPE_CLAIMS)
    (claim,) = [claim for claim in claims if claim.what.startswith(what) and claim.target == target]
    return verdict(claim, {target: record})[1]


def number(name: RowId, value: float, **more: object) -> dict:
    """A row whose label says nothing: claims must not need it."""
    row = {"id": name.to_dict(), "row": "?", "mean": value, "values": [value], "deviation": None, "guessing": 90.0}
    return row | more


def pair(ours: RowId, theirs: RowId, low: float, high: float) -> dict:
    ids = {"ours": ours.to_dict(), "theirs": theirs.to_dict()}
    return {**ids, "test": "?", "mean": (low + high) / 2, "interval": [low, high], "p": 0.01, "n": 5}


def told(rows: list[dict], **more: list[dict]) -> str:
    """What RESULTS.md says of a record."""
    where = dict.fromkeys(("cores", "machine", "cpu", "python", "torch", "deepsup"), "?")
    record = {"target": "x", "preset": "cpu", "title": "?", "command": "?", "environment": where, "rows": rows}
    return section(record | more, Path())


def test_results_md_and_the_page_on_when_are_what_the_records_say(tmp_path: Path) -> None:
    shutil.copytree(PROJECT / "results", tmp_path / "results")
    (tmp_path / "docs").mkdir()
    shutil.copy(PROJECT / "docs" / "when.md", tmp_path / "docs")
    summarise(tmp_path / "results")
    assert (tmp_path / "RESULTS.md").read_text() == (PROJECT / "RESULTS.md").read_text()
    assert (tmp_path / "docs" / "when.md").read_text() == (PROJECT / "docs" / "when.md").read_text()


def test_a_page_has_a_block_and_only_that_changes(tmp_path: Path) -> None:
    shutil.copytree(PROJECT / "results", tmp_path / "results")
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "when.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    summarise(tmp_path / "results")
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n**When companions help")
    assert text.endswith(f"{END}\nafter\n")
    assert "\nold\n" not in text


def test_records_name_no_machine() -> None:
    for path in (PROJECT / "results").glob("*.json"):
        text = path.read_text()
        assert "/work" not in text, path
        assert "/tmp" not in text, path
        assert "/home" not in text, path


def test_every_claim_has_a_verdict_and_a_known_target() -> None:
    for claim in (*CLAIMS, *RECIPE_CLAIMS):
        assert claim.target in NAMES
        assert verdict(claim, {}) == ("", NOT_RUN)
        assert verdict(claim, {claim.target: {"rows": []}}).verdict == NOT_RUN


def test_labels_are_for_people_only() -> None:
    """Every label of every record blanked: no verdict changes."""
    for path in sorted((PROJECT / "results").glob("*-cpu.json")):
        record = json.loads(path.read_text())
        blank = copy.deepcopy(record)
        for entry in (*blank["rows"], *blank.get("readings", []), *blank.get("tests", []), *blank.get("findings", [])):
            entry |= {key: "?" for key in ("row", "test", "statement") if key in entry}
        for claim in (*CLAIMS, *RECIPE_CLAIMS):
            if claim.target == record["target"]:
                records = {claim.target: record}, {claim.target: blank}
                assert verdict(claim, records[0]).verdict == verdict(claim, records[1]).verdict


@pytest.mark.parametrize("path", sorted((PROJECT / "results").glob("*-cpu.json")), ids=lambda path: path.stem)
def test_ids_are_unique_and_tests_point_to_rows(path: Path) -> None:
    record = json.loads(path.read_text())
    if record["target"] == "theory":
        assert len({finding["id"] for finding in record["findings"]}) == len(record["findings"])
        return
    rows = {RowId.of(row): row for row in record["rows"]}
    assert len(rows) == len(record["rows"])
    assert len({RowId.of(reading) for reading in record["readings"]}) == len(record["readings"])
    for test in record["tests"]:  # the recorded difference is that of the rows its ids name
        ours, theirs = (rows[RowId.of(test, key)]["values"] for key in ("ours", "theirs"))
        pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if a is not None and b is not None]
        assert test["mean"] == pytest.approx(sum(a - b for a, b in pairs) / len(pairs))
        assert test["n"] == len(pairs)
    for name, row in rows.items():
        if name.size is not None:
            assert row["config"]["train_size"] == name.size
        if name.lr is not None:
            assert row["config"]["lr"] == name.lr
        if name.loss:
            assert row["config"]["loss"] == name.loss
        if name.method.startswith(("CNN", "without")):
            assert row["config"]["taps"] == ["none"]
        assert row["chosen_on"]["candidates"] == max(1, len(row["search"]))


def gains(
    network: str, values: dict[int, float], interval: tuple[float, float] = (-2, -1), companions: str = ""
) -> dict:
    dsn = {size: RowId("DSN-SVM", network, companions=companions, size=size) for size in values}
    cnn = {size: RowId("CNN-Softmax", network, size=size) for size in values}
    return {
        "rows": [number(cnn[size], 5.0) for size in values],
        "readings": [
            number(replace(dsn[size], reading="gain"), value, base=cnn[size].to_dict())
            for size, value in values.items()
        ],
        "tests": [pair(dsn[size], cnn[size], *interval) for size in values],
    }


BETTER = "DSN-SVM is better than CNN-Softmax with 500 digits"


def test_the_gain_of_the_papers_companions_is_a_claim_of_its_own() -> None:
    papers, ours = (f"{BETTER} (Fig. 2b), NIN, {whose} companions" for whose in ("flat", "default"))
    record = gains("nin-mnist", {500: 26.0}, companions="flat")
    assert (claim_verdict(papers, "fig2b-nin", record), claim_verdict(ours, "fig2b-nin", record)) == (
        REPRODUCED,
        NOT_RUN,
    )
    both = "DSN beats CNN under softmax and under SVM with 500 digits (Fig. 2b), NIN, flat companions"
    names = {loss: RowId(f"CNN-{loss}", "nin-mnist", size=500) for loss in ("Softmax", "SVM")}
    tests = [pair(replace(cnn, method=f"DSN-{loss}", companions="flat"), cnn, -2, {"Softmax": -1, "SVM": 1}[loss])
             for loss, cnn in names.items()]  # fmt: skip
    record = {"rows": [number(cnn, 5.0) for cnn in names.values()], "tests": tests}
    assert claim_verdict(both, "fig2b-nin", record) == PARTLY
    record["rows"][1]["mean"] = 88.0  # the SVM guesses: softmax alone is judged
    assert claim_verdict(both, "fig2b-nin", record) == REPRODUCED
    assert claim_verdict(both, "fig2b-nin", record | {"tests": tests[:1]}) == NOT_RUN


@pytest.mark.parametrize(
    ("network", "target", "better"),
    [("nin-mnist", "fig2b-nin", f"{BETTER} (Fig. 2b), NIN, default companions"), ("cnn", "fig2b", BETTER)],
)
def test_the_gain_at_500_needs_both_size_and_certainty(network: str, target: str, better: str) -> None:
    record = gains(network, {500: 26.0, 1000: 10.0})
    assert claim_verdict(better, target, record) == REPRODUCED
    assert claim_verdict("The gain grows", target, record) == REPRODUCED
    assert claim_verdict(better, target, gains(network, {500: 9.0, 1000: 10.0})) == PARTLY
    assert claim_verdict("The gain grows", target, gains(network, {500: 9.0, 1000: 10.0})) == NOT_REPRODUCED
    assert claim_verdict("The gain grows", target, gains(network, {500: 20.0, 1000: 1.0, 2000: 5.0})) == PARTLY
    unsure = gains(network, {500: 26.0, 1000: 10.0}, (-2, 0.1))
    assert claim_verdict(better, target, unsure) == NOT_REPRODUCED
    assert claim_verdict("The gain grows", target, unsure) == NOT_REPRODUCED
    other = gains("cnn" if network == "nin-mnist" else "nin-mnist", {500: 26.0, 1000: 10.0})
    assert claim_verdict(better, target, other) == NOT_RUN  # another net's rows do not answer
    record["rows"][0]["mean"] = 88.8  # it guesses: no base for a gain
    assert claim_verdict(better, target, record) == NOT_COMPARABLE
    assert claim_verdict("The gain grows", target, record) == NOT_RUN  # one size is left


def test_a_ratio_over_a_base_at_chance_is_no_evidence() -> None:
    ratio = {
        "rows": [number(RowId("CNN-SVM"), 50.0)],
        "readings": [number(RowId("DSN-SVM", reading="variance", layer="conv1"), 2.45e6)],
    }
    assert claim_verdict("The first convolution's", "gradient-variance", ratio) == PARTLY
    ratio["rows"][0]["chosen_on"] = {"further": "looked further: no candidate learned"}
    assert claim_verdict("The first convolution's", "gradient-variance", ratio) == NOT_COMPARABLE
    ratio["rows"][0]["chosen_on"] = {"further": "looked further: a candidate learned"}
    assert claim_verdict("The first convolution's", "gradient-variance", ratio) == PARTLY
    ratio["rows"][0]["mean"] = 90.0
    assert claim_verdict("The first convolution's", "gradient-variance", ratio) == NOT_COMPARABLE


@pytest.mark.parametrize(("error", "learned"), [(9.0, True), (88.0, False)])
def test_a_base_at_chance_is_never_a_number(error: float, learned: bool) -> None:
    base, ours = RowId("CNN-SVM"), RowId("DSN-SVM")
    text = told(
        [number(base, error, paper=None)],
        readings=[number(replace(ours, reading="variance"), 2.45e6, base=base.to_dict(), paper=None, unit="")],
        tests=[pair(ours, base, -83.84, -73.53)],
    )
    for figure in ("2.45e+06", "-78.69", "-83.84"):
        assert (figure in text) is learned, figure
    assert text.count(NOT_COMPARABLE) == (0 if learned else 2)


@pytest.mark.parametrize(("error", "expected"), [(9.0, REPRODUCED), (88.0, NOT_COMPARABLE)])
def test_every_claim_needs_a_base_that_learns(error: float, expected: str) -> None:
    """The same record twice: the readings that speak for the paper count only where the base has learned."""
    losses = ("Softmax", "SVM")
    bases = [number(RowId(f"CNN-{loss}"), error) for loss in losses]
    epochs = [number(RowId(f"{kind}-{loss}", reading="epochs"), 0, values=values)
              for loss in losses for kind, values in (("DSN", [2, 3, 2]), ("CNN", [7, 8, 8]))]  # fmt: skip
    assert claim_verdict("DSN converges faster", "fig2a", {"rows": bases, "readings": epochs}) == expected
    fits = [number(RowId(f"{kind}-SVM", reading="training error"), 0.1) for kind in ("CNN", "DSN")]
    tests = [pair(RowId("DSN-SVM"), RowId("CNN-SVM"), -2, -1)]
    assert claim_verdict("Both fit", "fig2c", {"rows": bases, "readings": fits, "tests": tests}) == expected
    greedy = {"rows": [number(RowId("greedy"), error)], "tests": [pair(RowId("DSN-SVM"), RowId("greedy"), -2, -1)]}
    assert claim_verdict("Joint training", "pretraining", greedy) == expected
    assert equivalence({kind: [0.05, -0.05, 0.02] for kind in ("DSN-SVM", "CNN-SVM")}, error) == expected


def test_a_table_is_judged_by_rows_on_all_images_only() -> None:
    dsn = RowId("DSN-SVM")
    few = {"rows": [number(dsn, 0.2, config={"train_size": 1000})]}
    assert claim_verdict("DSN on MNIST", "mnist", few) == NOT_RUN
    whole = {"rows": [number(dsn, 0.38, config={"train_size": None})]}
    assert claim_verdict("DSN on MNIST", "mnist", whole) == REPRODUCED
    whole["rows"][0]["mean"] = 0.41
    assert claim_verdict("DSN on MNIST", "mnist", whole) == NOT_REPRODUCED


@pytest.mark.parametrize(
    ("softmax", "svm", "expected"),
    [(-1, -1, REPRODUCED), (-1, 1, PARTLY), (1, -1, PARTLY), (1, 1, NOT_REPRODUCED)],
)
def test_a_claim_on_both_losses_is_partly_reproduced_by_one(softmax: int, svm: int, expected: str) -> None:
    ends = {"Softmax": softmax, "SVM": svm}
    both = {
        "rows": [],
        "tests": [pair(RowId(f"DSN-{loss}"), RowId(f"CNN-{loss}"), -2, end) for loss, end in ends.items()],
    }
    assert claim_verdict("DSN beats CNN", "fig2a", both) == expected
    grid = {"rows": [
        number(RowId(f"{kind}-{loss}", lr=lr), 0, values=[10 * lr + shift, 12 * lr + shift, 14 * lr + 1.1 * shift])
        for loss, end in ends.items() for kind, shift in (("DSN", end), ("CNN", 0)) for lr in (1, 2)
    ]}  # fmt: skip
    assert claim_verdict("DSN is more robust", "robustness", grid) == expected
    soon = {"rows": [], "readings": [
        number(RowId(f"{kind}-{loss}", reading="epochs"), 0, values=[9 + shift, 8 + shift, 9 + shift * 1.25])
        for loss, end in ends.items() for kind, shift in (("DSN", end * 4), ("CNN", 0))
    ]}  # fmt: skip
    assert claim_verdict("DSN converges faster", "fig2a", soon) == expected


def test_one_curve_is_no_proof_of_speed() -> None:
    soon = {"rows": [], "readings": [
        number(RowId(f"{kind}-{loss}", reading="epochs"), epochs)
        for kind, epochs in (("DSN", 2), ("CNN", 4)) for loss in ("Softmax", "SVM")
    ]}  # fmt: skip
    assert claim_verdict("DSN converges faster", "fig2a", soon) == NOT_REPRODUCED


def test_each_kind_of_companions_has_its_own_verdict_on_robustness() -> None:
    """Flat companions are lower at every rate, the defaults are not; the CNN is the same for both."""
    shifts = {("DSN", "flat"): -2.0, ("DSN", ""): 0.5, ("CNN", ""): 0.0}
    rows = [
        number(RowId(f"{kind}-{loss}", companions=of, lr=lr), 0, values=[10 * lr + shift, 12 * lr + shift * 1.1])
        for loss in ("Softmax", "SVM") for (kind, of), shift in shifts.items() for lr in (1, 2)
    ]  # fmt: skip
    found = {claim.what: claim.judge({"rows": rows}) for claim in CLAIMS if claim.target == "robustness-nin"}
    assert [each.verdict for each in found.values()] == [NOT_REPRODUCED, REPRODUCED]
    assert ["flat" in what for what in found] == [False, True]
    fewer = {"rows": [row for row in rows if row["id"] != RowId("DSN-SVM", companions="flat", lr=2).to_dict()]}
    verdicts = [claim.judge(fewer).verdict for claim in CLAIMS if claim.target == "robustness-nin"]
    assert verdicts == [NOT_REPRODUCED, NOT_RUN]  # a grid that lacks a rate is not compared
    assert "Softmax: 14.4 (DSN), 16.5 (CNN)" in list(found.values())[1].found  # 16.5 - 2.1, by hand


def test_a_diverged_run_has_the_error_of_guessing() -> None:
    names = [f"{kind}-{loss}" for kind in ("DSN", "CNN") for loss in ("Softmax", "SVM")]
    values = {"DSN": [5.0, 5.5], "CNN": [None, None]}
    grid = {"rows": [number(RowId(name, lr=0.1), 0, values=values[name[:3]]) for name in names]}
    assert claim_verdict("DSN is more robust", "robustness", grid) == REPRODUCED


def equivalence(differences: dict[str, list[float]], error: float = 3.0) -> str:
    rows = [
        number(RowId(method, loss=loss), error, values=[error + each * (loss == "hinge") for each in shifts])
        for method, shifts in differences.items() for loss in ("squared_hinge", "hinge")
    ]  # fmt: skip
    return claim_verdict("L1 and L2", "l1-l2", {"rows": rows})


def test_a_negligible_difference_needs_an_equivalence_test() -> None:
    """The oracle is two one-sided tests of scipy, each at 5 %."""
    near, wide, far = [0.05, -0.05, 0.02, 0.0, 0.03], [1.0, -1.0, 0.8, -0.9, 0.1], [0.9, 1.0, 1.1, 1.0, 0.95]
    for shifts, expected in ((near, True), (wide, False), (far, False)):
        bound = 0.1 * (3.0 + sum(shifts) / len(shifts) / 2)
        upper = stats.ttest_1samp([-each for each in shifts], bound, alternative="less").pvalue
        lower = stats.ttest_1samp([-each for each in shifts], -bound, alternative="greater").pvalue
        assert (max(upper, lower) < 0.05) == expected
        verdict_ = REPRODUCED if expected else NOT_REPRODUCED
        assert equivalence({"DSN-SVM": shifts, "CNN-SVM": shifts}) == verdict_
    # a failure to reject is not enough: the 95 % interval of `wide` contains 0
    assert stats.ttest_1samp(wide, 0).pvalue > 0.5
    assert equivalence({"DSN-SVM": near, "CNN-SVM": wide}) == PARTLY


def test_a_hinge_whose_other_one_is_not_run_yet_is_not_judged() -> None:
    one = number(RowId("DSN-SVM", loss="squared_hinge"), 3.0, values=[3.0, 3.1])
    assert claim_verdict("L1 and L2", "l1-l2", {"rows": [one]}) == NOT_RUN


@pytest.mark.parametrize(
    ("softmax", "svm", "nin", "expected"),
    [(-1, -1, 5, REPRODUCED), (-1, 1, 5, PARTLY), (1, 1, 5, NOT_REPRODUCED), (-1, -1, 88, NOT_COMPARABLE)],
)
def test_a_table_of_few_images_judges_dsn_beside_nin(softmax: float, svm: float, nin: float, expected: str) -> None:
    tests = [pair(RowId(f"DSN-{loss}"), RowId("NIN"), -2, high) for loss, high in (("Softmax", softmax), ("SVM", svm))]
    record = {"rows": [number(RowId("NIN"), nin)], "tests": tests}
    assert claim_verdict("DSN beats NIN", "cifar10", record) == expected
    assert claim_verdict("DSN beats NIN", "cifar10", {**record, "tests": tests[:1]}) == NOT_RUN


def test_a_lemma_that_holds_after_a_correction_is_corrected() -> None:
    def judged(name: str, *found: tuple[str, str]) -> str:
        findings = [{"id": key, "statement": "?", "verdict": verdict_} for key, verdict_ in found]
        return claim_verdict(name, "theory", {"rows": [], "findings": findings})

    assert judged("Lemma 2", ("lemma-2", "holds as printed")) == REPRODUCED
    assert judged("Lemma 2", ("lemma-2", "holds after a correction")) == CORRECTED
    assert judged("Lemma 2", ("lemma-2", "does not hold as printed")) == NOT_REPRODUCED
    broken = ("lemma-3-proof", "does not hold as printed")
    assert judged("Lemma 3", ("lemma-3", "holds after a correction"), broken) == CORRECTED
    steps = ("theorem-1-known-step", "holds as printed"), ("theorem-1-plain-step", "does not hold as printed")
    assert judged("Theorem 1", *steps) == NOT_REPRODUCED
    assert judged("Theorem 1", steps[0]) == NOT_RUN


def test_generalisation_needs_a_fit_and_a_lower_test_error() -> None:
    dsn, cnn = RowId("DSN-SVM"), RowId("CNN-SVM")
    trained = [number(RowId(name.method, reading="training error"), 0.1) for name in (cnn, dsn)]
    record = {"rows": [], "readings": trained, "tests": [pair(dsn, cnn, -0.2, -0.1)]}
    assert claim_verdict("Both fit", "fig2c", record) == REPRODUCED
    record["readings"][0]["mean"] = 1.0
    assert claim_verdict("Both fit", "fig2c", record) == PARTLY
    record["tests"][0]["interval"] = [-0.2, 0.1]
    assert claim_verdict("Both fit", "fig2c", record) == NOT_REPRODUCED


def test_plain_nets_are_judged_where_the_base_learns() -> None:
    what = "Default companions lower the error of plain nets at every depth, no norm layers, sgd"

    def record(ends: list[float], errors: list[float]) -> dict:
        ids = [[RowId(m, "plain", depth, "none", "sgd", size=500) for depth in DEPTHS] for m in (WITH, WITHOUT)]
        return {
            "rows": [number(base, error) for base, error in zip(ids[1], errors, strict=True)],
            "tests": [pair(a, b, -2, end) for a, b, end in zip(*ids, ends, strict=True)],
        }

    assert claim_verdict(what, "when", record([-1] * 4, [5] * 4)) == REPRODUCED
    assert claim_verdict(what, "when", record([-1, 1, 1, 1], [5] * 4)) == PARTLY
    assert claim_verdict(what, "when", record([1, 1, -1, -1], [5, 5, 90, 90])) == NOT_REPRODUCED
    assert claim_verdict(what, "when", record([-1] * 4, [90] * 4)) == NOT_COMPARABLE


def test_a_mean_is_said_with_its_interval() -> None:
    assert estimate([1.0, 2.0, 3.0]) == "2 % (95 % -0.484 to 4.48, n 3)"
    assert estimate([2.0, None], "") == "2 (n 1, no interval)"
    assert estimate([2.0, 2.0]) == "2 % (95 % 2 to 2, n 2)"


def test_the_head_says_what_the_records_say() -> None:
    records = {
        ("fig2b-nin", "cpu"): {"rows": [], "test_read_before": 0},
        ("when", "cpu"): {"rows": [], "test_read_before": 3},
        ("fig2a", "cpu"): {"rows": [], "test_read_before": "not recorded"},
    }
    said = settings_text(records)
    assert "0 (`fig2b-nin-cpu`); 3 (`when-cpu`); not recorded (`fig2a-cpu`)" in said
    rows = [{"chosen_on": {"images": 5000, "of": "mnist", "candidates": count, "seeds": 1}} for count in (1, 4, 8)]
    assert chosen_words({"rows": rows}) == "5,000 held-out training images of mnist, 4 to 8 candidates per row"
    assert chosen_words({"rows": rows[:1]}) == "nothing was chosen"
    assert chosen_words({"rows": rows[:1], "settings": "by hand"}) == "by hand"


def test_a_record_is_kept_with_its_figure(tmp_path: Path) -> None:
    picture = tmp_path / "drawn.png"
    picture.write_bytes(b"png")
    path = keep({"target": "fig2a", "preset": "cpu", "rows": []}, picture, tmp_path / "new" / "results")
    assert json.loads(path.read_text())["target"] == "fig2a"
    assert path.with_suffix(".png").read_bytes() == b"png"


@pytest.mark.parametrize("path", sorted((PROJECT / "results").glob("*-cpu.json")), ids=lambda path: path.stem)
def test_every_row_can_be_made_again(path: Path) -> None:
    """Each recorded row has a config that is still valid, a seed, a thread count and an error for every run."""
    from deepsup.trainer.config import Config

    record = json.loads(path.read_text())
    assert record["command"].startswith(f"deepsup reproduce {record['target']} --preset {record['preset']}")
    for row in record["rows"]:
        if record["target"] != "theory":
            assert Config.from_dict(row["config"]).run.seed == row["seeds"][0]
            assert len(row["values"]) == len(row["seeds"]) == len(row["threads"]) == len(row["seconds"])


@pytest.mark.parametrize(
    ("error", "minutes", "expected"),
    [(8.0, 12.0, REPRODUCED), (8.22, 19.9, REPRODUCED), (8.23, 12.0, NOT_REPRODUCED), (8.0, 20.5, NOT_REPRODUCED)],
)
def test_a_fast_recipe_must_keep_the_error_and_the_minutes(error: float, minutes: float, expected: str) -> None:
    rows = [number(RowId(WITH), error, paper=8.22, seconds=[60.0, minutes * 60])]
    assert claim_verdict("The recipe fast-cifar10", "fast-cifar10", {"rows": rows}) == expected
    bare = number(RowId(WITHOUT), 9.0, values=[9.0, 9.2])
    both = {"rows": [*rows, bare], "tests": [pair(RowId(WITH), RowId(WITHOUT), -1.5, -0.5)]}
    told, judged = fast_error("fast-cifar10", both)
    assert judged == expected  # what companions gave is told, not judged
    assert "without companions 9.1 %" in told
    assert "difference -1.00 points (95 % -1.50 to -0.50, n 5)" in told
    alone = [number(RowId(WITHOUT), 1.0, paper=None, seconds=[60.0])]
    assert claim_verdict("The recipe fast-cifar10", "fast-cifar10", {"rows": alone}) == NOT_RUN


@pytest.mark.parametrize(
    ("intervals", "expected"),
    [
        ([(-3, -1), (-2, -0.5)], REPRODUCED),
        ([(-3, -1), (-2, 0.5)], PARTLY),
        ([(1, 3), (-2, 1)], NOT_REPRODUCED),
        ([(-3, -1)], NOT_RUN),
    ],
)
def test_few_images_must_show_it_at_every_size(intervals: list[tuple[float, float]], expected: str) -> None:
    tests = [
        pair(RowId(WITH, size=size), RowId(WITHOUT, size=size), *each)
        for size, each in zip(FEW, intervals, strict=False)
    ]
    record = {"rows": [], "tests": tests}
    assert claim_verdict("Companions lower the error of the net fast", "fast-few", record) == expected


def test_minutes_of_different_processors_name_them() -> None:
    """Rows of one record may come from several machines, whose minutes say nothing about the methods."""

    def minutes(*kinds: str) -> list[str]:
        rows = [number(RowId(kind), 5.0, paper=None, seconds=[90.0], made={"cpu": kind}) for kind in kinds]
        return [line.split(" | ")[4] for line in told(rows).splitlines() if line.startswith("| ?")]

    assert minutes("AVX2", "AVX512") == ["1.5 (AVX2)", "1.5 (AVX512)"]
    assert minutes("AVX2", "AVX2") == ["1.5", "1.5"]


def test_a_record_without_ids_is_refused_in_one_line() -> None:
    with pytest.raises(RunError, match=r"has no valid 'id'.*run its command again"):
        claim_verdict("DSN on MNIST", "mnist", {"rows": [{"row": "DSN-SVM", "mean": 0.4}]})
    with pytest.raises(RunError, match="has no valid 'id'"):
        RowId.of({"id": {"method": "a", "colour": "red"}})
