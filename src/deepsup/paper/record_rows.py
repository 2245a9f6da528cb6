"""The outcome of a row -> its entry in the record; an entry of an earlier record -> whether it holds, what it lacks."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NotRequired, TypedDict

import torch

from deepsup.errors import ConfigError
from deepsup.paper.plan import Plan, Row
from deepsup.paper.provenance import chosen_on
from deepsup.paper.readings import Measure
from deepsup.paper.row_id import RowId
from deepsup.paper.verdicts import NONE_LEARNED, ONE_LEARNED, at_chance, guessing
from deepsup.trainer.config import Config
from deepsup.trainer.runs import RunFolder, environment_now
from deepsup.trainer.studies import COMPANIONS, EXTENSIONS, Outcome, regrown


class StartEntry(TypedDict):
    """What the runs of a row started from."""

    config: dict[str, Any]
    values: list[float]
    """Test errors in percent, one per seed."""
    seconds: list[float]


class Entry(TypedDict):
    """A row of a record; errors in percent, lists have one value per seed."""

    id: dict[str, Any]
    row: str
    unit: str
    paper: float | None
    """What the paper prints."""
    values: list[float | None]
    """Test errors; None where the training diverged."""
    mean: float
    """A training that diverged counts as guessing."""
    deviation: float | None
    seeds: list[int]
    diverged: int
    differs: str
    guessing: float
    """The error of guessing."""
    chosen_on: dict[str, Any]
    choice: str
    search: dict[str, float]
    """Candidate -> its mean validation error."""
    edges: list[str]
    search_diverged: dict[str, int]
    choosing_seconds: float
    companions: dict[str, float]
    """Tap -> the mean test error of its companion."""
    seconds: list[float]
    threads: list[int]
    made: dict[str, Any]
    """The environment."""
    made_later: NotRequired[list[dict[str, Any]]]
    """The environment of seeds that were trained later."""
    config: dict[str, Any]
    start: NotRequired[StartEntry]
    measured: NotRequired[list[dict[str, Any]]]


def environment_here() -> dict[str, Any]:
    """Return versions, hardware class and the instructions that torch uses, which decide the last bits of a result."""
    return environment_now() | {"cpu": torch.backends.cpu.get_cpu_capability()}


def record_row(row: Row, outcome: Outcome, measure: Measure | None = None) -> Entry:
    """Return one entry: errors over seeds, what was chosen and how, and the config to repeat it with.

    measure: what else to read off each run that has ended.
    """
    complete = [result for result in outcome.results if "error" in result]
    values = outcome.errors  # a training that diverged counts as guessing
    taps = complete[0]["companions"] if complete else {}
    runs = [RunFolder(job.folder) for job in outcome.jobs]
    entry: Entry = {
        "id": row.id.to_dict(),
        "row": row.method.name,
        "unit": "% test error",
        "paper": row.paper,
        "values": [result.get("error") for result in outcome.results],
        "mean": mean(values),
        "deviation": stdev(values) if len(values) > 1 else None,
        "seeds": [job.config.run.seed for job in outcome.jobs],
        "diverged": len(outcome.results) - len(complete),
        "differs": row.differs,
        "guessing": guessing(outcome.config),
        "chosen_on": chosen_on(row) | growth_of_grid(outcome),
        "choice": outcome.choice,
        "search": {choice: round(mean(errors), 3) for choice, errors in outcome.search.items()},
        "edges": list(outcome.edges),
        "search_diverged": dict(outcome.diverged),
        "choosing_seconds": round(outcome.choosing_seconds, 1),
        "companions": {tap: mean(result["companions"][tap] for result in complete) for tap in taps},
        "seconds": [result.get("seconds", 0.0) for result in outcome.results],
        "threads": [run.environment["threads"] for run in runs],
        "made": environment_here(),
        "config": recorded_config(outcome.config),
    }
    if outcome.starts:
        starts = [result for _, result in outcome.starts]
        entry["start"] = {
            "config": outcome.starts[0][0].config.to_dict(),
            "values": [result["error"] for result in starts],
            "seconds": [result["seconds"] for result in starts],
        }
    if measure is not None:
        entry["measured"] = [measure(run) if "error" in result else {}
                            for run, result in zip(runs, outcome.results, strict=True)]  # fmt: skip
    return entry


def recorded_config(config: Config) -> dict[str, Any]:
    """Return all settings; of the run to start from, its place below the study's folder."""
    place = config.network.start_from
    short = {} if place is None else {"start_from": "/".join(Path(place).parts[-2:])}
    return config.to_dict() | short


def growth_of_grid(outcome: Outcome) -> dict[str, Any]:
    """Return what a row's choice says where more candidates were tried because none of the planned ones learned."""
    if not outcome.extensions:
        return {}
    good = learned(outcome.config, min(map(mean, outcome.search.values())))
    return {"candidates": len(outcome.search), "further": ONE_LEARNED if good else NONE_LEARNED}


