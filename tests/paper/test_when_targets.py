"""The studies around ``when``: what is held equal between rows, and what a control changes."""

from pathlib import Path

from deepsup.paper import plan_of
from deepsup.paper.control_targets import CONTROLS, COST, DECAYS, LONGER, SHUFFLED
from deepsup.paper.fast_targets import WITH, WITHOUT


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
