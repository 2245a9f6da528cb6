"""``deepsup bench``: speed, or the errors of small models, compared with what a user would write instead."""

from __future__ import annotations

import json as json_format
import sys
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from deepsup.cli.app import Flag, show, table, verb
from deepsup.errors import ConfigError, RunError, nearest
from deepsup.io import write_whole

_File = Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: none)")]


@verb("bench")
def bench(
    what: Annotated[str, Positional, arg(metavar="[speed|harm]")] = "speed",
    quick: Flag = False,
    page: _File = None,
    table: _File = None,
    seeds: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 5)")] = None,
    groups: Annotated[tuple[str, ...], arg(metavar="NAME ...", help_behavior_hint="(default: all)")] = (),
    jobs: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 1)")] = None,
    out: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: none; harm: runs/harm.json)")] = None,
    json: Flag = False,
) -> None:
    """Measure the speed of training, or (bench harm) what default companions do to the errors of small models.

    Speed: beside the tutorial's loop, Lightning and skorch; the cost of companions; the machine's limit.

    Harm: models of 26 kinds with and without companions, under three optimizers, in a plain PyTorch loop on 500
    embedded digits (one on synthetic texts). It takes about 80 minutes on two cores. If stopped, it continues with the
    missing trainings.

    Args:
        what: what to measure: speed or harm
        quick: speed: measure fewer rounds, in under 5 minutes on two cores
        page: speed: Markdown page that gets the table too, between its lines "bench: begin" and "bench: end"
        table: speed: answer of an earlier --out, whose table is shown in place of a measurement
        seeds: harm: seeds per model and optimizer
        groups: harm: groups of models to train: nine-kinds, plain-nets, others
        jobs: harm: number of trainings at a time, one thread each
        out: JSON file that gets the answer too; harm keeps its trainings beside it, in a file that ends in .jsonl
        json: print one JSON object
    """
    only: dict[str, dict[str, object]] = {"speed": {"--quick": quick, "--page": page, "--table": table},
            "harm": {"--seeds": seeds, "--groups": groups, "--jobs": jobs}}  # fmt: skip
    if what not in only:
        raise ConfigError(f"bench {what!r}; {nearest(what, only)}")
    other = next(name for name in only if name != what)
    if given := [option for option, value in only[other].items() if value]:
        raise ConfigError(f"bench {what} with {given[0]}; that is an option of bench {other}")
    if what == "harm":
        _harm(5 if seeds is None else seeds, groups, 1 if jobs is None else jobs, out or Path("runs/harm.json"), json)
    else:
        _speed(quick, page, table, out, json)


def _speed(quick: bool, page: Path | None, table: Path | None, out: Path | None, json: bool) -> None:
    """Measure speed, or show what was measured."""
    from deepsup.paper import bench as answers

    if page is not None:
        answers.page_text(page)  # fail before the work, not after it
    if out is not None:
        _check_folder(out)
    answer = _measured(quick) if table is None else answers.read_answer(table)
    if out is not None:
        write_whole(out, (json_format.dumps(answer, indent=1) + "\n").encode())
    if page is not None:
        answers.write_page(page, answer)
    show(answer, answers.markdown(answer) if table is not None else _text(answer), json)


def _check_folder(out: Path) -> None:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot write {out}: {error.strerror}; expected a file in a folder of yours") from error
    if out.is_dir():
        raise RunError(f"{out} is a folder; expected a file, e.g. --out {out / 'bench.json'}")


def _measured(quick: bool) -> dict[str, Any]:
    from deepsup.paper.bench import FULL, QUICK, Bench

    return Bench(QUICK if quick else FULL, lambda line: print(line, file=sys.stderr, flush=True)).run()  # noqa: T201 - progress, on standard error


def _text(answer: dict[str, Any]) -> str:
    """Return the answer as columns for people."""
    from deepsup.paper.bench import find, rates, rows_of, where

    rows = []
    for key, what in rows_of(answer).items():
        value, spread = find(answer, key), answer["spread"].get(key.replace(".ratios.", "."))
        rows.append(
            [
                what.replace("`", ""),
                "not measured" if value is None else f"{value:.3f}",
                f"{spread[0]:.3f} to {spread[1]:.3f}" if spread else "",
            ]
        )
    return "\n".join(
        [table(["what", "ratio", "quartiles"], rows), "", rates(answer), "", where(answer).replace("`", "")]
    )


def _harm(seeds: int, groups: tuple[str, ...], jobs: int, out: Path, json: bool) -> None:
    """Train what is missing and show the record."""
    from deepsup.cli.progress import counting
    from deepsup.paper.bench import GROUPS, Budget, all_cells, measure_harm, write_record

    if seeds < 1 or jobs < 1:
        raise ConfigError(f"seeds={seeds}, jobs={jobs}; expected at least 1 of each")
    _check_folder(out)
    names = {name.replace(" ", "-"): name for name in GROUPS}
    for group in groups:
        if group not in names:
            raise ConfigError(f"groups {group!r}; {nearest(group, names)}")
    cells = all_cells(seeds, [names[group] for group in groups or names])
    with counting("trainings") as watch:
        record = measure_harm(Budget(), cells, out.with_suffix(".jsonl"), jobs, watch)
    write_record(out, record)
    lines = [_harm_text(record, out), *_harm_figure(record, out)]
    show(record, "\n".join(lines), json)


def _harm_figure(record: dict[str, Any], out: Path) -> list[str]:
    """Draw the record beside it; return the line that says where, none where what draws it is not installed."""
    try:
        from deepsup.trainer.report import draw_harm
    except ImportError:
        return []
    return [f"figure: {draw_harm(record, out.parent, out.stem)}"]


def _harm_text(record: dict[str, Any], out: Path) -> str:
    """Return a row per model and optimizer, and a line per group of models."""
    rows = [
        [
            row["model"],
            row["optimizer"],
            _with_deviation(row["plain_mean"], row["plain_deviation"]),
            _with_deviation(row["supervised_mean"], row["supervised_deviation"]),
            f"{row['ratio']:.2f}" if row["trains"] else "",
            "harmed" if row["harmless"] is False else "" if row["trains"] else
            "trains only with companions" if row["woken"] else "does not train",
        ]
        for row in record["rows"]
    ]  # fmt: skip
    lines = [table(["model", "optimizer", "plain, error %", "with companions", "ratio", ""], rows), ""]
    for group, mean in record["groups"].items():
        interval = "" if mean["interval"] is None else " (95 % {:.2f} to {:.2f})".format(*mean["interval"])
        ratio = "" if mean["geometric_mean"] is None else f"{mean['geometric_mean']:.3f}{interval}, lower in "
        lines.append(
            f"{group}: {mean['trained']} of {mean['rows']} rows train without companions; there the ratio of errors is "
            f"{ratio}{mean['better']} of {mean['pairs']} pairs; harmed: {', '.join(mean['harmed']) or 'none'}; "
            f"{len(mean['woken'])} more train only with companions"
        )
    return "\n".join([*lines, f"record: {out}"])


def _with_deviation(mean: float, deviation: float | None) -> str:
    return f"{mean:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")