def learned(config: Config, error: float) -> bool:
    """Whether a net has learned, by its validation error."""
    return not at_chance(error, guessing(config))


def rows_that_hold(plan: Plan, record: Mapping[str, Any], measurements: bool) -> dict[RowId, Entry]:
    """Return the entries of an earlier record that the plan would train again as they are; others no longer hold.

    An entry may lack the last seeds of its row: ``lacks_seeds``.

    measurements: whether entries need what was read off their runs.
    """
    made = {"made": made_on(record)}
    entries: dict[RowId, Entry] = {RowId.of(entry): made | entry for entry in record["rows"]}
    return {
        row.id: {**entries[row.id], "row": row.method.name, "differs": row.differs, "paper": row.paper}
        for row in plan.rows
        if row.id in entries and holds(row, entries[row.id]) and ("measured" in entries[row.id] or not measurements)
    }


def made_on(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the environment of a record whose entries do not have their own."""
    return {key: value for key, value in record["environment"].items() if key != "jobs"}


def holds(row: Row, entry: Entry) -> bool:
    """Whether an entry has the first seeds and the candidates of a row, and the settings of the candidate it chose."""
    chosen = chosen_config(row, entry)
    seeds = seeds_of(row)
    try:
        given = Config.recorded(entry["config"])
        start = Config.recorded(entry["start"]["config"]) if "start" in entry else None
    except (ConfigError, KeyError, TypeError):  # of a version that had other settings
        return False
    facts = entry["chosen_on"]  # older records hold fewer facts
    return (
        chosen is not None
        and what_counts(given) == what_counts(chosen)
        and start == row.method.start
        and 0 < len(entry["seeds"]) <= len(seeds)
        and entry["seeds"] == seeds[: len(entry["seeds"])]
        and (set(row.method.choices) <= set(entry["search"]) or len(row.method.choices) == 1)
        and all(facts.get(key, fact) == fact for key, fact in chosen_on(row).items() if key != "candidates")
    )


def chosen_config(row: Row, entry: Entry) -> Config | None:
    """Return the config that an entry chose among the candidates of a row; None if it is none of them."""
    further = EXTENSIONS if "further" in entry["chosen_on"] else 0
    return regrown(row.method.choices, entry["search"], further).get(entry["choice"])


def seeds_of(row: Row) -> list[int]:
    """Return the seeds that a row is to have, those that are not trained yet included."""
    first = next(iter(row.method.choices.values())).run.seed
    return list(range(first, first + row.method.seeds))


def lacks_seeds(row: Row, entry: Entry) -> bool:
    """Whether seeds of a row are still to be trained."""
    return len(entry["seeds"]) < row.method.seeds


def rest_of(row: Row, entry: Entry) -> Row:
    """Return the row of the seeds that an entry lacks, with the settings that it chose."""
    chosen, seeds = chosen_config(row, entry), seeds_of(row)[len(entry["seeds"]) :]
    assert chosen is not None, "the entry holds"
    choices = {entry["choice"]: chosen.replace(seed=seeds[0])}
    return replace(row, method=replace(row.method, choices=choices, seeds=len(seeds), searches=1))


def join_seeds(entry: Entry, more: Entry) -> Entry:
    """Return an entry with the seeds of another one, which was trained later with the same settings."""
    values = [*entry["values"], *more["values"]]
    errors = [entry["guessing"] if value is None else value for value in values]
    counts = [len(each["seeds"]) - each["diverged"] for each in (entry, more)]
    companions = {
        tap: (counts[0] * entry["companions"].get(tap, 0) + counts[1] * more["companions"].get(tap, 0)) / sum(counts)
        for tap in entry["companions"] | more["companions"]
    }
    joined: Entry = {
        **entry,
        "values": values,
        "mean": mean(errors),
        "deviation": stdev(errors),
        "diverged": entry["diverged"] + more["diverged"],
        "seeds": [*entry["seeds"], *more["seeds"]],
        "seconds": [*entry["seconds"], *more["seconds"]],
        "threads": [*entry["threads"], *more["threads"]],
        "companions": companions,
        "made_later": [*entry.get("made_later", []), {"seeds": more["seeds"], **more["made"]}],
    }
    if "measured" in entry:
        joined["measured"] = [*entry["measured"], *more["measured"]]
    if "start" in entry:
        joined["start"] = {
            "config": entry["start"]["config"],
            "values": [*entry["start"]["values"], *more["start"]["values"]],
            "seconds": [*entry["start"]["seconds"], *more["start"]["seconds"]],
        }
    return joined


def what_counts(config: Config) -> Config:
    """Return a config without what changes no result.

    That is the place of the run to start from, the settings of companions where there are none, and what alpha decays
    by where it does not decay.
    """
    default = Config().to_dict()
    unused = frozenset({"decay_by"} if config.objective.schedule == "constant" else ())
    if config.supervision.taps == ("none",):
        unused = COMPANIONS - {"at"}
    return config.replace(start_from=None, device="cpu", **{name: default[name] for name in unused})
