"""A record is resumed on another machine: rows that still hold are kept as they are, the others are trained."""

import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from deepsup.cli import main
from deepsup.errors import RunError
from deepsup.paper import plan_of, read_record, reproduce
from deepsup.paper.own_targets import FAST
from deepsup.paper.plan import in_one_precision
from deepsup.paper.readings import course
from deepsup.paper.record_rows import join_seeds, rows_that_hold
from deepsup.paper.reproduce import figure_of
from deepsup.paper.row_id import RowId
from deepsup.paper.targets import TARGETS, no_reading

RESULTS = Path(__file__).parents[2] / "results"
TARGET, RUNS = "fig2a-nin", "smoke-mnist-cpu"  # it reads more off its runs than their errors


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("resume")


@pytest.fixture(scope="module")
def whole(out: Path) -> dict[str, Any]:
    return reproduce(TARGET, "smoke", out)


def told(record: dict[str, Any]) -> dict[str, Any]:
    """What a record says of its rows, times aside."""
    said = {key: record[key] for key in ("readings", "tests", "figure", "missing")}
    return said | {"rows": [row | {"seconds": []} for row in record["rows"]]}


def test_nothing_is_trained_where_the_record_has_all_rows(out: Path, whole: dict[str, Any]) -> None:
    shutil.rmtree(out / RUNS)
    again = reproduce(TARGET, "smoke", out, earlier=whole)
    assert told(again) == told(whole)
    assert not list(out.glob(f"{RUNS}/*"))
    assert again["wall_minutes"] >= whole["wall_minutes"]


def test_only_the_missing_row_is_trained(out: Path, whole: dict[str, Any]) -> None:
    earlier = deepcopy(whole)
    lost = earlier["rows"].pop()
    for row in earlier["rows"]:
        row["made"]["cpu"] = "another"  # a row of another machine keeps its own
    again = reproduce(TARGET, "smoke", out, earlier=earlier)
    assert [row["values"] for row in again["rows"]] == [row["values"] for row in whole["rows"]]
    timeless = [[row for row in record["readings"] if row["unit"] != "minutes"] for record in (again, whole)]
    assert timeless[0] == timeless[1] != []
    (run,) = (path.parent.name for path in out.glob(f"{RUNS}/*/result.json"))
    assert run.startswith(lost["row"].lower()[:7])
    assert [row["made"]["cpu"] == "another" for row in again["rows"]] == [True] * (len(again["rows"]) - 1) + [False]


def test_a_row_is_trained_seed_by_seed(out: Path, whole: dict[str, Any]) -> None:
    """One seed now, one later, perhaps elsewhere: the same errors as both at once, and nothing is chosen again."""
    shutil.rmtree(out / RUNS, ignore_errors=True)
    part = reproduce(TARGET, "smoke", out, seeds=2, earlier=whole)
    runs = {path.parent.name for path in out.glob(f"{RUNS}/**/result.json")}
    assert len(runs) == len(whole["rows"])
    assert all(name.endswith("seed1") for name in runs)
    assert [each["seeds"] for each in part["rows"][0]["made_later"]] == [[1]]
    shutil.rmtree(out / RUNS)
    both = reproduce(TARGET, "smoke", out, seeds=2)
    assert [untimed(row) for row in part["rows"]] == [untimed(row) for row in both["rows"]]

    half = deepcopy(both)
    del half["rows"][1:]
    for key in ("values", "seeds", "seconds", "threads", "measured"):
        half["rows"][0][key] = half["rows"][0][key][:1]
    some = reproduce(TARGET, "smoke", out, seeds=2, earlier=half, only=[both["rows"][1]["row"]])
    assert [row["seeds"] for row in some["rows"]] == [[0], [0, 1]]  # what is not named is kept as it is
    assert both["rows"][0]["row"] in some["missing"]


