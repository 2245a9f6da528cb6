"""A target and a preset -> its runs, and one record: a line for every row, ours beside the paper's."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import torch

from deepsup.errors import ConfigError, nearest
from deepsup.io import read_json, write_whole
from deepsup.paper.plan import Plan, Row, check_preset, in_one_precision, minutes, smoke_plan, start_plan, with_seeds
from deepsup.paper.provenance import history
from deepsup.paper.record_rows import (
    Entry,
    environment_here,
    join_seeds,
    lacks_seeds,
    record_row,
    rest_of,
    rows_that_hold,
)
from deepsup.paper.row_id import RowId
from deepsup.paper.targets import TARGETS, Target, find_target
from deepsup.paper.theory import study
from deepsup.paper.verdicts import compare_rows
from deepsup.trainer.config import Config
from deepsup.trainer.runs import train
from deepsup.trainer.studies import EXTENSIONS, Engine, Watcher, pool, run_study

THEORY = "Theory: the lemmas and the theorem, simulated"


def reproduce(
    name: str,
    preset: str = "cpu",
    out: Path = Path("runs/reproduce"),
    *,
    jobs: int = 1,
    engine: Engine | None = None,
    seeds: int | None = None,
    only: Sequence[str] = (),
    watch: Watcher = lambda *_: None,
    leave: Callable[[dict[str, Any]], object] = lambda _: None,
    earlier: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Run what is missing of one target, write ``record.json`` after each group of rows, and return the record.

    earlier: a record of the target, perhaps of another machine; rows that it has with the same settings are not
        trained again.
    leave: called with the record after each group of rows.
    jobs: processes to train in at a time, each with its share of the cores.
    engine: where to train, in place of ``jobs``: on a Ray cluster, for example.
    only: rows to train, by their methods or labels; none: all that are missing.
    seeds: another number of seeds than the preset's.
    """
    if jobs < 1:
        raise ConfigError(f"jobs={jobs}; expected at least 1")
    engine = engine or Engine(jobs=jobs)
    began, folder = time.monotonic(), record_folder(out, name, preset)
    record: dict[str, Any] = {}
    spent = 0.0 if earlier is None else earlier["wall_minutes"]
    for body in (
        [theory_body(preset)]
        if name == "theory"
        else trained_bodies(name, preset, out, engine, seeds, only, watch, earlier)
    ):
        record = {
            "target": name,
            "preset": preset,
            "command": command_of(name, preset, engine, seeds),
            **body,
            "environment": environment_here() | {"jobs": engine.jobs or 1},
            "wall_minutes": round(spent + (time.monotonic() - began) / 60, 2),
        }
        write_whole(folder / "record.json", (json.dumps(record, indent=1) + "\n").encode())
        leave(record)
    return record


def command_of(name: str, preset: str, engine: Engine, seeds: int | None) -> str:
    """Return the command that makes a record again; the threads of a run follow from the jobs."""
    words = [
        "deepsup",
        "reproduce",
        name,
        "--preset",
        preset,
        *engine.options(),
        *(["--seeds", str(seeds)] * bool(seeds)),
    ]
    return " ".join(words)


def record_folder(out: Path, name: str, preset: str) -> Path:
    """Return the folder of a target's record and figure, made if it is not there."""
    check_preset(preset)
    if name != "theory":
        find_target(name)
    folder = out / "records" / f"{name}-{preset}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def theory_body(preset: str) -> dict[str, Any]:
    """Return the record of the theory's simulation."""
    return {"title": THEORY, **study(preset)}


def plan_of(name: str, preset: str, out: Path, seeds: int | None = None) -> Plan:
    """Return the rows of a target under a preset."""
    target = find_target(name)
    if preset == "smoke":
        return with_seeds(smoke_plan(target.plan("cpu"), out), seeds)
    if preset == "start":
        return with_seeds(start_plan(target.plan("paper")), seeds)
    return with_seeds(target.plan(preset), seeds)


