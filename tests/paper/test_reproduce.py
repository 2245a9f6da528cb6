"""Every target at smoke: the right runs, the right lines, resumed where stopped, and repeated to the digit."""

import json
import re
from dataclasses import replace
from pathlib import Path
from statistics import stdev

import pytest

from deepsup.cli import main
from deepsup.errors import ConfigError, RunError
from deepsup.paper import minutes, plan_of, read_record, repeat, reproduce
from deepsup.paper.own_targets import FAST, FEW, MINUTES
from deepsup.paper.plan import differences, seconds
from deepsup.paper.printed import TABLES
from deepsup.paper.record_rows import record_row, what_counts
from deepsup.paper.reproduce import comparison
from deepsup.paper.row_id import WITH, WITHOUT, RowId
from deepsup.paper.targets import NAMES, TARGETS
from deepsup.trainer.config import Config
from deepsup.trainer.recipes import FLAT_COMPANIONS, PRINTED, RECIPES
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.studies._rate_choice import Job, Outcome, slug


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reproduce")


SLOW = {"cifar10", "cifar10-augmented", "cifar100"}
"""Tables like ``mnist`` and ``svhn``, of larger nets."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in NAMES])
def test_every_target_has_its_rows_a_record_and_a_figure(name: str, out: Path, capsys: pytest.CaptureFixture) -> None:
    words = ["reproduce", name, "--preset", "smoke", "--out", str(out), "--results", str(out / "results")]
    assert main([*words, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    kept = json.loads((out / "results" / f"{name}-smoke.json").read_text())
    assert kept["rows"] == record["rows"]
    assert json.loads(Path(record["record"]).read_text()) == kept
    assert (out / "results" / f"{name}-smoke.png").read_bytes().startswith(b"\x89PNG")
    if name in TABLES:
        printed = {method: error for method, (error, _) in TABLES[name].rows.items()}
        numbers = {r["id"]["method"]: r["paper"] for r in record["rows"]}
        assert (numbers.pop("CNN-Softmax"), numbers.pop("DSN-Softmax")) == (printed.pop("NIN"), None)
        assert numbers.pop("DSN-SVM", printed["DSN-SVM"]) == printed.pop("DSN-SVM")
        assert numbers.pop("CNN-SVM", None) is None
        assert numbers == printed  # the rivals
        # the paper's numbers are of all images, and ours are drawn beside them
        assert record["figure"]["y"] == "test error, % (ours: 40 training images, 2 epochs)"
    if name != "theory":
        planned = plan_of(name, "smoke", out)
        assert [RowId.of(row) for row in record["rows"]] == [row.id for row in planned.rows]
        assert record["test_read_before"] in (0, 1, 2, "not recorded")
        tested = [(RowId.of(test, "ours"), RowId.of(test, "theirs")) for test in record["tests"]]
        ran = {row.id for row in planned.rows}
        assert tested == [pair for pair in plan_of(name, "cpu", out).pairs if set(pair) <= ran]
        assert kept["environment"]["torch"]
        assert str(out) not in json.dumps(kept | {"rows": []})  # smoke trains on a file of its own


def test_people_get_one_line_a_row(out: Path, capsys: pytest.CaptureFixture) -> None:
    words = ["reproduce", "svhn", "--preset", "smoke", "--out", str(out)]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    for method, (error, _) in TABLES["svhn"].rows.items():
        if method in ("NIN", "DSN-SVM"):
            continue
        (line,) = [line for line in lines if re.match(rf"{method}(,| )", line) and "smoke:" in line]
        assert f"{error:.4g}" in line
        assert "(n 1)" in line


def test_a_row_is_what_its_runs_say(out: Path) -> None:
    record = reproduce("l1-l2-nin", "smoke", out)
    first = record["rows"][0]
    folder = out / "smoke-l1-l2-nin-cpu"
    tried = {path.name: RunFolder(path) for path in (folder / "search").iterdir()}
    assert len(tried) == 2  # only the first row of a smoke plan chooses
    assert all(run.result["error"] is None for run in tried.values())  # the test set is not read to choose
    method = plan_of("l1-l2-nin", "smoke", out).rows[0].method
    errors = {name.removeprefix(f"{slug(method.trial_name)}-").removesuffix("-seed0"): run.result["validation_error"]
              for name, run in tried.items()}  # fmt: skip
    assert first["choice"] == min(first["search"], key=lambda choice: errors[choice])
    run = RunFolder(folder / f"{slug(method.name)}-{first['choice']}-seed0")
    assert first["values"] == [run.result["error"]]
    assert Config.from_dict(first["config"]) == run.config
    assert first["threads"] == [run.environment["threads"]]


def test_a_target_goes_on_with_the_missing_runs_only(out: Path) -> None:
    before = reproduce("pretraining-nin", "smoke", out)
    folder = out / "smoke-pretraining-nin-cpu"
    times = {path: path.stat().st_mtime_ns for path in folder.rglob("result.json")}
    name = slug(plan_of("pretraining-nin", "smoke", out).rows[2].method.name)
    (lost,) = folder.glob(f"{name}-lr*/result.json")
    lost.unlink()
    again = reproduce("pretraining-nin", "smoke", out)
    assert [row["values"] for row in again["rows"]] == [row["values"] for row in before["rows"]]
    assert {path for path, time in times.items() if path.stat().st_mtime_ns != time} == {lost}


def test_a_recorded_row_repeats_to_the_digit(out: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    record = reproduce("robustness-nin", "smoke", out)
    name = "DSN-SVM (one-vs-rest), half width, lr 0.001"
    recorded, now = repeat(record, name, 0, tmp_path / "run")
    assert recorded == now
    results = tmp_path / "results"
    results.mkdir()
    (results / "robustness-nin-smoke.json").write_text(json.dumps(record))
    words = ["reproduce", "robustness-nin", "--preset", "smoke", "--results", str(results), "--repeat", name, "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["same"]
    assert main([*words[:-2], "no such row"]) == 2
    assert "no row 'no such row'" in capsys.readouterr().err
    assert main([*words[:-2], f"{name}@7"]) == 2
    assert "seed 7 was not run" in capsys.readouterr().err


def test_a_training_that_diverges_is_a_result() -> None:
    ended = {"error": 3.0, "companions": {"conv1": 9.0}, "seconds": 60.0}
    config = Config()
    jobs = [Job("a", "lr1", config.replace(seed=seed), Path()) for seed in (0, 1, 2)]
    outcome = Outcome("a", "lr1", config, {}, jobs, [ended, {"failed": "diverged"}, {**ended, "error": 5.0}],
                      chance=90.0)  # fmt: skip
    row = plan_of("robustness-nin", "cpu", Path()).rows[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deepsup.trainer.runs._folder.RunFolder.environment", {"threads": 1})
        entry = record_row(row, outcome)
    assert entry["values"] == [3.0, None, 5.0]
    assert (entry["mean"], entry["diverged"], entry["companions"]) == (
        98 / 3,
        1,
        {"conv1": 9.0},
    )  # it counts as guessing
    assert entry["deviation"] == pytest.approx(stdev([3.0, 90.0, 5.0]))


def test_two_rows_are_compared_by_the_ratio_of_their_errors() -> None:
    """A training that diverged counts as guessing."""
    errors = {"a": [2.0, 3.0, 90.0], "b": [4.0, 6.0, None]}
    rows = [{"id": RowId(name).to_dict(), "row": name, "values": values, "seeds": [0, 1, 2], "guessing": 90.0}
            for name, values in errors.items()]  # fmt: skip
    test = comparison({"rows": rows}, RowId("a"), RowId("b"))
    assert test["ratio"] == pytest.approx((0.5 * 0.5 * 1.0) ** (1 / 3))
    assert (test["test"], test["pairs"], test["lower"], test["equal"]) == ("a / b", 3, 2, 1)
    assert (test["ours"], test["theirs"]) == ({"method": "a"}, {"method": "b"})


def test_what_differs_is_said() -> None:
    full = RECIPES["dsn-cifar10"]().replace(network_options={})
    assert differences(full, full) == ""
    assert differences(full.replace(network_options={"width": 0.5, "init": "he"}), full) == (
        "0.5 times the width; He initialization"
    )
    said = differences(full.replace(train_size=1000, epochs=8, network="fast"), full)
    assert said == "1,000 training images, not 50,000; 8 epochs, not 400; the net fast, not nin-cifar10"


def test_minutes_are_stated_and_grow_with_the_work(capsys: pytest.CaptureFixture) -> None:
    assert main(["reproduce", "--json"]) == 0
    targets = json.loads(capsys.readouterr().out)["targets"]
    assert list(targets) == list(NAMES)
    for name in ("fig2b-nin", "budget", *TABLES):
        assert 0 < targets[name]["minutes"]["cpu"] < targets[name]["minutes"]["paper"]
    few, many = (minutes(plan_of("l1-l2-nin", "cpu", Path(), seeds)) for seeds in (1, 3))
    assert few < many


@pytest.mark.parametrize("name", FAST)
def test_a_fast_recipe_is_trained_as_it_stands_and_without_companions(name: str) -> None:
    plan = plan_of(name, "cpu", Path())
    supervised, plain = plan.rows[-2:]
    recipe = RECIPES[name]().replace(tensorboard=False)
    assert recipe.supervision.taps == ("none",)
    (given,) = supervised.method.choices.values()
    assert given.supervision.taps != ("none",)
    assert what_counts(given.replace(taps=("none",))) == what_counts(recipe)
    assert plain.method.choices == {"recipe": given.replace(taps=("none",))}
    assert supervised.method.seeds == plain.method.seeds == (3 if MINUTES[name] < 30 else 1)
    assert plan.pairs == ((RowId(WITH), RowId(WITHOUT)),)
    assert supervised.paper == TABLES[FAST[name]].rows["DSN-SVM"][0]
    assert recipe.data.validation == 0  # settings were chosen before; it trains on all images
    assert (recipe.data.augment == "none") == (name != "fast-cifar10")


def test_few_images_set_companions_beside_none_at_every_size() -> None:
    plan = plan_of("fast-few", "cpu", Path())
    assert plan.pairs == tuple((RowId(WITH, size=size), RowId(WITHOUT, size=size)) for size in FEW)
    for row in plan.rows:
        for config in row.method.choices.values():
            assert config.data.train_size == row.id.size == row.places[0].x
            assert (config.supervision.taps == ("none",)) == (row.id.method == WITHOUT)
        assert row.method.seeds == 5
    rates = [{config.optimizer.lr for config in row.method.choices.values()} for row in plan.rows]
    assert all(each == rates[0] for each in rates)  # both choose from the same rates


def test_minutes_of_the_fast_net_grow_with_its_width() -> None:
    narrow, wide = (
        RECIPES["fast-cifar10"]().replace(network_options={"widths": widths})
        for widths in ([32, 128, 128], [64, 256, 256])
    )
    assert seconds(wide) > 2 * seconds(narrow)


@pytest.mark.parametrize("name", TARGETS)
def test_ids_tell_the_rows_apart(name: str) -> None:
    for preset in ("cpu", "paper"):
        plan = plan_of(name, preset, Path())
        ids = [row.id for row in plan.rows]
        assert len(set(ids)) == len(ids)
        assert len({row.method.name for row in plan.rows}) == len(ids)
        assert {each for pair in plan.pairs for each in pair} <= set(ids)


def test_when_sets_every_net_beside_itself_without_companions() -> None:
    plan = plan_of("when", "cpu", Path())
    assert {row.id.depth for row in plan.rows if row.id.size == 500} == {6, 12, 21, 30}
    assert {row.id.size for row in plan.rows if row.id.depth == 12} == {100, 250, 500, 1000, 2500, 10000}
    by_id = {row.id: row.method for row in plan.rows}
    assert len(plan.pairs) == sum(row.id.method == WITH for row in plan.rows)
    for ours, theirs in plan.pairs:
        assert (ours.method, theirs.method) == (WITH, WITHOUT)
        assert replace(ours, method=WITHOUT, companions="") == theirs
        assert by_id[ours].seeds == by_id[theirs].seeds == 5
        for supervised, bare in zip(by_id[ours].choices.values(), by_id[theirs].choices.values(), strict=True):
            if ours.companions:
                assert ours.norm == "none"
                kind = {"flat": FLAT_COMPANIONS, "printed": PRINTED}[ours.companions]
                assert supervised == bare.replace(taps=supervised.supervision.taps, **kind)
            else:
                assert supervised.replace(taps=("none",)) == bare
                assert Config(taps=("auto",)).supervision == supervised.supervision  # as a net of one's own has them
            assert supervised.run.epochs * supervised.data.train_size == 400 * supervised.run.batch_size
            assert supervised.network.options["depth"] == ours.depth


def test_a_row_says_on_what_it_was_chosen(out: Path) -> None:
    first, *others = reproduce("l1-l2-nin", "smoke", out)["rows"]
    run = next(RunFolder(path) for path in (out / "smoke-l1-l2-nin-cpu" / "search").iterdir())
    data = run.config.data
    assert first["chosen_on"] == {
        "images": data.validation, "of": Path(data.source).stem, "candidates": 2, "seeds": 1,
        "train_size": data.train_size, "epochs": run.config.total_epochs,
    }  # fmt: skip
    assert all((row["chosen_on"]["images"], row["chosen_on"]["candidates"]) == (0, 1) for row in others)
    assert first["guessing"] == 90.0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fig2d-nin"], "no target 'fig2d-nin'; did you mean 'fig2"),
        (["fig3", "--preset", "cpus"], "no preset 'cpus'; did you mean 'cpu'"),
        (["fig3", "--seeds", "0"], "seeds=0; expected at least 1"),
        (["fig3", "--jobs", "0"], "jobs=0; expected at least 1"),
        (["fig3", "--repeat", "x", "--results", "nowhere"], "cannot read nowhere/fig3-cpu.json"),
        (["summary", "--results", "nowhere"], "nowhere is no folder"),
    ],
)
def test_mistakes_get_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture) -> None:
    assert main(["reproduce", *words]) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert len(told.err.strip().splitlines()) == 1
    assert told.out == ""


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    for content in ("{", "[]", '{"target": "x"}'):
        (tmp_path / "r.json").write_text(content)
        with pytest.raises(RunError, match=r"cannot read .*r\.json"):
            read_record(tmp_path / "r.json")
    with pytest.raises(ConfigError, match="no target"):
        plan_of("nothing", "cpu", tmp_path)
