"""RESULTS.md, the CSV files and the blocks of the docs are what the records say, and short."""

import csv
import json
import shutil
from pathlib import Path

import pytest

from deepsup.errors import RunError
from deepsup.paper.budget_curves import distances
from deepsup.paper.provenance import chosen_words
from deepsup.paper.row_id import RowId
from deepsup.paper.summary import (
    BEGIN,
    END,
    FIRST,
    claims_block,
    keep,
    not_run,
    paper_block,
    study,
    summarise,
)
from deepsup.paper.targets import TARGETS
from deepsup.trainer.config import Config

PROJECT = Path(__file__).parents[2]
RECORDS = sorted((PROJECT / "results").glob("*-cpu.json"))
OLD = sorted((PROJECT / "results" / FIRST).glob("*.json"))


def test_the_pages_are_what_the_records_say(tmp_path: Path) -> None:
    shutil.copytree(PROJECT / "results", tmp_path / "results")
    (tmp_path / "docs").mkdir()
    pages = ("RESULTS.md", "README.md", "docs/when.md", "docs/claims.md")
    for name in pages[1:]:
        shutil.copy(PROJECT / name, tmp_path / name)
    summarise(tmp_path / "results")
    for name in pages:
        assert (tmp_path / name).read_text() == (PROJECT / name).read_text(), "run: deepsup reproduce summary"
    for path in RECORDS:
        assert (tmp_path / "results" / f"{path.stem}.csv").read_text() == path.with_suffix(".csv").read_text()


