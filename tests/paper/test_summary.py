"""RESULTS.md is what the records say, and verdicts follow the records: change a record, and they change."""

import copy
import json
import shutil
from pathlib import Path

import pytest

from deepsup.paper.claims import CLAIMS, NOT_REPRODUCED, NOT_RUN, REPRODUCED, verdict
from deepsup.paper.fast_targets import FEW, WITH, WITHOUT
from deepsup.paper.summary import BEGIN, END, keep, summarise
from deepsup.paper.targets import NAMES

PROJECT = Path(__file__).parents[2]


def claim_verdict(what: str, target: str, record: dict) -> str:
    (claim,) = [claim for claim in CLAIMS if claim.what.startswith(what) and claim.target == target]
    return verdict(claim, {target: record})[1]


def number(name: str, value: float, **more: object) -> dict:
    return {"row": name, "mean": value, "values": [value], "deviation": None, **more}


def pair(name: str, low: float, high: float) -> dict:
    return {"test": name, "mean": (low + high) / 2, "interval": [low, high], "p": 0.01, "n": 5}


def test_results_md_and_the_readme_are_what_the_records_say(tmp_path: Path) -> None:
    shutil.copytree(PROJECT / "results", tmp_path / "results")
    shutil.copy(PROJECT / "README.md", tmp_path)
    summarise(tmp_path / "results")
    assert (tmp_path / "RESULTS.md").read_text() == (PROJECT / "RESULTS.md").read_text()
    assert (tmp_path / "README.md").read_text() == (PROJECT / "README.md").read_text()


def test_the_readme_has_a_block_and_only_that_changes(tmp_path: Path) -> None:
    shutil.copytree(PROJECT / "results", tmp_path / "results")
    (tmp_path / "README.md").write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    summarise(tmp_path / "results")
    text = (tmp_path / "README.md").read_text()
    assert text.startswith(f"before\n{BEGIN}\n| claim of the paper |")
    assert text.endswith(f"{END}\nafter\n")
    assert "\nold\n" not in text


def test_records_name_no_machine() -> None:
    for path in (PROJECT / "results").glob("*.json"):
        text = path.read_text()
        assert "/work" not in text, path
        assert "/tmp" not in text, path
        assert "/home" not in text, path


def test_every_claim_has_a_verdict_and_a_known_target() -> None:
    for claim in CLAIMS:
        assert claim.target in NAMES
        assert verdict(claim, {}) == ("", NOT_RUN)


def test_the_gain_at_500_needs_both_size_and_certainty() -> None:
    where = "500 digits"
    record = {
        "rows": [],
        "readings": [number(f"gain, {where}", 26.0), number("gain, 1,000 digits", 10.0)],
        "tests": [pair(f"DSN-SVM, {where} - CNN-Softmax, {where}", -2, -1)],
    }
    assert claim_verdict("DSN-SVM is better", "fig2b", record) == REPRODUCED
    assert claim_verdict("The gain grows", "fig2b", record) == REPRODUCED
    small = copy.deepcopy(record)
    small["readings"][0]["mean"] = 9.0
    assert claim_verdict("DSN-SVM is better", "fig2b", small) == NOT_REPRODUCED
    assert claim_verdict("The gain grows", "fig2b", small) == NOT_REPRODUCED
    unsure = copy.deepcopy(record)
    unsure["tests"][0]["interval"] = [-2, 0.1]
    assert claim_verdict("DSN-SVM is better", "fig2b", unsure) == NOT_REPRODUCED
    # on the paper's own net, where it was run
    nin = copy.deepcopy(record)
    nin["readings"].append(number("gain, NIN, 500 digits", -5.0))
    nin["tests"].append(pair("DSN-SVM, NIN, 500 digits - CNN-Softmax, NIN, 500 digits", -1, 2))
    assert claim_verdict("DSN-SVM is better", "fig2b", nin) == NOT_REPRODUCED
    nin["rows"].append(number("CNN-Softmax, NIN, 500 digits", 88.8))  # it guesses: no base for a gain
    assert claim_verdict("DSN-SVM is better", "fig2b", nin) == REPRODUCED


def test_a_table_is_judged_by_rows_on_all_images_only() -> None:
    few = {"rows": [number("DSN-SVM", 0.2, config={"train_size": 1000})]}
    assert claim_verdict("DSN on MNIST", "mnist", few) == NOT_RUN
    whole = {"rows": [number("DSN-SVM", 0.38, config={"train_size": None})]}
    assert claim_verdict("DSN on MNIST", "mnist", whole) == REPRODUCED
    whole["rows"][0]["mean"] = 0.41
    assert claim_verdict("DSN on MNIST", "mnist", whole) == NOT_REPRODUCED


