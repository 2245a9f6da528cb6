"""``deepsup reproduce``: a target of the paper in, ours beside theirs out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from deepsup.cli.app import Flag, resumable, same_command, show, table, verb
from deepsup.cli.engine_options import EngineOptions
from deepsup.errors import ConfigError

_HELP = "what to reproduce; all: all targets, one after the other; summary: write RESULTS.md from the records"


@verb("reproduce")
def reproduce(
    target: Annotated[
        str, Positional, arg(metavar="[TARGET]", help=_HELP, help_behavior_hint="(default: list them)")
    ] = "list",
    preset: Annotated[str, arg(metavar="NAME")] = "cpu",
    out: Annotated[Path, arg(metavar="DIR")] = Path("runs/reproduce"),
    where: Annotated[EngineOptions, arg(name="")] = EngineOptions(),  # noqa: B008 - frozen
    seeds: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: the preset's)")] = None,
    results: Annotated[
        Path | None, arg(metavar="DIR", help_behavior_hint="(default: none; results for summary)")
    ] = None,
    resume: Flag = False,
    rows: Annotated[tuple[str, ...], arg(metavar="ROW ...", help_behavior_hint="(default: all)")] = (),
    repeat: Annotated[str | None, arg(metavar="ROW[@SEED]", help_behavior_hint="(default: none)")] = None,
    json: Flag = False,
) -> None:
    """Reproduce a table, a figure or a claim of the paper; without a target, list them with their minutes.

    Args:
        target: what to reproduce
        preset: paper (the full protocol, for a GPU), start (its first steps), cpu (minutes to hours on two cores) or
            smoke (seconds)
        out: folder of runs, records and figures; a target that was stopped goes on there
        where: where the runs are trained.
        seeds: number of seeds
        results: folder that gets a copy of the record and its figure; for summary and --repeat, where the records are
        resume: train only the rows that the record in --results does not have with the same settings
        rows: rows to train, by method (NIN, DSN-SVM, ...) or label; rows that the record already has are kept as they
            are
        repeat: train one row of a record again and compare the errors
        json: print one JSON object
    """
    if rows and (repeat is not None or target in ("list", "summary", "all", "theory")):
        given = "--repeat" if repeat is not None else target
        raise ConfigError(f"--rows with {given}; expected --rows with one target that trains nets")
    if target == "list":
        _list(json)
    elif target == "summary":
        _summarise(results or Path("results"), json)
    elif repeat is not None:
        _repeat(target, preset, results or Path("results"), repeat, json)
    else:
        if resume and results is None:
            raise ConfigError("--resume without --results; expected the folder of the record to go on with")
        with resumable(lambda: f"the runs are in {out}; resume with: {same_command()}"):
            names = _names() if target == "all" else [target]
            records = [_one(name, preset, out, where, seeds, results, resume, rows) for name in names]
        answer = {"targets": records} if target == "all" else records[0]
        show(answer, "\n\n".join(_text(record) for record in records), json)


def _one(
    name: str,
    preset: str,
    out: Path,
    where: EngineOptions,
    seeds: int | None,
    results: Path | None,
    resume: bool,
    rows: tuple[str, ...],
) -> dict[str, Any]:
    """Run one target; leave its record and figure after each group of rows."""
    from deepsup.cli.progress import counting
    from deepsup.paper import keep, read_record, record_folder
    from deepsup.paper import reproduce as reproduce_target
    from deepsup.trainer.report import draw_record
    from deepsup.trainer.training import kept_memory

    folder, figure = record_folder(out, name, preset), None
    path = folder / "record.json" if results is None else results / f"{name}-{preset}.json"
    # a part of the rows must not replace a record of more
    earlier = read_record(path) if (resume or rows) and path.is_file() else None

    def leave(record: dict[str, Any]) -> None:
        nonlocal figure
        if results is not None:
            keep(record, None, results)  # before anything can fail to be drawn
        figure = draw_record(record, folder)
        if results is not None:
            keep(record, figure, results)

    with counting(f"runs of {name}") as watch, kept_memory():
        record = reproduce_target(
            name, preset, out, engine=where.chosen(), seeds=seeds, only=rows, watch=watch, leave=leave, earlier=earlier
        )
    return {**record, "record": str(folder / "record.json"), "drawn": None if figure is None else str(figure)}


def _text(record: dict[str, Any]) -> str:
    """Return one line per row: the paper's value, ours, what differs."""
    from deepsup.paper import not_comparable

    rows = [
        [row["row"], _number(row["paper"]), _ours(row), row.get("choice", ""), row.get("differs", "")]
        for row in record["rows"]
    ]
    lines = [f"{record['title']} (preset {record['preset']})", ""]
    lines.append(table(["", "paper", "ours", "chosen", "differs from the paper's protocol"], rows))
    if record.get("readings"):
        rows = [
            [row["row"], _number(row["paper"]), *(["not comparable", why] if why else [_ours(row), row["unit"]])]
            for row in record["readings"]
            for why in [not_comparable(record, row)]
        ]
        lines += ["", table(["", "paper", "ours", ""], rows)]
    for test in record.get("tests", []):
        why = not_comparable(record, test)
        lines.append(f"{test['test']}: not comparable, {why}" if why else _test(test))
    for finding in record.get("findings", []):
        lines.append(f"{finding['statement']}: {finding['verdict']}. {finding['why']}")
    lines += ["", f"{record['wall_minutes']:.1f} minutes; record: {record['record']}"]
    return "\n".join([*lines, *([f"figure: {record['drawn']}"] if record["drawn"] else [])])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _ours(row: dict[str, Any]) -> str:
    if row["mean"] is None:
        return "diverged"
    deviation = "" if row["deviation"] is None else f" ± {row['deviation']:.2g}"
    lost = f", {row['diverged']} diverged" if row.get("diverged") else ""
    return f"{row['mean']:.4g}{deviation} (n {sum(value is not None for value in row['values'])}{lost})"


