"""``deepsup exits``: a run in; out, how fast it answers if sure images leave early, and at what error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from deepsup.cli.app import Flag, show, table, verb
from deepsup.cli.insight_commands import figures_if_there
from deepsup.cli.trusted import opened
from deepsup.errors import ConfigError

_Number = Annotated[float | None, arg(metavar="FLOAT", help_behavior_hint="(default: 0.1)")]
_Cost = Annotated[float | None, arg(metavar="FLOAT", help_behavior_hint="(default: none)")]
_Folder = Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: none)")]


@verb("exits")
def exits(
    run: Annotated[Path, Positional, arg(metavar="RUN")],
    max_error_increase: _Number = None,
    max_cost: _Cost = None,
    batch_sizes: Annotated[tuple[int, ...], arg(metavar="INT ...")] = (1, 32, 512),
    export: _Folder = None,
    trust: Flag = False,
    json: Flag = False,
) -> None:
    """Calibrate early exits: choose thresholds on validation images, measure speed and error, keep them for predict.

    Args:
        run: folder of a finished run with companions
        max_error_increase: percentage points by which the error may rise
        max_cost: in its place, the fraction of the plain net's time to stay within, at the lowest error
        batch_sizes: batch sizes to be fast on
        export: folder that gets one ONNX graph per stage and a runner that needs no torch
        trust: import the network that a run names (package.module:factory); only for runs of people you trust
        json: print one JSON object
    """
    from deepsup.cli.progress import counting
    from deepsup.exporting import check_onnx
    from deepsup.trainer.runs import calibrate_run, export_exits

    _check(batch_sizes, max_error_increase, max_cost)
    figures = figures_if_there()  # before the work, not after it
    if export is not None:
        check_onnx()
    folder = opened(run, trust)
    with counting("steps") as watch:
        early, record = calibrate_run(
            folder, max_error_increase=max_error_increase, max_cost=max_cost, batch_sizes=batch_sizes, watch=watch
        )
    written = {"run": str(run)} | ({"figure": str(figures.draw_exits(run))} if figures else {})
    if export is not None:
        written["export"] = str(export_exits(folder, early, export))
    show({**record, **written}, _text(record, written), json)


def _check(sizes: tuple[int, ...], increase: float | None, cost: float | None) -> None:
    """Refuse settings that the library would refuse, in the words of the command line."""
    if not sizes or min(sizes) < 1:
        raise ConfigError(f"batch_sizes={list(sizes)}; expected whole numbers of at least 1, e.g. --batch-sizes 1 32")
    if increase is not None and cost is not None:
        raise ConfigError("--max-error-increase and --max-cost; expected one of them")
    if increase is not None and not (math.isfinite(increase) and 0 <= increase <= 100):
        raise ConfigError(f"--max-error-increase {increase}; expected percentage points within 0 and 100")
    if cost is not None and not 0 < cost <= 1:
        raise ConfigError(f"--max-cost {cost}; expected a fraction of the plain net's time, above 0 and at most 1")


def _text(record: Mapping[str, Any], written: dict[str, str]) -> str:
    """Return the table of exits, the speed by batch size and the errors."""
    rows = []
    for name in [*record["thresholds"], "output"]:
        leaving = record["exits"].get(name)
        threshold = record["thresholds"].get(name)
        sure = "" if name == "output" else "off" if threshold is None else f"{threshold:.3f}"
        share, error = (f"{leaving['share']:.1f} %", f"{leaving['error']:.2f} %") if leaving else ("", "")
        rows.append([name, sure, share, error])
    lines = [table(["exit", "leaves above", "test images", "their error"], rows), ""]
    speeds = [[size, f"{speed:.2f}"] for size, speed in record["speedup"].items()]
    lines += [table(["batch size", "times as fast as the plain net"], speeds), ""]
    change = record["error"] - record["plain_error"]
    lines.append(
        f"test error {record['error']:.2f} %, plain net {record['plain_error']:.2f} % ({change:+.2f} points), on "
        f"{record['images']:,} images; {record['multiply_adds']:.2f} of the multiply-adds"
    )
    active = any(threshold is not None for threshold in record["thresholds"].values())
    faster = active and any(speed > 1 for speed in record["speedup"].values())
    if not active:
        lines.append("no exit pays for itself on this machine within the allowed error: the plain net runs")
    elif not faster:
        lines.append("on the test images the exits are not faster than the plain net at any of these batch sizes")
    lines += [f"{what}: {path}" for what, path in written.items() if what != "run"]
    lines += [f"next: deepsup predict {written['run']} FILE ... --early"] * faster
    lines += [f"next: deepsup report {written['run']}"] * ("figure" in written)
    return "\n".join(lines)
