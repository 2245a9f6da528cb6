"""Records in, the blocks of docs/when.md out: what each study of ``when`` found, or the command that runs it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from deepsup.errors import RunError
from deepsup.paper.own_claims import OWN_CLAIMS
from deepsup.paper.plan import minutes
from deepsup.paper.reproduce import plan_of, with_unrun
from deepsup.paper.row_id import WITH, WITHOUT, RowId
from deepsup.paper.targets import TARGETS
from deepsup.paper.verdicts import NOT_COMPARABLE, NOT_JUDGED, NOT_REPRODUCED, PARTLY, REPRODUCED, UNDECIDED
from deepsup.paper.when_targets import NORMS

STUDIES_OF_WHEN = ("when", "when-companions", "when-tuning", "when-controls", "fast-few")
WORDS = {
    REPRODUCED: "Shown", PARTLY: "Shown in part", NOT_REPRODUCED: "Not shown", NOT_COMPARABLE: "Not comparable",
    NOT_JUDGED: "Not run to the end", UNDECIDED: "Undecided",
}  # fmt: skip
"""Verdict -> how this page says it: these are questions of ours, not claims of the paper."""
Records = Mapping[tuple[str, str], Mapping[str, Any]]


def when_block(records: Records, results: Path) -> str:
    """Return the findings of every study, in Markdown; what has no record is said to be not run."""
    parts = [study_text(name, records.get((name, "cpu")), results) for name in STUDIES_OF_WHEN]
    harm = [path for path in (results / "harm.json", results / "harm-others.json") if path.is_file()]
    return "\n\n".join([*parts, *([harm_text(harm)] if harm else [])])


def study_text(name: str, record: Mapping[str, Any] | None, results: Path) -> str:
    """Return one study: its verdicts and figure, or its command and hours."""
    title = f"**{TARGETS[name].title}** (`{name}`)."
    if record is None:
        hours = minutes(plan_of(name, "cpu", Path())) / 60
        command = f"`deepsup reproduce {name} --jobs 2 --results {results.name}`"
        return f"{title} Not run yet: {command}, about {hours:.1f} hours on two cores."
    record = with_unrun(record)
    answers = [(claim.what, *claim.judge(record)) for claim in OWN_CLAIMS if claim.target == name]
    lines = [f"- {what}: {words or 'not run'}. **{WORDS[verdict]}.**" for what, words, verdict in answers]
    picture = f"{name}-cpu.png"
    figure = [f"![{record['title']}](../{results.name}/{picture})"] if (results / picture).is_file() else []
    tables = [errors_table(record)] if name == "when" else []
    return "\n\n".join([title, "\n".join(lines), *tables, *figure])


def errors_table(record: Mapping[str, Any]) -> str:
    """Return the test errors of ``when``, one net per line: by companions."""
    rows = {RowId.of(row): row for row in record["rows"]}
    lines = [
        "| net | without companions | default companions | flat companions | as printed |",
        "|---|---|---|---|---|",
    ]
    for bare in [each for each in rows if each.method == WITHOUT]:
        net = f"{bare.depth} layers, {NORMS[bare.norm]}, {bare.optimizer}, {bare.size:,} digits"
        beside = (bare, *(replace(bare, method=WITH, companions=kind) for kind in ("", "flat", "printed")))
        cells = [f"{rows[each]['mean']:.1f} ± {rows[each]['deviation']:.1f}{lower(rows[each], rows[bare])}"
                 if each in rows else "" for each in beside]  # fmt: skip
        lines.append(f"| {net} | {' | '.join(cells)} |")
    head = "Test error in %, mean and deviation over seeds; in brackets, in how many seeds it is lower than without"
    return f"{head} companions:\n\n" + "\n".join(lines)


def lower(row: Mapping[str, Any], bare: Mapping[str, Any]) -> str:
    """Say in how many seeds a row has less error than the row without companions; of that row itself, nothing."""
    if row is bare:
        return ""
    pairs = [(a, b) for a, b in zip(row["values"], bare["values"], strict=True) if a is not None and b is not None]
    return f" ({sum(a < b for a, b in pairs)} of {len(pairs)})"


def harm_text(paths: Sequence[Path]) -> str:
    """Return what each group of models says in ``deepsup bench harm``: error with companions over error without."""
    lines_of_groups = []
    for path in paths:
        try:
            groups = json.loads(path.read_text(encoding="utf-8"))["groups"]
            lines_of_groups += [f"{name}: {group_text(each)}" for name, each in groups.items() if each]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"cannot read {path}: {error}; expected a record that deepsup bench harm made") from error
    return (
        "**Small models at fixed learning rates, nothing but defaults** (`deepsup bench harm`). Test error with "
        "companions over test error without, geometric mean over the pairs of a model and an optimizer in which the "
        f"model trains without companions.\n\n{chr(10).join(f'- {each}' for each in lines_of_groups)}"
    )


def group_text(group: Mapping[str, Any]) -> str:
    """Return the ratio of a group with its interval, and how many rows and pairs there are."""
    ends = group["interval"]
    around = "" if ends is None else f"95 % {ends[0]:.2f} to {ends[1]:.2f}, "
    ratio = "none trains" if group["geometric_mean"] is None else f"{group['geometric_mean']:.2f} ({around}"
    ratio += "" if group["geometric_mean"] is None else f"lower in {group['better']} of {group['pairs']} pairs)"
    harmed = "; ".join(group["harmed"]) or "none"
    woken = f"{len(group['woken'])} more train only with companions"
    return f"{ratio}; {group['trained']} of {group['rows']} train; harmed: {harmed}; {woken}."
