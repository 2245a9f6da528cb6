"""The records of a results folder in; RESULTS.md, a CSV of rows beside each record, and blocks of the docs out."""

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from deepsup.errors import RunError
from deepsup.io import with_block, write_whole
from deepsup.paper.budget_curves import distances
from deepsup.paper.own_claims import OWN_CLAIMS
from deepsup.paper.paper_claims import PAPER_CLAIMS, verdict
from deepsup.paper.plan import Row, minutes
from deepsup.paper.provenance import chosen_words
from deepsup.paper.reproduce import plan_of, read_record, with_unrun
from deepsup.paper.row_id import RowId
from deepsup.paper.targets import NAMES, TARGETS
from deepsup.paper.verdicts import NOT_JUDGED, RULES, VERDICTS, Claim, Entry, Judged, errors_of
from deepsup.paper.when_page import STUDIES_OF_WHEN, when_block

BEGIN, END = "<!-- results: written by `deepsup reproduce summary` -->", "<!-- end of results -->"
FIRST = "first-protocol"
"""Folder of the records of the first protocol, which answer no claim."""
HEAD = """# Results

Written from the records in `results/` by `deepsup reproduce summary`, not by hand. Beside each record (JSON) its rows stand as CSV. `deepsup reproduce TARGET --repeat ROW` trains a recorded row again. A twin is the same net with the same recipe, loss and seeds, without companions; n is the number of seeds. What the claims mean: [docs/claims.md](docs/claims.md); our own studies: [docs/when.md](docs/when.md).
"""  # noqa: E501 - one paragraph per line
FIRST_PROTOCOL = """
## The first protocol

The records in `results/first-protocol/`, of November 2026, answer no claim any more: hinge losses started at learning rates at which they cannot learn, tables had a twin only under softmax and ended at 58 % error, greedy nets were fine-tuned at a twentieth of the rate. They can be read and repeated (`--results results/first-protocol`).
"""  # noqa: E501 - one paragraph per line
Records = Mapping[tuple[str, str], Mapping[str, Any]]


def keep(record: Mapping[str, Any], figure: Path | None, results: Path) -> Path:
    """Put a record, its rows and its figure into the results folder; return the record's path."""
    results.mkdir(parents=True, exist_ok=True)
    path = results / f"{record['target']}-{record['preset']}.json"
    write_whole(path, (json.dumps(record, indent=1) + "\n").encode())
    write_rows(record, path)
    if figure is not None:
        write_whole(path.with_suffix(".png"), figure.read_bytes())
    return path


def write_rows(record: Mapping[str, Any], path: Path) -> None:
    """Write the rows of a record beside it, as CSV."""
    columns = ("row", "paper", "mean", "deviation", "errors", "diverged", "chosen", "minutes per run", "differs")
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(columns)
    for row in record["rows"]:
        seconds = row.get("seconds") or []
        per_run = f"{sum(seconds) / len(seconds) / 60:.2f}" if seconds else ""
        values = errors_of(row) if "guessing" in row else row.get("values", [])
        cells = (
            row["row"],
            row["paper"],
            row["mean"],
            row["deviation"],
            " ".join(f"{each:g}" for each in values),
            row.get("diverged", 0),
            row.get("choice", row.get("verdict", "")),
            per_run,
            row.get("differs", ""),
        )
        table.writerow(f"{cell:.6g}" if isinstance(cell, float) else "" if cell is None else cell for cell in cells)
    write_whole(path.with_suffix(".csv"), text.getvalue().encode())


def summarise(results: Path) -> list[Path]:
    """Write RESULTS.md beside the results folder, the CSV files, and the blocks of the docs; return the pages."""
    records = read_all(results)
    for record in records.values():
        renew_distances(record, results)
    for (name, preset), record in records.items():
        write_rows(record, results / f"{name}-{preset}.json")
    pages = [results.parent / "RESULTS.md"]
    write_whole(pages[0], results_text(records, results).encode())
    blocks = {"when.md": partial(when_block, records, results), "claims.md": partial(claims_block, records)}
    docs = {results.parent / "docs" / name: block for name, block in blocks.items()}
    docs[results.parent / "README.md"] = partial(paper_block, records)
    return pages + [page for page, block in docs.items() if renew_block(page, block)]