def test_other_verdicts_turn_with_their_numbers() -> None:
    both = {"rows": [], "tests": [pair("DSN-Softmax - CNN-Softmax", -2, -1), pair("DSN-SVM - CNN-SVM", -2, -1)]}
    assert claim_verdict("DSN beats CNN", "fig2a", both) == REPRODUCED
    both["tests"][1]["interval"] = [-2, 1]
    assert claim_verdict("DSN beats CNN", "fig2a", both) == NOT_REPRODUCED
    ratio = {"rows": [], "readings": [number("variance of conv1's gradient, DSN over CNN", 4.0)]}
    assert claim_verdict("The first convolution's", "gradient-variance", ratio) == REPRODUCED
    ratio["readings"][0]["mean"] = 1.2
    assert claim_verdict("The first convolution's", "gradient-variance", ratio) == NOT_REPRODUCED
    grid = {"rows": [], "readings": [
        number(f"{kind}-{loss}, mean over the rates", value)
        for kind, value in (("DSN", 5.0), ("CNN", 6.0)) for loss in ("Softmax", "SVM")
    ]}  # fmt: skip
    assert claim_verdict("DSN is more robust", "robustness", grid) == REPRODUCED
    grid["readings"][0]["mean"] = 7.0
    assert claim_verdict("DSN is more robust", "robustness", grid) == NOT_REPRODUCED
    soon = {"rows": [], "readings": [
        number(f"{kind}-{loss}, epochs to within 10 % of the CNN's last error", value)
        for kind, value in (("DSN", 2), ("CNN", 4)) for loss in ("Softmax", "SVM")
    ]}  # fmt: skip
    assert claim_verdict("DSN converges faster", "fig2a", soon) == REPRODUCED
    soon["readings"][1]["mean"] = 4
    assert claim_verdict("DSN converges faster", "fig2a", soon) == NOT_REPRODUCED
    hinges = {"rows": [number("DSN-SVM, L2", 3.0)], "tests": [
        pair("DSN-SVM, L2 - DSN-SVM, L1", -0.1, 0.2), pair("CNN-SVM, L2 - CNN-SVM, L1", 0.1, 0.2)
    ]}  # fmt: skip
    assert claim_verdict("L1 and L2", "l1-l2", hinges) == REPRODUCED
    hinges["tests"][1]["interval"], hinges["tests"][1]["mean"] = [0.5, 0.9], 0.7
    assert claim_verdict("L1 and L2", "l1-l2", hinges) == NOT_REPRODUCED
    theory = {"rows": [], "findings": [{"statement": "Lemma 2", "verdict": "holds as printed"}]}
    assert claim_verdict("Lemma 2", "theory", theory) == REPRODUCED
    theory["findings"].append({"statement": "Lemma 2, its proof", "verdict": "does not hold as printed"})
    assert claim_verdict("Lemma 2", "theory", theory) == NOT_REPRODUCED


def test_generalisation_needs_a_fit_and_a_lower_test_error() -> None:
    record = {
        "rows": [],
        "readings": [number("CNN-SVM, training error", 0.1), number("DSN-SVM, training error", 0.1)],
        "tests": [pair("DSN-SVM - CNN-SVM", -0.2, -0.1)],
    }
    assert claim_verdict("Both fit", "fig2c", record) == REPRODUCED
    record["readings"][0]["mean"] = 1.0
    assert claim_verdict("Both fit", "fig2c", record) == NOT_REPRODUCED


def test_a_record_is_kept_with_its_figure(tmp_path: Path) -> None:
    picture = tmp_path / "drawn.png"
    picture.write_bytes(b"png")
    path = keep({"target": "fig2a", "preset": "cpu", "rows": []}, picture, tmp_path / "new" / "results")
    assert json.loads(path.read_text())["target"] == "fig2a"
    assert path.with_suffix(".png").read_bytes() == b"png"


@pytest.mark.parametrize("path", sorted((PROJECT / "results").glob("*-*.json")), ids=lambda path: path.stem)
def test_every_row_can_be_made_again(path: Path) -> None:
    """Each recorded row has a config that is still valid, a seed, a thread count and an error for every run."""
    from deepsup.config import Config

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
    rows = [number("with companions", error, paper=8.22, seconds=[60.0, minutes * 60])]
    assert claim_verdict("DSN's error on CIFAR-10", "fast-cifar10", {"rows": rows}) == expected
    alone = [number("without companions", 1.0, paper=None, seconds=[60.0])]
    assert claim_verdict("DSN's error on CIFAR-10", "fast-cifar10", {"rows": alone}) == NOT_RUN


@pytest.mark.parametrize(
    ("intervals", "expected"),
    [
        ([(-3, -1), (-2, -0.5)], REPRODUCED),
        ([(-3, -1), (-2, 0.5)], NOT_REPRODUCED),
        ([(1, 3), (-2, -1)], NOT_REPRODUCED),
        ([(-3, -1)], NOT_RUN),
    ],
)
def test_few_images_must_show_it_at_every_size(intervals: list[tuple[float, float]], expected: str) -> None:
    tests = [
        {"test": f"{WITH}, {size:,} images - {WITHOUT}, {size:,} images", "mean": sum(each) / 2, "p": 0.01, "n": 5,
         "interval": list(each)}
        for size, each in zip(FEW, intervals, strict=False)
    ]  # fmt: skip
    assert claim_verdict("Companions help with few images", "fast-few", {"rows": [], "tests": tests}) == expected