def target_list() -> dict[str, dict[str, Any]]:
    """Return target -> its title, and about how many minutes it takes on two cores under each preset."""
    return {
        **{
            name: {
                "title": target.title,
                "minutes": {preset: round(minutes(plan_of(name, preset, Path()))) for preset in ("cpu", "paper")},
            }
            for name, target in TARGETS.items()
        },
        "theory": {"title": THEORY, "minutes": {"cpu": 2, "paper": 20}},
    }


def trained_bodies(
    name: str,
    preset: str,
    out: Path,
    engine: Engine,
    seeds: int | None,
    only: Sequence[str],
    watch: Watcher,
    earlier: Mapping[str, Any] | None,
) -> Iterator[dict[str, Any]]:
    """Run the groups of a target one after the other; after each, yield what has come out so far."""
    plan, target = plan_of(name, preset, out, seeds), find_target(name)
    wanted = rows_named(plan, only)
    folder = out / (f"{preset}-{plan.runs}" if preset in ("smoke", "start") else plan.runs)
    plan = in_one_precision(plan, earlier, folder)
    rows = {} if earlier is None else rows_that_hold(plan, earlier, measurements=target.measure is not None)
    if only and earlier is not None:
        check_kept(earlier, wanted | rows.keys())
    with pool(engine, folder) as run_all:
        for place, group in enumerate(plan.groups, 1):
            prefix = f"part {place} of {len(plan.groups)}: " if len(plan.groups) > 1 else ""

            def watch_part(what: str, done: int, total: int, prefix: str = prefix) -> None:
                watch(prefix + what, done, total)

            left = [row for row in group if row.id in wanted and (row.id not in rows or lacks_seeds(row, rows[row.id]))]
            methods = [(rest_of(row, rows[row.id]) if row.id in rows else row).method for row in left]
            most = 0 if preset == "smoke" else EXTENSIONS  # two steps teach nothing
            outcomes = run_study(methods, folder, run_all, watch_part, most) if left else []
            for row, outcome in zip(left, outcomes, strict=True):
                entry = record_row(row, outcome, target.measure)
                rows[row.id] = join_seeds(rows[row.id], entry) if row.id in rows else entry
            if left or place == len(plan.groups):
                yield body_of(target, name, plan, rows)


def rows_named(plan: Plan, names: Sequence[str]) -> set[RowId]:
    """Return the rows of a plan with these methods, labels or parts of labels; all, if no name is given."""
    words = {row.id: {row.id.method, row.method.name, *row.method.name.split(", ")} for row in plan.rows}
    known = dict.fromkeys(word for each in words.values() for word in sorted(each))
    for name in names:
        if name not in known:
            raise ConfigError(f"no row {name!r}; {nearest(name, known)}")
    return {row for row, each in words.items() if not names or each & set(names)}


def check_kept(earlier: Mapping[str, Any], kept: Set[RowId]) -> None:
    """Refuse to train a part of the rows if a row of the earlier record would be lost."""
    lost = [entry["row"] for entry in earlier["rows"] if RowId.of(entry) not in kept]
    if lost:
        raise ConfigError(
            f"--rows would drop {len(lost)} of {len(earlier['rows'])} rows of the record, which have other settings or "
            f"seeds than now: {'; '.join(lost[:3])}{'; ...' * (len(lost) > 3)}; expected --resume without --rows, "
            f"which trains them again, or another --results folder"
        )


def body_of(target: Target, name: str, plan: Plan, rows: Mapping[RowId, Entry]) -> dict[str, Any]:
    """Return the rows that have been run, what is read off them, and the labels of the rows that have not."""
    done_rows = [row for row in plan.rows if row.id in rows]
    entries = {row.id: rows[row.id] for row in done_rows}
    more = target.read(entries)
    return {
        "title": target.title,
        **history(name),
        "rows": list(entries.values()),
        "missing": [row.method.name for row in plan.rows if row.id not in rows or lacks_seeds(row, rows[row.id])],
        "readings": more.get("rows", []),
        "tests": [
            comparison({"rows": list(entries.values())}, *pair) for pair in plan.pairs if set(pair) <= entries.keys()
        ],
        "figure": more.get("figure") or figure_of(plan, done_rows, list(entries.values())),
        "training_minutes": round(sum(sum(entry["seconds"]) for entry in entries.values()) / 60, 1),
    }