def renew_distances(record: dict[str, Any], results: Path) -> None:
    """Read the distances of the budget curves anew, and keep the record and its figure if older code read others."""
    if record["target"] not in ("budget", "budget-cifar10"):
        return
    again = json.loads(json.dumps(distances({RowId.of(row): row for row in record["rows"]})))
    if (again["rows"], again["figure"]) == (record["readings"], record["figure"]):
        return
    from deepsup.trainer.report import draw_record  # matplotlib

    record |= {"readings": again["rows"], "figure": again["figure"]}
    with TemporaryDirectory() as folder:
        keep(record, draw_record(record, Path(folder)), results)


def renew_block(page: Path, block: Callable[[], str]) -> bool:
    """Write a block anew between its marks; whether the page is there and has them."""
    if not page.is_file() or BEGIN not in (text := page.read_text(encoding="utf-8")):
        return False
    write_whole(page, with_block(text, BEGIN, END, f"\n{block()}\n").encode())
    return True


def read_all(results: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Return every record of the folder, by target and preset, in the order of the targets."""
    if not results.is_dir():
        raise RunError(
            f"{results} is no folder; expected the folder of records that deepsup reproduce --results filled"
        )
    places = [(name, preset) for name in NAMES for preset in ("paper", "cpu")]
    return {
        (name, preset): read_record(path)
        for name, preset in places
        if (path := results / f"{name}-{preset}.json").is_file()
    }


def results_text(records: Records, results: Path) -> str:
    """Return RESULTS.md."""
    fast = [claim for claim in OWN_CLAIMS if claim.target not in STUDIES_OF_WHEN]
    parts = [
        HEAD, "## Claims of the paper\n", verdict_table(records, PAPER_CLAIMS),
        "\n## Recipes of ours\n", verdict_table(records, fast),
        "\n## Rules of the verdicts\n", table(["rule", "what it says", "its reason"],
                                              [[name, *words] for name, words in RULES.items()]),
        "\n## Studies\n", table(["record", "made by", "settings chosen on"], map(study, records.values())),
    ]  # fmt: skip
    first = FIRST_PROTOCOL if (results / FIRST).is_dir() else ""
    return "\n".join([*parts, not_run(records, results)]) + "\n" + first


def best_records(records: Records) -> dict[str, Mapping[str, Any]]:
    """Return one record per target, the paper's preset if there is one."""
    best: dict[str, Mapping[str, Any]] = {}
    for (name, _), record in records.items():
        best.setdefault(name, with_unrun(record))
    return best


def verdict_table(records: Records, claims: Iterable[Claim]) -> str:
    """Return one claim per line."""
    best, lines = best_records(records), []
    for claim in claims:
        words, answer = verdict(claim, best)
        record = best.get(claim.target)
        link = "" if record is None else f"[{claim.target}](results/{claim.target}-{record['preset']}.csv)"
        shown = answer if answer == NOT_JUDGED else f"**{answer}**"
        lines.append([claim.what, claim.paper, words, shown, link or f"`{claim.target}`"])
    return table(["claim", "paper", "ours", "verdict", "record"], lines)


def claims_block(records: Records) -> str:
    """Return the verdicts of docs/claims.md: a count, then one line per group of claims, in the paper's order.

    The words behind the verdicts are in RESULTS.md, but for the budget curves, which stand here. Groups of which
    nothing is judged share the last line.
    """
    best = best_records(records)
    judged = {claim: verdict(claim, best) for claim in PAPER_CLAIMS}
    groups: dict[str, list[Claim]] = {}
    for claim in PAPER_CLAIMS:
        groups.setdefault(claim.group or claim.what, []).append(claim)
    lines, left = [f"Of {len(judged)} claims: {counted(judged.values())}.", ""], []
    for group, claims in groups.items():
        if all(judged[claim].verdict == NOT_JUDGED for claim in claims):
            left.append(group)
        else:
            lines.append(f"- {group}: {'; '.join(verdict_words(claims, judged))}.")
    return "\n".join([*lines, *([f"- Not judged yet: {'; '.join(left)}."] if left else [])])


def counted(judged: Iterable[Judged]) -> str:
    """Count verdicts: those that hold first."""
    counts = Counter(each.verdict for each in judged)
    return ", ".join(f"{counts[name]} {name}" for name in VERDICTS if counts[name])


def verdict_words(claims: Sequence[Claim], judged: Mapping[Claim, Judged]) -> list[str]:
    """Say the verdicts of a group: parts that have the same one together; with their numbers for budget curves."""
    by_verdict: dict[str, list[str]] = {}
    for claim in claims:
        words, name = judged[claim]
        shown = name if name == NOT_JUDGED else f"**{name}**"
        with_words = words and claim.rule == "budget curves"
        by_verdict.setdefault(shown, []).append(f"{claim.part}: {words}" if with_words else claim.part)
    alone = len(by_verdict) == 1
    return [
        name if alone and not any(": " in part for part in parts) else f"{name} ({', '.join(parts)})"
        for name, parts in by_verdict.items()
    ]


def paper_block(records: Records) -> str:
    """Return the line of the README: how many claims of the paper hold."""
    best = best_records(records)
    judged = [verdict(claim, best) for claim in PAPER_CLAIMS]
    return f"- Of {len(judged)} claims of the paper: {counted(judged)} ([which, and why](docs/claims.md))."


def study(record: Mapping[str, Any]) -> list[str]:
    """Return how a record was made: once per study, not per row."""
    name, where = f"{record['target']}-{record['preset']}", record["environment"]
    hours = record.get("training_minutes", 0) / 60
    choosing = sum(row.get("choosing_seconds", 0) for row in record["rows"]) / 3600
    spent = f", {hours:.1f} hours of training" if hours >= 0.05 else ""
    spent += f" and {choosing:.1f} of choosing" if choosing >= 0.05 else ""
    left = f"; {len(record['missing'])} rows missing" if record.get("missing") else ""
    edges = sum(bool(row.get("edges")) for row in record["rows"])
    left += f"; **{edges} rows chose a value on an edge of the grid**" if edges else ""
    made = f"`{record['command']}`, {'/'.join(processors(record))}, torch {where['torch']}{spent}{left}"
    read = record.get("test_read_before")
    before = "" if not read else f"; test errors read before: {read}"
    return [f"[{name}](results/{name}.json)", made, chosen_words(record) + before]


def processors(record: Mapping[str, Any]) -> list[str]:
    """Return the kinds of processors that made the rows."""
    where = record["environment"]
    made = [each for row in record["rows"] for each in (row.get("made", where), *row.get("made_later", []))]
    return sorted({each["cpu"] for each in made or [where]})


def not_run(records: Records, results: Path) -> str:
    """List what no record stands for, targets and single rows: the command, and about how many hours on two cores."""
    lines = []
    for name in TARGETS:
        plans = {preset: plan_of(name, preset, Path()) for preset in ("cpu", "paper")}
        if plans["cpu"].runs == plans["paper"].runs:  # both presets are the same
            del plans["paper"]
        hours = {}
        for preset, plan in plans.items():
            recorded = {RowId.of(row): row for row in records.get((name, preset), {"rows": []})["rows"]}
            rows = [left_of(row, recorded.get(row.id)) for row in plan.rows]
            left = replace(plan, groups=(tuple(row for row in rows if row.method.seeds),))
            hours[preset] = f"{minutes(left) / 60:,.1f} ({len(left.rows)} rows)" if left.rows else ""
        if any(hours.values()):
            lines.append([f"`{name}`", *(hours.get(preset, "") for preset in ("cpu", "paper"))])
    command = f"`deepsup reproduce TARGET --preset PRESET --jobs 2 --results {results.name} --resume`"
    head = f"\n## Not run\n\n{command}; `--rows` trains a part. Hours on two cores, estimated:\n\n"
    return head + table(["target", "cpu", "paper"], lines)


def left_of(row: Row, entry: Entry | None) -> Row:
    """Return a row with the seeds that a record lacks; the settings of a row that has begun are chosen already."""
    if entry is None:
        return row
    seeds = max(0, row.method.seeds - len(entry["seeds"]))
    return replace(row, method=replace(row.method, choices=dict([*row.method.choices.items()][:1]), seeds=seeds))


def table(header: Sequence[str], rows: Any) -> str:
    """Return a table of Markdown."""
    cells = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in cells)
