"""Every target at smoke: the right runs, the right lines, resumed where stopped, and repeated to the digit."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from scipy import stats

from deepsup.cli import main
from deepsup.errors import ConfigError, RunError
from deepsup.paper import minutes, plan_of, read_record, repeat, reproduce
from deepsup.paper.fast_targets import FAST, FEW, MINUTES, WITH, WITHOUT
from deepsup.paper.plan import differences, seconds
from deepsup.paper.printed import TABLES
from deepsup.paper.record_rows import told_row, what_counts
from deepsup.paper.reproduce import compared
from deepsup.paper.row_id import RowId
from deepsup.paper.targets import NAMES, STUDIES, TARGETS
from deepsup.trainer.config import Config
from deepsup.trainer.recipes import FLAT_COMPANIONS, PRINTED, RECIPES
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.studies._study import Job, Outcome


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
        assert {r["id"]["method"]: r["paper"] for r in record["rows"]} == {**printed, "DSN-Softmax": None}
        # the paper's numbers are of all images, and ours are drawn beside them
        assert record["figure"]["y"] == "test error, % (ours: 40 training images)"
    if name != "theory":
        planned = plan_of(name, "smoke", out)
        assert [RowId.of(row) for row in record["rows"]] == [row.id for row in planned.rows]
        assert record["test_read_before"] in (0, 1, "not recorded")
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
        (line,) = [line for line in lines if re.match(rf"{method}(,| )", line) and "smoke:" in line]
        assert f"{error:.4g}" in line
        assert "(n 1)" in line


def test_a_row_is_what_its_runs_say(out: Path) -> None:
    record = reproduce("l1-l2", "smoke", out)
    first = record["rows"][0]
    folder = out / "smoke-l1-l2-cpu"
    tried = {path.name: RunFolder(path) for path in (folder / "search").iterdir()}
    assert len(tried) == 2  # only the first row of a smoke plan chooses
    assert all(run.result["error"] is None for run in tried.values())  # the test set is not read to choose
    found = {name.removeprefix("dsn-svm-l2-").removesuffix("-seed0"): run.result["validation_error"]
             for name, run in tried.items()}  # fmt: skip
    assert first["choice"] == min(first["search"], key=lambda choice: found[choice])
    run = RunFolder(folder / f"dsn-svm-l2-{first['choice']}-seed0")
    assert first["values"] == [run.result["error"]]
    assert Config.from_dict(first["config"]) == run.config
    assert first["threads"] == [run.environment["threads"]]


def test_a_target_goes_on_with_the_missing_runs_only(out: Path) -> None:
    before = reproduce("pretraining", "smoke", out)
    folder = out / "smoke-pretraining-cpu"
    times = {path: path.stat().st_mtime_ns for path in folder.rglob("result.json")}
    (lost,) = folder.glob("greedy-pre-training-*/result.json")
    lost.unlink()
    again = reproduce("pretraining", "smoke", out)
    assert [row["values"] for row in again["rows"]] == [row["values"] for row in before["rows"]]
    assert {path for path, time in times.items() if path.stat().st_mtime_ns != time} == {lost}


def test_a_recorded_row_repeats_to_the_digit(out: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    record = reproduce("robustness", "smoke", out)
    name = "DSN-SVM, lr 0.001"
    recorded, now = repeat(record, name, 0, tmp_path / "run")
    assert recorded == now
    results = tmp_path / "results"
    results.mkdir()
    (results / "robustness-smoke.json").write_text(json.dumps(record))
    words = ["reproduce", "robustness", "--preset", "smoke", "--results", str(results), "--repeat", name, "--json"]
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
    outcome = Outcome("a", "lr1", config, {}, jobs, [ended, {"failed": "diverged"}, {**ended, "error": 5.0}])
    row = plan_of("robustness", "cpu", Path()).rows[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deepsup.trainer.runs._folder.RunFolder.environment", {"threads": 1})
        told = told_row(row, outcome)
    assert told["values"] == [3.0, None, 5.0]
    assert (told["mean"], told["diverged"], told["companions"]) == (4.0, 1, {"conv1": 9.0})
    assert told["deviation"] == pytest.approx(2**0.5)


def test_the_paired_test_equals_scipys() -> None:
    generator = torch.Generator().manual_seed(0)
    ours, theirs = (torch.rand(6, generator=generator).tolist() for _ in range(2))
    rows = {RowId(name): {"row": name, "values": [*values, lost]}
            for name, values, lost in (("a", ours, 0.5), ("b", theirs, None))}  # fmt: skip
    found, oracle = compared(rows, RowId("a"), RowId("b")), stats.ttest_rel(ours, theirs)
    low, high = oracle.confidence_interval(0.95)
    assert found["p"] == pytest.approx(oracle.pvalue)
    assert found["interval"] == pytest.approx([low, high])
    assert (found["test"], found["n"]) == ("a - b", 6)
    assert (found["ours"], found["theirs"]) == ({"method": "a"}, {"method": "b"})


def test_the_paper_preset_is_the_recipes() -> None:
    for name, table in TABLES.items():
        rows = {row.method.name: row for row in plan_of(name, "paper", Path()).rows}
        for method, (error, recipe) in table.rows.items():
            full = RECIPES[recipe]().replace(tensorboard=False)
            assert rows[method].paper == error
            assert [
                config.optimizer.lr / full.optimizer.lr for config in rows[method].method.choices.values()
            ] == pytest.approx([0.3, 1, 3])
            assert all(config.replace(lr=full.optimizer.lr) == full for config in rows[method].method.choices.values())
    assert plan_of("svhn", "paper", Path()).rows[0].method.choices["lr0.001"].data.extra
    nets = {c.network.name for row in plan_of("fig2b-nin", "paper", Path()).rows for c in row.method.choices.values()}
    assert nets == {"nin-mnist"}


def test_what_differs_is_said() -> None:
    full = RECIPES["dsn-cifar10"]()
    assert differences(full, full) == ""
    assert differences(full.replace(network_options={"width": 0.5, "init": "he"}), full) == (
        "0.5 times the width; He initialization"
    )
    said = differences(full.replace(train_size=1000, epochs=8, network="fast"), full)
    assert said == "1,000 training images, not 50,000; 8 epochs, not 400; the net fast, not nin-cifar10"


def test_minutes_are_stated_and_grow_with_the_work(capsys: pytest.CaptureFixture) -> None:
    assert main(["reproduce", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["targets"]
    assert list(told) == list(NAMES)
    same = (*STUDIES, "fast-few", "fig2b", "when", "when-companions", "when-tuning", "when-controls", "dense", *FAST)
    assert all(
        0 < told[name]["minutes"]["cpu"] < told[name]["minutes"]["paper"] for name in TARGETS if name not in same
    )
    few, many = (minutes(plan_of("l1-l2", "cpu", Path(), seeds)) for seeds in (1, 3))
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


def test_fig2b_trains_nin_fairly() -> None:
    """The same steps for all sizes, the same number of candidates for all methods, He initialization, 500 first."""
    plan = plan_of("fig2b-nin", "cpu", Path())
    for row in plan.rows:
        assert len(row.method.choices) == 4
        assert row.method.seeds == (10 if row.id.size == 500 else 5)
        for config in row.method.choices.values():
            assert (config.network.name, config.network.options) == ("nin-mnist", {"init": "he"})
            assert config.data.train_size == row.id.size
            assert config.run.epochs * config.data.train_size == 1200 * config.run.batch_size
            assert (config.supervision.taps == ("none",)) == row.id.method.startswith("CNN")
            assert (config.objective.loss == "softmax") == row.id.method.endswith("Softmax")
            heads = {"": (1 / 8, "auto"), "flat": (0.01, "none"), "weak": (1.0, "4"), "printed": (1.0, "none")}
            assert (config.optimizer.head_lr, config.supervision.pool) == heads[row.id.companions]
    assert [[(row.id.size, row.id.companions) for row in group] for group in plan.groups[:4]] == [
        [(500, "")] * 4,
        *([(500, kind)] * 2 for kind in ("flat", "weak", "printed")),
    ]
    assert {row.id.size for row in plan.rows} == {250, 500, 1000, 2000, 5000}


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_on_digits_trains_nin_and_a_lenet(name: str) -> None:
    half = {"init": "he", "width": 0.5}
    for target, net, options in ((f"{name}-nin", "nin-mnist", half), (name, "cnn", {})):
        for row in plan_of(target, "cpu", Path()).rows:
            assert ("half width" in row.method.name) == (options == half)
            choices = list(row.method.choices.values())
            assert {(config.network.name, str(config.network.options)) for config in choices} == {(net, str(options))}
            if target != "robustness-nin" and net == "nin-mnist":
                assert len(choices) == 4  # the same number for every method
    assert plan_of(name, "paper", Path()).runs == plan_of(name, "cpu", Path()).runs
    full = plan_of(f"{name}-nin", "paper", Path())
    assert {config.network.options.get("init") for row in full.rows for config in row.method.choices.values()} == {None}


def test_fig2a_and_the_tables_train_flat_companions() -> None:
    """Flat maps, added losses, a constant alpha, a hundredth of the rate: in every row of a DSN, and in no other."""
    for target in ("fig2a-nin", "fig2c-nin", *TABLES):
        for row in plan_of(target, "cpu", Path()).rows:
            dsn = row.id.method.startswith("DSN")
            for config in row.method.choices.values():
                assert (config.supervision.taps == ("none",)) == (not dsn)
                if dsn:
                    assert config == config.replace(**{**FLAT_COMPANIONS, "alpha": config.objective.alpha})


@pytest.mark.parametrize("target", ["fig2b-nin", "robustness-nin"])
def test_the_papers_preset_has_companions_as_printed(target: str) -> None:
    """So that its verdict is not that of our defaults."""
    plan = plan_of(target, "paper", Path())
    for row in plan.rows:
        assert row.id.companions == ("printed" if row.id.method.startswith("DSN") else "")
        assert ("as printed" in row.method.name) == row.id.method.startswith("DSN")
    ids = {row.id for row in plan.rows}
    assert all({ours, theirs} <= ids for ours, theirs in plan.pairs)


def test_robustness_on_nin_has_two_kinds_of_companions() -> None:
    """The same grid, net and seeds for all; flat companions come first, with the nets without companions."""
    first, second = plan_of("robustness-nin", "cpu", Path()).groups
    lines = {(row.id.method, row.id.companions) for row in first}
    assert lines == {("CNN-Softmax", ""), ("CNN-SVM", ""), ("DSN-Softmax", "flat"), ("DSN-SVM", "flat")}
    assert {(row.id.method, row.id.companions) for row in second} == {("DSN-Softmax", ""), ("DSN-SVM", "")}
    grids: dict[tuple[str, str], list[float]] = {}
    for row in (*first, *second):
        (config,) = row.method.choices.values()
        assert (config.optimizer.lr, row.method.seeds) == (row.id.lr, 3)
        kind = "flat" if config.supervision.pool == "none" else ""
        assert kind == row.id.companions
        assert not row.id.companions or config.objective.alpha == ((1.0,) if "Softmax" in row.id.method else (0.3,))
        grids.setdefault((row.id.method, row.id.companions), []).append(config.optimizer.lr)
    assert len(grids) == 6
    for loss, best in (("Softmax", 0.03), ("SVM", 0.003)):  # the CNN's rate, as fig2b-nin chose it
        (grid,) = {tuple(grid) for (method, _), grid in grids.items() if method.endswith(loss)}
        assert [round(lr / best, 2) for lr in grid] == [0.03, 0.1, 0.33, 1.0, 3.33, 10.0]


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_one_budget(name: str) -> None:
    """The same images, epochs and batches for every row; NIN with and without companions has as many candidates."""
    plan = plan_of(name, "cpu", Path())
    configs = [config for row in plan.rows for config in row.method.choices.values()]
    assert {(c.data.train_size, c.total_epochs, c.run.batch_size, c.data.extra) for c in configs} == {
        (5000, 10, 25, False)
    }
    assert {config.network.options["init"] for config in configs} == {"he"}
    own = [row for row in plan.rows if row.id.method in ("NIN", "DSN-SVM", "DSN-Softmax")]
    assert [len(row.method.choices) for row in own] == [4, 4, 4]
    assert [row.method.seeds for row in plan.rows] == [3] * 3 + [1] * (len(plan.rows) - 3)
    assert all("half width" in row.method.name for row in own)
    nets = {(config.network.name, str(config.network.options)) for row in own for config in row.method.choices.values()}
    assert len(nets) == 1


def test_fig2b_on_a_lenet_is_what_its_record_has() -> None:
    record = read_record(Path(__file__).parents[2] / "results" / "fig2b-cpu.json")
    recorded = {RowId.of(row): row for row in record["rows"]}
    for row in plan_of("fig2b", "cpu", Path()).rows:
        held = recorded[row.id]
        assert held["row"] == row.method.name
        assert Config.recorded(held["config"]) == replace(row.method.choices[held["choice"]], seed=0)
        assert list(row.method.choices) == list(held["search"])
        assert held["chosen_on"]["seeds"] == row.method.searches


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
    first, *others = reproduce("l1-l2", "smoke", out)["rows"]
    run = next(RunFolder(path) for path in (out / "smoke-l1-l2-cpu" / "search").iterdir())
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
        (["fig2d"], "no target 'fig2d'; did you mean 'fig2c'"),
        (["fig2a", "--preset", "cpus"], "no preset 'cpus'; did you mean 'cpu'"),
        (["fig2a", "--seeds", "0"], "seeds=0; expected at least 1"),
        (["fig2a", "--jobs", "0"], "jobs=0; expected at least 1"),
        (["fig2a", "--repeat", "x", "--results", "nowhere"], "cannot read nowhere/fig2a-cpu.json"),
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