def comparison(record: Mapping[str, Any], ours: RowId, theirs: RowId) -> dict[str, Any]:
    """Return the ratio of two rows' errors, seed by seed; below 1, the first is better."""
    first, second = (next(row["row"] for row in record["rows"] if RowId.of(row) == name) for name in (ours, theirs))
    names = {"ours": ours.to_dict(), "theirs": theirs.to_dict(), "test": f"{first} / {second}"}
    return {**names, **(compare_rows(record, ours, theirs) or {})}


def figure_of(plan: Plan, done_rows: Sequence[Row], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what to draw: lines in the plan's panels; bars beside the paper's, also where a line has one point yet."""
    if len({place.x for row in done_rows for place in row.places}) < 2:
        bars = {row["row"]: {"paper": row["paper"], "ours": row["mean"]} for row in rows}
        sizes = {row["config"]["train_size"] for row in rows if row["paper"] is not None} - {None}
        epochs = sorted({row["config"]["epochs"] for row in rows if row["paper"] is not None})
        cuts = [f"{min(sizes):,} training images"] if sizes else []
        cuts += (
            [f"{' to '.join(dict.fromkeys(f'{each:,}' for each in (epochs[0], epochs[-1])))} epochs"] if epochs else []
        )
        cut = f" (ours: {', '.join(cuts)})" if cuts else ""
        return {"kind": "bars", "y": f"test error, %{cut}", "bars": bars}
    panels: list[dict[str, Any]] = [
        {"x": panel.x, "y": "test error, %", "log": panel.log, "title": panel.title, "lines": {}}
        for panel in plan.panels
    ]
    for row, entry in zip(done_rows, rows, strict=True):
        for place in row.places:
            empty = {"x": [], "y": [], "deviation": [], "look": place.look or place.line}
            line = panels[place.panel]["lines"].setdefault(place.line, empty)
            line["x"].append(place.x)
            line["y"].append(entry["mean"])
            line["deviation"].append(entry["deviation"])
    return {"kind": "lines", **panels[0]} if len(panels) == 1 else {"kind": "panels", "panels": panels}


def repeat(record: Mapping[str, Any], row_name: str, seed: int, folder: Path) -> tuple[float, float]:
    """Train one seed of a recorded row again, with its config and threads; return the recorded error and the new."""
    rows = {row["row"]: row for row in record["rows"] if "config" in row}
    if row_name not in rows:
        raise ConfigError(f"no row {row_name!r} in the record; rows: {'; '.join(rows)}")
    row = rows[row_name]
    if seed not in row["seeds"]:
        raise ConfigError(f"seed {seed} was not run; expected one of {', '.join(map(str, row['seeds']))}")
    place = row["seeds"].index(seed)
    before = torch.get_num_threads()
    torch.set_num_threads(row["threads"][place])
    try:
        config = Config.recorded({**row["config"], "seed": seed})
        if "start" in row:
            start = train(Config.recorded({**row["start"]["config"], "seed": seed}), folder / "start")
            config = config.replace(start_from=str(start.folder))
        run = train(config, folder)
    finally:
        torch.set_num_threads(before)
    error = run.result["error"]
    assert error is not None, "a target measures the test set"
    return row["values"][place], error


def with_unrun(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with the number of comparisons that its target plans and that have not run: ``unrun``."""
    name = record["target"]
    planned = set(plan_of(name, record["preset"], Path()).pairs) if name in TARGETS else set()
    ran = {(RowId.of(test, "ours"), RowId.of(test, "theirs")) for test in record.get("tests", [])}
    return {**record, "unrun": len(planned - ran)}


def read_record(path: Path) -> dict[str, Any]:
    """Return the record of a target under a preset, as ``reproduce`` wrote it."""
    return read_json(
        path, {"target": str, "preset": str, "rows": [{}]}, "expected a record that deepsup reproduce made"
    )