def test_the_pages_are_short() -> None:
    assert len((PROJECT / "RESULTS.md").read_bytes()) <= 20_000
    assert len((PROJECT / "docs" / "claims.md").read_text().splitlines()) <= 40


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_the_rows_stand_beside_the_record(path: Path) -> None:
    record = json.loads(path.read_text())
    with path.with_suffix(".csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["row"] for row in rows] == [row["row"] for row in record["rows"]]
    for ours, theirs in zip(rows, record["rows"], strict=True):
        assert len(ours["errors"].split()) == len(theirs.get("values", []))
        assert float(ours["mean"] or 0) == pytest.approx(theirs["mean"] or 0, rel=1e-4)


def test_a_page_has_a_block_and_only_that_changes(tmp_path: Path) -> None:
    shutil.copytree(PROJECT / "results", tmp_path / "results")
    (tmp_path / "docs").mkdir()
    pages = {name: tmp_path / "docs" / name for name in ("when.md", "claims.md")}
    for page in pages.values():
        page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    assert set(pages.values()) < set(summarise(tmp_path / "results"))
    for page, start in zip(pages.values(), ("**When companions help", "Of 28 claims: "), strict=True):
        text = page.read_text()
        assert text.startswith(f"before\n{BEGIN}\n{start}")
        assert text.endswith(f"{END}\nafter\n")
        assert "\nold\n" not in text


@pytest.mark.parametrize("path", [*RECORDS, *OLD], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_records_name_no_machine_and_every_row_can_be_made_again(path: Path) -> None:
    text = path.read_text()
    assert not any(place in text for place in ("/work", "/tmp", "/home"))
    record = json.loads(text)
    assert record["command"].startswith(f"deepsup reproduce {record['target']} --preset {record['preset']}")
    if record["target"] == "theory":
        return
    rows = {RowId.of(row): row for row in record["rows"]}
    assert len(rows) == len(record["rows"])
    for name, row in rows.items():
        config = Config.recorded(row["config"])
        assert config.run.seed == row["seeds"][0]
        assert len(row["values"]) == len(row["seeds"]) == len(row["threads"]) == len(row["seconds"])
        assert name.size in (None, config.data.train_size)
        assert name.lr in (None, config.optimizer.lr)
        assert name.epochs in (None, config.total_epochs) or name.method == "greedy"
        if name.method.startswith(("CNN", "without")):
            assert config.supervision.taps == ("none",)


def test_claims_are_told_in_the_papers_order_and_what_is_not_run_in_one_line() -> None:
    rows, tests = [], []
    for epochs in (15, 30, 60, 120, 240):
        ids = [RowId(f"{kind}-Softmax", epochs=epochs).to_dict() for kind in ("DSN", "CNN")]
        for name, factor in zip(ids, (2, 1), strict=True):
            values = [300 / (epochs * factor) * noise for noise in (0.99, 1.0, 1.01)]
            rows.append({"id": name, "row": name["method"], "values": values, "mean": sum(values) / 3,
                         "seeds": [0, 1, 2], "guessing": 90.0})  # fmt: skip
        tests.append({"ours": ids[0], "theirs": ids[1]})
    readings = distances({RowId.of(row): row for row in rows})["rows"]
    record = {"target": "budget", "preset": "cpu", "rows": rows, "tests": tests, "readings": readings}
    lines = claims_block({("budget", "cpu"): record}).splitlines()
    assert lines[0] == "Of 28 claims: 2 reproduced, 26 not judged."
    assert lines[2].startswith(
        "- DSN converges faster (budget curves): **reproduced** (500 digits: softmax: the twin's"
    )
    assert lines[2].endswith("; not judged (CIFAR-10).")
    assert lines[3].startswith(
        "- DSN generalises better at the longest budget: **reproduced** (500 digits: at 240 epochs"
    )
    assert lines[4].startswith("- Not judged yet: DSN has less error than its twin")
    assert len(lines) == 5
    assert paper_block({}) == "- Of 28 claims of the paper: 28 not judged ([which, and why](docs/claims.md))."


@pytest.mark.parametrize(
    "path", [path for path in RECORDS if path.stem.startswith("budget")], ids=lambda path: path.stem
)
def test_the_distances_of_a_record_are_those_of_todays_code(path: Path) -> None:
    """Else: deepsup reproduce summary."""
    record = json.loads(path.read_text())
    renewed = json.loads(json.dumps(distances({RowId.of(row): row for row in record["rows"]})["rows"]))
    for ours, theirs in zip(record["readings"], renewed, strict=True):
        assert ours["interval"] == (theirs["interval"] and pytest.approx(theirs["interval"]))


def test_a_study_is_told_once_with_its_hours_and_what_was_chosen_on() -> None:
    choosing_rate = {"images": 5000, "of": "mnist", "candidates": 3, "seeds": 3}
    row = {"chosen_on": choosing_rate, "choosing_seconds": 1800.0, "made": {"cpu": "AVX512"}}
    record = {
        "target": "x", "preset": "cpu", "command": "deepsup reproduce x", "rows": [row, row], "missing": ["a row"],
        "environment": {"torch": "2.13", "cpu": "AVX2"}, "training_minutes": 90.0, "test_read_before": 2,
    }  # fmt: skip
    link, made, images = study(record)
    assert link == "[x-cpu](results/x-cpu.json)"
    assert (
        made == "`deepsup reproduce x`, AVX512, torch 2.13, 1.5 hours of training and 1.0 of choosing; 1 rows missing"
    )
    assert images == "5,000 held-out training images of mnist, 3 candidates per row; test errors read before: 2"


def test_what_a_record_was_chosen_on() -> None:
    rows = [{"chosen_on": {"images": 5000, "of": "mnist", "candidates": count, "seeds": 1}} for count in (1, 4, 8)]
    assert chosen_words({"rows": rows}) == "5,000 held-out training images of mnist, 4 to 8 candidates per row"
    assert chosen_words({"rows": rows[:1]}) == "nothing was chosen"
    assert chosen_words({"rows": rows[:1], "settings": "by hand"}) == "by hand"


def test_what_is_not_run_is_listed_with_its_hours() -> None:
    target_list = not_run({}, Path("records"))
    assert "`deepsup reproduce TARGET --preset PRESET --jobs 2 --results records --resume`" in target_list
    assert all(f"| `{name}` |" in target_list for name in TARGETS)
    record = json.loads((PROJECT / "results" / "dense-cpu.json").read_text())
    assert "| `dense` |" not in not_run({("dense", "cpu"): record}, Path("records"))
    part = {**record, "rows": record["rows"][1:]}
    (line,) = [each for each in not_run({("dense", "cpu"): part}, Path("r")).splitlines() if "`dense`" in each]
    assert "(1 rows)" in line


def test_a_record_is_kept_with_its_rows_and_its_figure(tmp_path: Path) -> None:
    picture = tmp_path / "drawn.png"
    picture.write_bytes(b"png")
    path = keep({"target": "fig3", "preset": "cpu", "rows": []}, picture, tmp_path / "new" / "results")
    assert json.loads(path.read_text())["target"] == "fig3"
    assert path.with_suffix(".png").read_bytes() == b"png"
    assert path.with_suffix(".csv").read_text().startswith("row,paper,mean,")


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is no folder; expected the folder of records"):
        summarise(tmp_path / "nowhere")
