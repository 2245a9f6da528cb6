"""The records of a results folder in, RESULTS.md and the block of docs/when.md out, not edited by hand."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from deepsup.errors import RunError
from deepsup.io import write_whole
from deepsup.paper.claims import CLAIMS, verdict
from deepsup.paper.fast_targets import FAST
from deepsup.paper.plan import Plan, minutes
from deepsup.paper.printed import TABLES
from deepsup.paper.provenance import chosen_words
from deepsup.paper.recipe_claims import RECIPE_CLAIMS
from deepsup.paper.reproduce import plan_of, read_record
from deepsup.paper.row_id import RowId
from deepsup.paper.targets import NAMES, TARGETS
from deepsup.paper.verdicts import NOT_COMPARABLE, NOT_RUN, Claim, not_comparable
from deepsup.paper.when_page import when_block

BEGIN, END = "<!-- results: written by `deepsup reproduce summary` -->", "<!-- end of results -->"
PAPERS, OURS = "claim of the paper", "recipe of ours"
HEAD = """# Results

Written from the records in `results/` by `deepsup reproduce summary`; not edited by hand. The command above each table made its rows, on the class of hardware named there; `deepsup reproduce TARGET --repeat ROW` trains a recorded row again. n is the number of seeds, ± their standard deviation (in the theory: the standard error over its repetitions). A comparison whose base did not learn is "not comparable"; "not run" is what no record answers.
"""  # noqa: E501 - one paragraph per line
Records = Mapping[tuple[str, str], Mapping[str, Any]]


def keep(record: Mapping[str, Any], figure: Path | None, results: Path) -> Path:
    """Put a record and its figure into the results folder; return the record's path."""
    results.mkdir(parents=True, exist_ok=True)
    path = results / f"{record['target']}-{record['preset']}.json"
    write_whole(path, (json.dumps(record, indent=1) + "\n").encode())
    if figure is not None:
        write_whole(path.with_suffix(".png"), figure.read_bytes())
    return path


def summarise(results: Path) -> list[Path]:
    """Write RESULTS.md beside the results folder, and the block in docs/when.md; return the paths."""
    records = read_all(results)
    target, page = results.parent / "RESULTS.md", results.parent / "docs" / "when.md"
    write_whole(target, results_text(records, results).encode())
    return [target, *([page] if renewed(page, partial(when_block, records, results)) else [])]


def renewed(page: Path, block: Callable[[], str]) -> bool:
    """Write a block anew between its marks; whether the page is there and has them."""
    if not page.is_file() or BEGIN not in (text := page.read_text(encoding="utf-8")):
        return False
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    write_whole(page, f"{before}{BEGIN}\n{block()}\n{END}{after}".encode())
    return True