def untimed(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry without what differs from one training to the next."""
    measured = [{key: value for key, value in each.items() if key != "minutes"} for each in entry["measured"]]
    timed = {"choosing_seconds", "seconds", "made_later"}
    return {key: value for key, value in entry.items() if key not in timed} | {"measured": measured}


def test_seeds_that_diverged_count_as_guessing_when_seeds_are_joined() -> None:
    """Means over all seeds, of companions over those that ended."""
    entry = {"values": [4.0, None], "seeds": [0, 1], "seconds": [1.0, 2.0], "threads": [1, 1], "diverged": 1,
             "guessing": 90.0, "companions": {"conv1": 10.0}, "made": {"cpu": "AVX2"}, "mean": 47.0}  # fmt: skip
    more = entry | {"values": [6.0, 8.0], "seeds": [2, 3], "diverged": 0, "companions": {"conv1": 13.0}}
    joined = join_seeds(entry, more)
    assert (joined["mean"], joined["diverged"], joined["seeds"]) == ((4 + 90 + 6 + 8) / 4, 1, [0, 1, 2, 3])
    assert joined["companions"] == {"conv1": (10 + 2 * 13) / 3}
    assert joined["made_later"] == [{"seeds": [2, 3], "cpu": "AVX2"}]


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "another learning rate": lambda row: row["config"].update(lr=0.5),
    "a setting that there is none of": lambda row: row["config"].update(warp=1),
    "another candidate": lambda row: row.update(choice="lr7"),
    "a candidate less": lambda row: row["search"].popitem(),
    "another seed": lambda row: row.update(seeds=[1]),
    "chosen on fewer images": lambda row: row["chosen_on"].update(images=1),
    "chosen by shorter runs": lambda row: row["chosen_on"].update(epochs=1),
    "started from a run": lambda row: row.update(start={"config": row["config"]}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_row_with_other_settings_does_not_hold(change: str, out: Path, whole: dict[str, Any]) -> None:
    plan = in_one_precision(plan_of(TARGET, "smoke", out), whole, out)
    earlier = deepcopy(whole)
    first = RowId.of(earlier["rows"][0])
    assert set(rows_that_hold(plan, earlier, measurements=True)) == {row.id for row in plan.rows}
    CHANGES[change](earlier["rows"][0])
    assert set(rows_that_hold(plan, earlier, measurements=True)) == {row.id for row in plan.rows} - {first}


def test_a_row_without_what_its_figure_needs_is_trained_again(out: Path, whole: dict[str, Any]) -> None:
    earlier = deepcopy(whole)
    del earlier["rows"][0]["measured"]
    plan = in_one_precision(plan_of(TARGET, "smoke", out), whole, out)
    assert len(rows_that_hold(plan, earlier, measurements=True)) == len(plan.rows) - 1
    assert len(rows_that_hold(plan, earlier, measurements=False)) == len(plan.rows)


def test_the_command_goes_on(out: Path, whole: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = ["reproduce", TARGET, "--preset", "smoke", "--out", str(out), "--results", str(tmp_path), "--resume"]
    (tmp_path / f"{TARGET}-smoke.json").write_text(json.dumps(whole))
    shutil.rmtree(out / RUNS)
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == whole["rows"]
    assert not list(out.glob(f"{RUNS}/*"))


def test_mistakes_get_one_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["reproduce", "fig3", "--resume"]) == 2
    assert "--resume without --results; expected the folder of the record" in capsys.readouterr().err
    (tmp_path / "fig3-smoke.json").write_text("{")
    assert main(["reproduce", "fig3", "--preset", "smoke", "--results", str(tmp_path), "--resume"]) == 2
    assert "cannot read" in capsys.readouterr().err
    with pytest.raises(RunError, match="no valid 'id'"):
        rows_that_hold(plan_of("fig3", "cpu", Path()), {"rows": [{"row": "x"}], "environment": {}}, measurements=False)


def test_a_figure_of_one_point_per_line_has_bars() -> None:
    plan = plan_of("fig2b-nin", "cpu", Path())
    for sizes, kind in (({250}, "bars"), ({500, 250}, "panels")):
        ended = [row for row in plan.rows if row.id.size in sizes]
        entries = [{"row": row.method.name, "paper": None, "mean": 1.0, "deviation": None} for row in ended]
        assert figure_of(plan, ended, entries)["kind"] == kind


def test_a_course_tells_epochs_and_minutes_to_the_error_of_the_cnn() -> None:
    curves = {"DSN-Softmax": [9.0, 5.4, 3.0], "CNN-Softmax": [10.0, 6.0, 5.0], "CNN-SVM": [8.0, 7.0, 6.0]}
    rows = {RowId(method): {"measured": [{"test_errors": curve, "minutes": [1.0, 2.5, 4.0]}, {}]}
            for method, curve in curves.items()}  # fmt: skip
    found = {(row["id"]["method"], row["unit"]): row["values"] for row in course(rows)["rows"]}
    assert (found["DSN-Softmax", "epochs"], found["DSN-Softmax", "minutes"]) == ([2], [2.5])
    assert (found["CNN-Softmax", "epochs"], found["CNN-Softmax", "minutes"]) == ([3], [4.0])
    assert found["CNN-SVM", "epochs"] == [3]  # a loss whose DSN is not run yet


@pytest.mark.parametrize("name", FAST)
def test_the_timed_rows_with_companions_are_not_trained_again(name: str) -> None:
    """Their records are older than the rows without companions."""
    record = read_record(RESULTS / f"{name}-cpu.json")
    plan = in_one_precision(plan_of(name, "cpu", Path()), record, Path())
    assert {RowId.of(row) for row in record["rows"]} == set(rows_that_hold(plan, record, measurements=False))


def test_some_rows_are_trained_and_none_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Row by row, without --resume: the second command keeps the row of the first and does not train it again."""
    words = ["reproduce", "mnist", "--preset", "smoke", "--out", str(tmp_path), "--results", str(tmp_path / "results")]
    assert main([*words, "--rows", "Maxout"]) == 0
    kept = tmp_path / "results" / "mnist-smoke.json"
    (first,) = json.loads(kept.read_text())["rows"]
    assert first["id"]["method"] == "Maxout"
    shutil.rmtree(tmp_path / "smoke-mnist-cpu")
    assert main([*words, "--rows", "CNN", "CNN-Softmax, half width"]) == 0
    record = json.loads(kept.read_text())
    assert [row["id"]["method"] for row in record["rows"]] == ["CNN-Softmax", "CNN", "Maxout"]
    assert record["rows"][-1] == first
    assert not list(tmp_path.glob("smoke-mnist-cpu/maxout*"))
    svm = {f"{kind}-SVM (one-vs-rest), half width" for kind in ("CNN", "DSN")}
    assert set(record["missing"]) == {"DSN-Softmax, half width", "Stochastic Pooling"} | svm
    capsys.readouterr()
    for given, said in (
        (["--rows", "Maxouts"], "no row 'Maxouts'; did you mean 'Maxout'?"),
        (["--rows", "CNN", "--repeat", "CNN"], "--rows with --repeat; expected --rows with one target"),
    ):
        assert main([*words, *given]) == 2
        assert said in capsys.readouterr().err
    assert main(["reproduce", "all", "--rows", "CNN"]) == 2
    assert json.loads(kept.read_text()) == record


def test_a_part_of_the_rows_loses_none_that_was_made_with_other_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Fewer seeds than recorded: the record's other rows do not hold any more, and are not trained either."""
    words = ["reproduce", "mnist", "--preset", "smoke", "--out", str(tmp_path)]  # no --results: the record beside runs
    assert main([*words, "--rows", "Maxout", "CNN", "--seeds", "2"]) == 0
    before = (tmp_path / "records" / "mnist-smoke" / "record.json").read_text()
    capsys.readouterr()
    assert main([*words, "--rows", "CNN"]) == 2
    said = capsys.readouterr().err
    assert "--rows would drop 1 of 2 rows of the record" in said
    assert "Maxout; expected --resume without --rows" in said
    assert (tmp_path / "records" / "mnist-smoke" / "record.json").read_text() == before
    assert main([*words, "--rows", "Maxout", "CNN"]) == 0  # both are named: both are trained again
    record = read_record(tmp_path / "records" / "mnist-smoke" / "record.json")
    assert [row["seeds"] for row in record["rows"]] == [[0], [0]]


@pytest.mark.parametrize("target", [name for name, target in TARGETS.items() if target.read is not no_reading])
@pytest.mark.parametrize("place", [0, -1])
def test_a_reading_takes_a_part_of_the_rows(target: str, place: int, tmp_path: Path) -> None:
    """Whatever row is trained first, a record and a figure can be made of it."""
    row = plan_of(target, "smoke", tmp_path).rows[place]
    assert main(["reproduce", target, "--preset", "smoke", "--out", str(tmp_path), "--rows", row.method.name]) == 0
    record = read_record(tmp_path / "records" / f"{target}-smoke" / "record.json")
    assert [RowId.of(each) for each in record["rows"]] == [row.id]
