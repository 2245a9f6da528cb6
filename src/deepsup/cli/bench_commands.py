"""``deepsup bench`` and ``deepsup harm``: speed and errors, compared with what a user would write instead."""

from __future__ import annotations

import json as json_format
import sys
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

from deepsup.cli.app import Flag, show, table, verb
from deepsup.errors import ConfigError, RunError

_File = Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: none)")]


@verb("bench")
def bench(
    quick: Flag = False,
    out: _File = None,
    page: _File = None,
    table: _File = None,
    json: Flag = False,
) -> None:
    """Measure speed beside the tutorial's loop, Lightning and skorch, the cost of companions, and the machine's limit.

    Args:
        quick: measure fewer rounds, in under 5 minutes on two cores
        out: JSON file that gets the answer too
        page: Markdown page that gets the table too, between its lines "bench: begin" and "bench: end"
        table: answer of an earlier --out, whose table is shown in place of a measurement
        json: print one JSON object
    """
    from deepsup.bench import answer as answers

    if page is not None:
        answers.page_text(page)  # fail before the work, not after it
    if out is not None:
        _check_folder(out)
    answer = _measured(quick) if table is None else answers.read_answer(table)
    if out is not None:
        out.write_text(json_format.dumps(answer, indent=1) + "\n", encoding="utf-8")
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
    from deepsup.bench.suite import FULL, QUICK, Bench

    return Bench(QUICK if quick else FULL, lambda line: print(line, file=sys.stderr, flush=True)).run()  # noqa: T201 - progress, on standard error


def _text(answer: dict[str, Any]) -> str:
    """Return the answer as columns for people."""
    from deepsup.bench.answer import ROWS, find, rates, where

    rows = []
    for key, what in ROWS.items():
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


@verb("harm")
def harm(
    seeds: int = 3,
    jobs: int = 1,
    out: Annotated[Path, arg(metavar="FILE")] = Path("runs/harm.json"),
    json: Flag = False,
) -> None:
    """Check that companions at their defaults do no harm: nine kinds of model, three optimizers, with and without.

    The models are trained in a plain PyTorch loop on embedded digits (one on synthetic texts), which takes about an
    hour on one core. If stopped, it continues with the missing trainings.

    Args:
        seeds: seeds per model and optimizer
        jobs: number of trainings at a time, one thread each
        out: JSON file of the record; the trainings are kept beside it, in the file of this name that ends in .jsonl
        json: print one JSON object
    """
    from deepsup.bench.harm import Budget, all_cells, measure_harm, write_record
    from deepsup.cli.progress import counting

    if seeds < 1 or jobs < 1:
        raise ConfigError(f"seeds={seeds}, jobs={jobs}; expected at least 1 of each")
    _check_folder(out)
    with counting("trainings") as watch:
        record = measure_harm(Budget(), all_cells(seeds), out.with_suffix(".jsonl"), jobs, watch)
    write_record(out, record)
    show(record, _harm_text(record, out), json)


def _harm_text(record: dict[str, Any], out: Path) -> str:
    """Return a row per model and optimizer, and whether anything was harmed."""
    rows = [
        [
            row["model"],
            row["optimizer"],
            _with_deviation(row["plain_mean"], row["plain_deviation"]),
            _with_deviation(row["supervised_mean"], row["supervised_deviation"]),
            f"{row['ratio']:.2f}" if row["trains"] else "",
            {None: "the plain model does not train", True: "", False: "harmed"}[row["harmless"]],
        ]
        for row in record["rows"]
    ]
    lines = [table(["model", "optimizer", "plain, error %", "with companions", "ratio", ""], rows), ""]
    if record["geometric_mean"] is not None:
        lines.append(
            f"geometric mean of the ratios over {record['cells']} rows in which the plain model trains: "
            f"{record['geometric_mean']:.3f}; harmed: {', '.join(record['harmed']) or 'none'}"
        )
    return "\n".join([*lines, f"record: {out}"])


def _with_deviation(mean: float, deviation: float | None) -> str:
    return f"{mean:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")