def _test(test: dict[str, Any]) -> str:
    from deepsup.paper import ratio_words

    return f"{test['test']}: {ratio_words(test) if 'ratio' in test else 'nothing to compare'}"


def _names() -> tuple[str, ...]:
    """Return the names of all targets."""
    from deepsup.paper import NAMES

    return NAMES


def _list(json: bool) -> None:
    """Say what there is to reproduce and how long it takes."""
    from deepsup.paper import target_list

    targets = target_list()
    rows = [[name, each["title"], each["minutes"]["cpu"], f"{each['minutes']['paper'] / 60:,.0f}"]
            for name, each in targets.items()]  # fmt: skip
    text = table(["target", "", "minutes (cpu)", "hours (paper)"], rows)
    note = "Estimates for two cores; --preset smoke takes seconds.\nnext: deepsup reproduce fig2b-nin --preset smoke"
    show({"targets": targets}, f"{text}\n\n{note}", json)


def _repeat(target: str, preset: str, results: Path, which: str, json: bool) -> None:
    """Train one recorded run again."""
    import tempfile

    from deepsup.paper import read_record
    from deepsup.paper import repeat as repeat_row

    record = read_record(results / f"{target}-{preset}.json")
    row, _, given = which.partition("@")
    if given and not given.isdecimal():
        raise ConfigError(f"--repeat {which}: the seed {given!r} is no number; expected ROW@SEED, e.g. {row}@0")
    seed = int(given or 0)
    with tempfile.TemporaryDirectory() as folder:
        recorded, now = repeat_row(record, row, seed, Path(folder) / "run")
    answer = {"row": row, "seed": seed, "recorded": recorded, "now": now, "same": recorded == now}
    show(answer, f"{row}, seed {seed}: recorded {recorded:.4f} %, now {now:.4f} %", json)


def _summarise(results: Path, json: bool) -> None:
    """Write RESULTS.md, and the block of docs/when.md, from the records."""
    from deepsup.paper import summarise

    written = summarise(results)
    show({"written": [str(path) for path in written]}, "\n".join(f"written: {path}" for path in written), json)