def read_all(results: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Return every record of the folder, by target and preset, in the order of the targets."""
    if not results.is_dir():
        raise RunError(
            f"{results} is no folder; expected the folder of records that deepsup reproduce --results filled"
        )
    found = [(name, preset) for name in NAMES for preset in ("paper", "cpu")]
    return {
        (name, preset): read_record(path)
        for name, preset in found
        if (path := results / f"{name}-{preset}.json").is_file()
    }


def results_text(records: Records, results: Path) -> str:
    """Return the whole of RESULTS.md."""
    parts = [HEAD, settings_text(records), "## Claims of the paper\n", verdict_table(records, CLAIMS, PAPERS)]
    parts += ["\n## Recipes of ours\n", verdict_table(records, RECIPE_CLAIMS, OURS)]
    for name in NAMES:
        parts += [section(record, results) for (target, _), record in records.items() if target == name]
    return "\n".join([*parts, not_run(records, results)]).rstrip() + "\n"


def settings_text(records: Records) -> str:
    """Say how often the test set had been read before each record was made."""
    reads: dict[Any, list[str]] = {}
    for (name, preset), record in records.items():
        if "test_read_before" in record:
            reads.setdefault(record["test_read_before"], []).append(f"`{name}-{preset}`")
    said = [f"{before} ({', '.join(names)})" for before, names in sorted(reads.items(), key=lambda each: str(each[0]))]
    return (
        "Each run reads the test set at its end, and no target chooses anything by it. Versions of a target whose test "
        f"errors had been read before its record was made: {'; '.join(said)}. On which images settings were chosen "
        "stands beside each verdict.\n"
    )


def verdict_table(records: Records, claims: Sequence[Claim], header: str) -> str:
    """Return one claim per line."""
    best: dict[str, Mapping[str, Any]] = {}
    for (name, _), record in records.items():
        best.setdefault(name, record)  # the paper's preset comes first
    lines = []
    for claim in claims:
        found, judged = verdict(claim, best)
        held = best.get(claim.target)
        made_of = ["", ""] if held is None else [chosen_words(held), f"`{held['target']}-{held['preset']}`"]
        lines.append(
            [claim.what, claim.paper, found, f"**{judged}**" if judged != NOT_RUN else judged, *made_of, claim.rule]
        )
    return table([header, "paper", "ours", "verdict", "settings chosen on", "record", "rule"], lines)


def section(record: Mapping[str, Any], results: Path) -> str:
    """Return one target: how it was made, its rows, its tests, its figure."""
    name = f"{record['target']}-{record['preset']}"
    lines = [f"\n## {record['title']}\n", made(record), ""]
    said = "verdict" if "findings" in record else "chosen"
    header = ["", "paper", "ours", said, "minutes per run", "differs from the paper's protocol"]
    mixed = len(processors(record)) > 1
    lines.append(table(header, [told_row(row, mixed) for row in record["rows"]]))
    if record.get("readings"):
        read = [told_reading(record, row) for row in record["readings"]]
        lines += ["", table(["read off the runs", "paper", "ours", ""], read)]
    if record.get("tests"):
        tests = [told_test(record, test) for test in record["tests"]]
        lines += ["", table(["paired over seeds, points", "mean", "95 % interval", "p", "n"], tests)]
    if record.get("missing"):
        command = f"`{record['command']} --results {results.name} --resume`"
        lines += ["", f"Not run yet, {command} goes on with them: {', '.join(record['missing'])}."]
    for finding in record.get("findings", []):
        more = f" {finding['correction']}" if finding.get("correction") else ""
        lines += ["", f"**{finding['statement']}: {finding['verdict']}.** {finding['why']}{more}"]
    if (results / f"{name}.png").is_file():
        lines += ["", f"![{record['title']}](results/{name}.png)"]
    return "\n".join(lines)


def made(record: Mapping[str, Any]) -> str:
    """Say by which command, where and how long."""
    where = record["environment"]
    spent = record.get("training_minutes")
    kinds = " and ".join(processors(record))
    return (
        f"`{record['command']}`, {where['cores']} cores ({where['machine']}, {kinds}), Python "
        f"{where['python']}, torch {where['torch']}, deepsup {where['deepsup']}"
        + ("" if spent is None else f"; {spent:g} minutes of training, the search aside")
        + "."
        + (f" Settings: {words}." if (words := chosen_words(record)) else "")
    )


def processors(record: Mapping[str, Any]) -> list[str]:
    """Return the kinds of processors that made the rows."""
    where = record["environment"]
    return sorted({row.get("made", where)["cpu"] for row in record["rows"]} or {where["cpu"]})


def told_row(row: Mapping[str, Any], mixed: bool) -> list[str]:
    """Return the cells of one row; ``mixed``: minutes of different processors, which are not to be compared."""
    seconds = row.get("seconds") or []
    time = f"{sum(seconds) / len(seconds) / 60:.1f}" if seconds else ""
    time += f" ({row['made']['cpu']})" if mixed and time else ""
    said = row.get("verdict") or row.get("choice", "")
    return [row["row"], plain(row["paper"]), shown(row), said, time, row.get("differs", "")]


def told_reading(record: Mapping[str, Any], row: Mapping[str, Any]) -> list[str]:
    """Return the cells of one reading."""
    why = not_comparable(record, row)
    ours = [f"{NOT_COMPARABLE}: {why}", ""] if why else [shown(row), row["unit"]]
    return [row["row"], plain(row["paper"]), *ours]


def told_test(record: Mapping[str, Any], test: Mapping[str, Any]) -> list[str]:
    """Return the cells of one paired test."""
    if why := not_comparable(record, test):
        return [test["test"], NOT_COMPARABLE, why, "", str(test["n"])]
    if test["interval"] is None:
        return [test["test"], "" if test["mean"] is None else f"{test['mean']:+.2f}", "", "", str(test["n"])]
    low, high = test["interval"]
    return [test["test"], f"{test['mean']:+.2f}", f"{low:+.2f} to {high:+.2f}", f"{test['p']:.2g}", str(test["n"])]


def shown(row: Mapping[str, Any]) -> str:
    """Return mean, deviation and number of seeds."""
    if row["mean"] is None:
        return "diverged"
    ended = [value for value in row["values"] if value is not None]
    deviation = "" if row["deviation"] is None else f" ± {row['deviation']:.2g}"
    lost = f", {row['diverged']} diverged" if row.get("diverged") else ""
    return f"{row['mean']:.4g}{deviation}" + (f" (n {len(ended)}{lost})" if "seeds" in row else "")


def plain(value: float | None) -> str:
    """Return a printed number, or nothing."""
    return "" if value is None else f"{value:.4g}"


def not_run(records: Records, results: Path) -> str:
    """List what no record stands for, targets and single rows: the command, and about how many hours on two cores."""
    lines = []
    for name in TARGETS:
        plans = {preset: plan_of(name, preset, Path()) for preset in ("cpu", "paper")}
        if plans["cpu"].runs == plans["paper"].runs:  # both presets are the same
            del plans["paper"]
        jobs = 1 if name in FAST else 2  # these are timed: a run has both cores
        for preset, plan in plans.items():
            ended = {RowId.of(row) for row in records.get((name, preset), {"rows": []})["rows"]}
            left = replace(
                plan, groups=tuple(tuple(row for row in group if row.id not in ended) for group in plan.groups)
            )
            command = f"deepsup reproduce {name} --preset {preset} --jobs {jobs} --results {results.name}"
            more = f" --resume` (row{'s' * (len(left.rows) > 1)} left: {len(left.rows)})" if ended else "`"
            of_rows = hours_of_rows(left) if name in TABLES else ""
            lines += [[f"`{command}{more}", f"{minutes(left) / 60:,.1f}", of_rows]] if left.rows else []
    return "\n## Not run\n\n" + table(["command", "about hours on two cores", "hours of each row of a table"], lines)


def hours_of_rows(plan: Plan) -> str:
    """Say what each row of a table would take; ``--rows`` trains some of them."""
    hours = {row.id.method: minutes(replace(plan, groups=((row,),))) / 60 for row in plan.rows}
    return "; ".join(f"{method} {f'{each:,.1f}' if each >= 0.1 else 'below 0.1'}" for method, each in hours.items())


def table(header: Sequence[str], rows: Any) -> str:
    """Return a table of Markdown."""
    cells = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in cells)
