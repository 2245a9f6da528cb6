"""``deepsup sweep``: a space of settings in, the best of them out, with companions and without."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

from deepsup.cli import settings as options
from deepsup.cli.app import Flag, resumable, same_command, show, table, verb
from deepsup.cli.engine_options import EngineOptions
from deepsup.cli.help import Short
from deepsup.errors import MissingPackageError, extras_named
from deepsup.trainer.config import Config
from deepsup.trainer.recipes import quick

_CHOOSES = "sweep holds validation images out by itself, and tests the winners at the end"
_INSTEAD = {
    **dict.fromkeys(("validation", "select", "test", "no-test", "test-every", "validate-every"), _CHOOSES),
    **dict.fromkeys(("tensorboard", "no-tensorboard"), "sweep writes no TensorBoard events; deepsup train does"),
}
"""Options of train that sweep does not have -> why."""
_DECIDED = {option.replace("-", "_") for option in _INSTEAD}


def default_config(train_size: int | None = 500) -> Config:
    """Return what a sweep starts from: a small net on few digits, so that a trial takes seconds."""
    return quick().replace(network="cnn", network_options={}, epochs=15, train_size=train_size)


_SHORT = Short(
    ("data", "image_size", "network", "at", "lr", "epochs", "batch_size", "device", "budget", "trials", "seeds",
     "space", "jobs", "out", "resume", "json"),
    (
        "deepsup sweep --budget 5",
        "deepsup sweep --data photos/ --image-size 64 --network resnet18 --budget 60 --jobs 2",
        "deepsup sweep --data photos/ --image-size 64 --space my_space.yaml --trials 30",
    ),
)  # fmt: skip
_Settings: Any = options.options(default_config(), without=_DECIDED)
_None = "(default: none)"


@verb("sweep", instead=_INSTEAD, short=_SHORT)
def sweep(
    settings: Annotated[_Settings, arg(name="")] = _Settings(),  # noqa: B008 - frozen
    recipe: Annotated[str | None, arg(metavar="NAME", help_behavior_hint=_None)] = None,
    config: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint=_None)] = None,
    out: Annotated[Path, arg(metavar="DIR")] = Path("runs/sweep"),
    space: Annotated[
        Path | None, arg(metavar="FILE", help_behavior_hint="(default: lr, weight_decay, companions)")
    ] = None,
    budget: Annotated[float | None, arg(metavar="MINUTES", help_behavior_hint=_None)] = None,
    trials: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 20, or what the budget allows)")] = (
        None
    ),
    seeds: int = 3,
    storage: Annotated[str | None, arg(metavar="URL|FILE", help_behavior_hint="(default: study.db in the folder)")] = (
        None
    ),
    resume: Flag = False,
    where: Annotated[EngineOptions, arg(name="")] = EngineOptions(),  # noqa: B008 - frozen
    json: Flag = False,
) -> None:
    """Search the best settings with companions, and with as many trials those of the plain net.

    Trials are judged on validation images. The test set is read by the final runs of the two winners only.

    Args:
        settings: the settings that the search starts from, in groups; the first trial of each net has them.
        recipe: recipe that the settings start from
        config: YAML file that the settings start from
        out: folder of all runs
        space: YAML file of the settings to search and their ranges
        budget: minutes for everything, final runs included
        trials: number of trials per net
        seeds: number of final runs per net
        storage: where the trials are kept: a database URL, or a journal file
        resume: go on with a sweep that was stopped, or join one that another process has started
        where: where the runs are trained.
        json: print one JSON object
    """
    from deepsup.cli.progress import counting
    from deepsup.trainer.studies import sweep as sweep_settings
    from deepsup.trainer.training import kept_memory

    given = options.given(settings)
    default = default_config(None if "data" in given else 500)
    unchanged = resume and not given and recipe is None and config is None and (out / "settings.json").is_file()
    start = None if unchanged else options.resolved(options.base(recipe, config, default), settings)
    with counting("runs") as watch, resumable(lambda: _go_on(out, resume)), kept_memory():
        answer = sweep_settings(
            start, out, space=space, trials=trials, budget=budget, seeds=seeds, storage=storage, resume=resume,
            engine=where.chosen(), watch=watch,
        )  # fmt: skip
    report = None if answer["others"] else _report(out)
    show({**answer, "report": report}, _text(answer, out, report), json)


def _go_on(out: Path, resume: bool) -> str:
    return f"the trials are in {out}; resume with: {same_command()}{'' if resume else ' --resume'}"


def _report(out: Path) -> str | None:
    """Return the path of the page; none where what draws it is not installed."""
    try:
        with extras_named("the report"):
            from deepsup.trainer.report import write_report
    except MissingPackageError as error:
        sys.stderr.write(f"{error}\n")
        return None
    return str(write_report([out]))


def _text(answer: dict[str, Any], out: Path, report: str | None) -> str:
    rows = [
        [method, each["trials"], _percent(each["defaults_error"]), _percent(each["validation_error"]), _tested(each)]
        for method, each in answer["methods"].items()
    ]
    best = answer["best"]
    lines = [table(["net", "trials", "validation error % of the defaults", "of the best", "test error %"], rows), ""]
    words = ", ".join(f"{name} {_short(value)}" for name, value in best["settings"].items())
    lines.append(f"best on {answer['validation_images']:,} validation images: the {best['method']} net, {words}")
    if answer["others"]:
        lines.append(
            f"{answer['others']} trials of other processes are still going; the last process tests the winners"
        )
    else:
        lines += [_difference(answer), f"next: deepsup train --config {best['config']} --out {out}-best"]
    return "\n".join([*lines, *([f"report: {report}"] if report else [])])


def _difference(answer: dict[str, Any]) -> str:
    """Return whether companions help, by the test errors of the final runs."""
    difference = answer["difference"]
    if difference["mean"] is None:
        return "a final run diverged: no comparison"
    text = f"supervised - plain, test error: {difference['mean']:+.2f} points"
    if difference["interval"] is None:
        return f"{text}; one seed is not conclusive"
    low, high = difference["interval"]
    seeds = len(answer["methods"]["plain"]["errors"])
    return f"{text} over {seeds} seeds, 95 % interval {low:+.2f} to {high:+.2f}; {answer['verdict']}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _tested(each: dict[str, Any]) -> str:
    deviation = each.get("deviation")
    return _percent(each.get("mean")) + ("" if deviation is None else f" ± {deviation:.2f}")


def _short(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
