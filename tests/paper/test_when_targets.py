"""The studies around ``when``: what is held equal between rows, and what a control changes."""

import shutil
from pathlib import Path

from deepsup.paper import plan_of
from deepsup.paper.control_targets import CONTROLS, COST, DECAYS, LONGER, SHUFFLED
from deepsup.paper.fast_targets import WITH, WITHOUT
from deepsup.paper.reproduce import repeat, reproduce


def test_a_control_changes_one_thing() -> None:
    plan = plan_of("when-controls", "cpu", Path())
    rows = {row.id.method: row for row in plan.rows}
    assert list(rows) == [WITH, WITHOUT, *CONTROLS]
    base = list(rows[WITHOUT].method.choices.values())
    for name in CONTROLS:
        against = list(rows[WITH].method.choices.values()) if name == SHUFFLED else base
        rates = [config.optimizer.lr for config in against]
        configs = list(rows[name].method.choices.values())
        assert {config.optimizer.lr for config in configs} == set(rates)
        for config in configs:
            theirs = against[rates.index(config.optimizer.lr)].to_dict()
            assert len([key for key, value in config.to_dict().items() if value != theirs[key]]) == 1
        assert len(configs) == len(rates) * (len(DECAYS) if name == "weight decay alone" else 1)
        assert rows[name].method.seeds == rows[WITH].method.seeds == 5


def test_more_steps_cost_what_companions_cost() -> None:
    rows = {row.id.method: row for row in plan_of("when-controls", "cpu", Path()).rows}
    longer, bare = (next(iter(rows[name].method.choices.values())).run.epochs for name in (LONGER, WITHOUT))
    assert longer - 1 < COST * bare <= longer


def test_the_first_two_rows_are_those_of_when() -> None:
    """The same folder, names and configs: their runs are trained once."""
    ours, theirs = plan_of("when-controls", "cpu", Path()), plan_of("when", "cpu", Path())
    held = {row.id: row.method for row in theirs.rows}
    assert ours.runs == theirs.runs
    for row in ours.rows[:2]:
        assert (held[row.id].name, held[row.id].choices) == (row.method.name, row.method.choices)


def test_every_control_meets_companions_and_none() -> None:
    plan = plan_of("when-controls", "cpu", Path())
    met = {(ours.method, theirs.method) for ours, theirs in plan.pairs}
    assert met == {(WITH, WITHOUT)} | {(WITH, name) for name in CONTROLS} | {(name, WITHOUT) for name in CONTROLS}


def test_tuning_differs_by_the_companions_only() -> None:
    """The same starts, images, steps and seeds, as many candidates, and no class of the start."""
    plan = plan_of("when-tuning", "cpu", Path())
    assert [(ours.size, theirs.size) for ours, theirs in plan.pairs] == [(250, 250), (500, 500), (2500, 2500)]
    for row in plan.rows:
        assert row.method.start is not None
        assert row.method.start.data.source == "cifar100-first50"
        assert row.method.start.supervision.taps == ("none",)
        assert (len(row.method.choices), row.method.seeds) == (4, 5)
        for config in row.method.choices.values():
            assert (config.data.source, config.data.train_size) == ("cifar100-last50", row.id.size)
            assert config.run.epochs * config.data.train_size == 300 * config.run.batch_size
            assert (config.supervision.taps == ("none",)) == (row.id.method == WITHOUT)
            assert (config.network.name, config.network.options) == ("fast", row.method.start.network.options)
    assert len({str(row.method.start) for row in plan.rows}) == 1


def test_a_tuned_row_says_what_it_started_from_and_repeats(tmp_path: Path) -> None:
    record = reproduce("when-tuning", "smoke", tmp_path)
    folder = tmp_path / "smoke-when-tuning"
    (start,) = (folder / "start").iterdir()  # one seed, shared by all rows
    for row in record["rows"]:
        assert row["config"]["start_from"] == f"start/{start.name}"
        assert row["start"]["config"]["taps"] == ["none"]
        assert len(row["start"]["values"]) == len(row["seeds"]) == 1
    shutil.rmtree(folder)
    recorded, now = repeat(record, record["rows"][0]["row"], 0, tmp_path / "again")
    assert recorded == now
