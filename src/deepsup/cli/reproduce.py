"""``deepsup reproduce``: a target of the paper in, ours beside theirs out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from deepsup.cli.app import show, table, verb


@verb("reproduce")
def reproduce(
    target: Annotated[str, Positional, arg(metavar="TARGET")] = "list",
    preset: str = "cpu",
    out: Path = Path("runs/reproduce"),
    jobs: int = 1,
    seeds: int | None = None,
    results: Path | None = None,
    repeat: str | None = None,
    json: bool = False,
) -> None:
    """Reproduce a table, a figure or a claim of the paper; without a target, list them with their minutes.

    Targets: mnist, cifar10, cifar10-augmented, cifar100, svhn (tables), fig2a, fig2b, fig2c, fig3, gradient-variance,
    robustness, pretraining, l1-l2, theory, all; and summary, which writes RESULTS.md from the records.

    Args:
        target: what to reproduce. Stopped half-way, it goes on with the runs that are missing.
        preset: paper (the full protocol: for a GPU, or patience), cpu (minutes to hours on two cores), smoke (seconds).
        out: the folder of runs, records and figures.
        jobs: how many runs to train at a time, each with its share of the cores.
        seeds: another number of seeds than the preset's.
        results: a folder to put the record and its figure into; for summary, the folder of the records (results).
        repeat: train one recorded row again and compare the errors, ROW or ROW@SEED; of the record in --results.
        json: print one JSON object.
    """
    if target == "list":
        _list(out, json)
    elif target == "summary":
        _summarise(results or Path("results"), json)
    elif repeat is not None:
        _repeat(target, preset, results or Path("results"), repeat, json)
    elif target == "all":
        from deepsup.reproduction.targets import NAMES

        records = [_one(name, preset, out, jobs, seeds, results) for name in NAMES]
        show({"targets": records}, "\n\n".join(_text(record) for record in records), json)
    else:
        record = _one(target, preset, out, jobs, seeds, results)
        show(record, _text(record), json)


def _one(name: str, preset: str, out: Path, jobs: int, seeds: int | None, results: Path | None) -> dict[str, Any]:
    """Run one target and leave its record and figure."""
    from deepsup.cli.progress import counting
    from deepsup.figures import draw_record
    from deepsup.reproduction import keep, record_folder
    from deepsup.reproduction import reproduce as reproduce_target

    with counting(f"runs of {name}") as watch:
        record = reproduce_target(name, preset, out, jobs=jobs, seeds=seeds, watch=watch)
    folder = record_folder(out, name, preset)
    figure = draw_record(record, folder)
    if results is not None:
        keep(record, figure, results)
    return {**record, "record": str(folder / "record.json"), "drawn": None if figure is None else str(figure)}


def _text(record: dict[str, Any]) -> str:
    """Return one line a row: the paper's value, ours, what differs."""
    rows = [
        [row["row"], _number(row["paper"]), _ours(row), row.get("choice", ""), row.get("differs", "")]
        for row in record["rows"]
    ]
    lines = [f"{record['title']} (preset {record['preset']})", ""]
    lines.append(table(["", "paper", "ours", "chosen", "differs from the paper's protocol"], rows))
    if record.get("readings"):
        rows = [[row["row"], _number(row["paper"]), _ours(row), row["unit"]] for row in record["readings"]]
        lines += ["", table(["", "paper", "ours", ""], rows)]
    for test in record.get("tests", []):
        lines.append(_test(test))
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
    if test["interval"] is None:
        return f"{test['test']}: " + (
            "nothing to compare" if test["mean"] is None else f"{test['mean']:+.2f}, one seed"
        )
    low, high = test["interval"]
    return (
        f"{test['test']}: {test['mean']:+.2f} points, 95 % {low:+.2f} to {high:+.2f}, p {test['p']:.2g}, n {test['n']}"
    )


def _list(out: Path, json: bool) -> None:
    """Say what there is to reproduce and how long it takes."""
    from deepsup.reproduction import minutes, plan_of
    from deepsup.reproduction.targets import NAMES, TARGETS

    told: dict[str, dict[str, Any]] = {}
    for name in NAMES:
        if name in TARGETS:
            times = {preset: round(minutes(plan_of(name, preset, out))) for preset in ("cpu", "paper")}
            told[name] = {"title": TARGETS[name].title, "minutes": times}
        else:
            told[name] = {"title": "Theory: the lemmas and the theorem, simulated", "minutes": {"cpu": 2, "paper": 20}}
    rows = [[name, each["title"], each["minutes"]["cpu"], f"{each['minutes']['paper'] / 60:,.0f}"]
            for name, each in told.items()]  # fmt: skip
    text = table(["target", "", "minutes (cpu)", "hours (paper)"], rows)
    note = "About, on two cores; --preset smoke takes seconds.\nnext: deepsup reproduce fig2b --preset smoke"
    show({"targets": told}, f"{text}\n\n{note}", json)


def _repeat(target: str, preset: str, results: Path, which: str, json: bool) -> None:
    """Train one recorded run again."""
    import tempfile

    from deepsup.reproduction import read_record
    from deepsup.reproduction import repeat as repeat_row

    record = read_record(results / f"{target}-{preset}.json")
    row, _, seed = which.partition("@")
    with tempfile.TemporaryDirectory() as folder:
        recorded, now = repeat_row(record, row, int(seed or 0), Path(folder) / "run")
    answer = {"row": row, "seed": int(seed or 0), "recorded": recorded, "now": now, "same": recorded == now}
    show(answer, f"{row}, seed {seed or 0}: recorded {recorded:.4f} %, now {now:.4f} %", json)


def _summarise(results: Path, json: bool) -> None:
    """Write RESULTS.md, and the README's block, from the records."""
    from deepsup.reproduction import summarise

    written = summarise(results)
    show({"written": [str(path) for path in written]}, "\n".join(f"written: {path}" for path in written), json)
