"""The studies around ``when``: what is held equal between rows, and what a control changes."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from deepsup.errors import RunError
from deepsup.paper import plan_of
from deepsup.paper.own_claims import OWN_CLAIMS
from deepsup.paper.readings import effects
from deepsup.paper.reproduce import repeat, reproduce
from deepsup.paper.row_id import WITH, WITHOUT, RowId
from deepsup.paper.summary import BEGIN, END, summarise
from deepsup.paper.verdicts import NOT_COMPARABLE, NOT_JUDGED, NOT_REPRODUCED, PARTLY, REPRODUCED
from deepsup.paper.when_page import errors_table, harm_text, when_block
from deepsup.paper.when_targets import CONTROLS, COST, DECAYS, LONGER, SHUFFLED, combinations, companion_id
from deepsup.trainer.config import Config
from deepsup.trainer.recipes import FLAT_COMPANIONS, WEAK
from deepsup.trainer.training._build import build_net


def test_a_control_changes_one_thing() -> None:
    plan = plan_of("when-controls", "cpu", Path())
    rows = {row.id.method: row for row in plan.rows}
    assert list(rows) == [WITH, WITHOUT, *CONTROLS]
    assert {method for method, row in rows.items() if row.id.companions == "flat"} == {WITH, SHUFFLED}
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


def test_combinations_lead_from_weak_to_flat_companions() -> None:
    """The first one has the first defaults, the last one flat companions; neighbours differ by one word."""
    found = combinations()
    bare, first, *others = found.values()
    default = Config(**WEAK)
    assert (bare.supervision.taps, bare.replace(taps=first.supervision.taps)) == (("none",), first)
    assert first.supervision == default.supervision
    assert first.objective == default.replace(alpha=(1.0,)).objective
    assert others[-1] == first.replace(**FLAT_COMPANIONS)
    assert len({str(config) for config in found.values()}) == len(found) == 9
    words = [name.split(", ") for name in list(found)[1:]]
    assert [len(set(each)) for each in zip(*words, strict=True)] == [2, 2, 2]


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
    supervised = next(iter(plan.rows[0].method.choices.values()))
    assert build_net(supervised, 50, (3, 32, 32)).taps == ("group1", "group2", "group3")


def test_a_tuned_row_says_what_it_started_from_and_repeats(tmp_path: Path) -> None:
    record = reproduce("when-tuning", "smoke", tmp_path)
    folder = tmp_path / "smoke-when-tuning"
    (start,) = (folder / "start").iterdir()  # one seed, shared by all rows
    for row in record["rows"]:
        assert row["config"]["start_from"] == f"start/{start.name}"
        assert row["start"]["config"]["at"] == ["none"]
        assert len(row["start"]["values"]) == len(row["seeds"]) == 1
    shutil.rmtree(folder)
    recorded, now = repeat(record, record["rows"][0]["row"], 0, tmp_path / "again")
    assert recorded == now


def record_of(target: str, ratios: list[float], error: float = 5.0) -> dict:
    """A record of a target whose compared rows have these ratios to their bases, and whose bases this error."""
    plan = plan_of(target, "cpu", Path())
    pairs = plan.pairs[1:] if target == "when-controls" else plan.pairs
    values = {row.id: [error, 1.01 * error, 0.99 * error] for row in plan.rows}
    bases = {theirs for _, theirs in pairs}
    rows = []
    for place, (ours, theirs) in enumerate(pairs[: len(ratios)]):
        judged, other = (theirs, ours) if target == "when-controls" else (ours, theirs)
        factor = 1 / ratios[place] if target == "when-controls" else ratios[place]
        values[judged] = [each * factor * noise for each, noise in zip(values[other], (1, 1.01, 0.99), strict=True)]
    lost = {
        judged
        for ours, theirs in pairs[len(ratios) :]
        for judged in ([theirs] if target == "when-controls" else [ours])
    }
    assert bases or not lost
    for row in plan.rows:
        if row.id not in lost:
            rows.append({"id": row.id.to_dict(), "row": "?", "mean": sum(values[row.id]) / 3, "guessing": 98.0,
                         "values": values[row.id], "seeds": [0, 1, 2], "deviation": None})  # fmt: skip
    tests = [{"ours": ours.to_dict(), "theirs": theirs.to_dict()} for ours, theirs in pairs]
    return {"target": target, "preset": "cpu", "title": "A title", "rows": rows, "tests": tests}


@pytest.mark.parametrize(("target", "count"), [("when-tuning", 3), ("when-controls", 4), ("when-companions", 8)])
def test_verdicts_follow_the_record(target: str, count: int) -> None:
    starts = ("Companions", "Flat companions")
    (claim,) = [claim for claim in OWN_CLAIMS if claim.target == target and claim.what.startswith(starts)]
    verdicts = {
        REPRODUCED: record_of(target, [0.5] * count),
        PARTLY: record_of(target, [0.5] + [2.0] * (count - 1)),
        NOT_REPRODUCED: record_of(target, [2.0] * count),
        NOT_COMPARABLE: record_of(target, [0.999] * count, error=97.0),
        NOT_JUDGED: record_of(target, []),
    }
    assert {name: claim.judge(record).verdict for name, record in verdicts.items()} == {each: each for each in verdicts}


def test_the_page_says_what_is_recorded_and_what_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "results").mkdir()
    page = tmp_path / "docs" / "when.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    assert page in summarise(tmp_path / "results")
    text = page.read_text()
    assert text.startswith("before")
    assert text.endswith("after\n")
    for name in ("when", "when-companions", "when-tuning", "when-controls"):
        assert f"Not run yet: `deepsup reproduce {name} --jobs 2 --results results`" in text
    assert "old" not in text
    assert "![" not in text  # no figure of what does not exist


def test_the_page_shows_a_record_with_its_figure(tmp_path: Path) -> None:
    (tmp_path / "when-tuning-cpu.png").write_bytes(b"")
    text = when_block({("when-tuning", "cpu"): record_of("when-tuning", [0.5, 2.0, 2.0])}, tmp_path)
    assert "250 images: 0.50 (95 % 0.49 to 0.51; lower in 3 of 3, sign test p 0.25)" in text
    assert "**Shown in part.**" in text
    assert f"![A title](../{tmp_path.name}/when-tuning-cpu.png)" in text
    assert "reproduce when-tuning" not in text


def test_the_errors_of_when_stand_side_by_side() -> None:
    bare = RowId(WITHOUT, "plain", 12, "none", "sgd", size=1000)
    ids = (
        bare,
        replace(bare, method=WITH),
        replace(bare, method=WITH, companions="flat"),
        replace(bare, norm="batch"),
    )
    errors = [(30.04, 1.0), (20.0, 2.0), (10.0, 0.25), (5.0, 0.5)]
    rows = [{"id": each.to_dict(), "mean": middle, "deviation": deviation, "values": [middle, 15.0, None]}
            for each, (middle, deviation) in zip(ids, errors, strict=True)]  # fmt: skip
    assert errors_table({"rows": rows}).splitlines()[-2:] == [
        "| 12 layers, no norm layers, sgd, 1,000 digits | 30.0 ± 1.0 | 20.0 ± 2.0 (1 of 2) | 10.0 ± 0.2 (1 of 2) |  |",
        "| 12 layers, BatchNorm, sgd, 1,000 digits | 5.0 ± 0.5 |  |  |  |",
    ]


def test_harm_is_told_by_group(tmp_path: Path) -> None:
    path = tmp_path / "harm.json"
    group = {"rows": 5, "trained": 4, "geometric_mean": 0.8049, "interval": [0.7, 0.925], "pairs": 20, "better": 17,
             "harmed": ["MLP, SGD 0.1"], "woken": ["CNN, SGD 0.01"]}  # fmt: skip
    path.write_text(json.dumps({"groups": {"nine kinds": group, "others": {}}}))
    said = harm_text([path])
    assert "- nine kinds: 0.80 (95 % 0.70 to 0.93, lower in 17 of 20 pairs); 4 of 5 train" in said
    assert "harmed: MLP, SGD 0.1; 1 more train only with companions." in said
    assert "others" not in said
    path.write_text("{}")
    with pytest.raises(RunError, match=r"cannot read .*harm\.json"):
        harm_text([path])


def test_the_effect_of_a_choice_is_the_mean_over_the_others() -> None:
    """Errors that are sums of one amount per choice and seed: each amount comes back; a lost seed is left out."""
    amounts = {
        "flat heads": [-1.0, -1.5, -2.0, 0.0, -1.0],
        "sum": [0.5, 0.5, 0.75, 0.5, 0.25],
        "constant": [3.0] * 5,
    }
    rows = {}
    for name in combinations():
        added = [amounts[word] for word in name.split(", ") if word in amounts]
        rows[companion_id(name)] = {"values": [10 + seed + sum(each[seed] for each in added) for seed in range(5)]}
    found = {RowId.of(row).method: row["values"] for row in effects(rows)["rows"]}
    for factor, amount in zip(("heads", "weights", "schedule"), amounts.values(), strict=True):
        assert found[factor] == pytest.approx(amount)
    (claim,) = [claim for claim in OWN_CLAIMS if claim.what.startswith("The paper's side of each choice")]
    judged = claim.judge({"rows": [], "readings": effects(rows)["rows"]})
    assert judged.verdict == PARTLY
    assert "sum instead of mean: +0.50 points" in judged.words
    rows[companion_id("weak heads, sum, linear")]["values"][1] = None
    lost = {RowId.of(row).method: row["values"] for row in effects(rows)["rows"]}
    assert lost["heads"] == pytest.approx([-1.0, -2.0, 0.0, -1.0])
    del rows[companion_id(WITHOUT)]
    assert effects(rows) == {}
    assert claim.judge({"rows": [], "readings": []}).verdict == NOT_JUDGED
