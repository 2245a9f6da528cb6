"""``deepsup train``, ``compare``, ``evaluate``, ``predict``: settings or run folders in, errors and labels out."""

from __future__ import annotations

import itertools
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from deepsup.cli import settings as options
from deepsup.cli.app import Flag, resumable, same_command, show, table, verb
from deepsup.cli.dense_text import class_table, dense_line, shares_line
from deepsup.cli.engine_options import EngineOptions
from deepsup.cli.trusted import opened
from deepsup.config import Config
from deepsup.errors import RunError
from deepsup.recipes import quick

_LOSSES = "compare trains with softmax and with squared_hinge; deepsup train takes one loss"
_CHOOSES = "compare holds validation images out by itself to choose the learning rate, and tests at the end"
_INSTEAD = {
    "lr": "give the learning rates to choose from with --rates, e.g. --rates 0.01 0.1",
    **dict.fromkeys(("loss", "companion-loss", "label-smoothing"), _LOSSES),
    **dict.fromkeys(("validation", "select", "test", "no-test"), _CHOOSES),
    **dict.fromkeys(("tensorboard", "no-tensorboard"), "compare writes no TensorBoard events; deepsup train does"),
    "resume": "a comparison that was stopped goes on with the same command",
}
"""Options of train that compare does not have -> why, and what to use instead."""
_DECIDED = {option.replace("-", "_") for option in _INSTEAD}
_Settings: Any = options.options(Config())
_CompareSettings: Any = options.options(quick(), without=_DECIDED)
_Recipe = Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: none)")]
_File = Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: none)")]
_Runs = Annotated[tuple[Path, ...], Positional, arg(metavar="RUN ...")]
_Run = Annotated[Path, Positional, arg(metavar="RUN")]


@verb("train", instead={"phases": "write phases in a YAML file and give it with --config"})
def train(
    settings: Annotated[_Settings, arg(name="")] = _Settings(),  # noqa: B008 - frozen
    recipe: _Recipe = None,
    config: _File = None,
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: runs/NAME)")] = None,
    resume: Flag = False,
    trust: Flag = False,
    json: Flag = False,
) -> None:
    """Train one net and write its run folder.

    Args:
        settings: the settings of the config, in groups.
        recipe: recipe that the settings start from, e.g. quick, dsn-mnist, caffe-cifar10 or fast-cifar10
        config: YAML file that the settings start from
        out: run folder
        resume: go on with a run that was stopped; start it if there is none
        trust: with --resume, import the network that the run names; only for runs of people you trust
        json: print one JSON object
    """
    from deepsup.cli.progress import training_display
    from deepsup.runs.folder import RunFolder
    from deepsup.runs.train import train as train_run

    held = None
    if resume and out is not None and recipe is None and config is None and RunFolder(out).exists:
        config, held = out / "config.yaml", RunFolder(out).config
        _check_trusted(out, held, settings, trust)
    chosen = options.resolved(held or options.base(recipe, config, Config()), settings)
    with (
        training_display(chosen.total_epochs) as display,
        resumable(lambda: _go_on(display.folder, chosen.network.name)),
    ):
        run = train_run(chosen, out, resume=resume, callbacks=[display], keep_memory=True)
    result = run.result
    rows = [[name, f"{error:.2f} %"] for name, error in result["companions"].items()]
    if result["error"] is not None:
        rows.append(["output", f"{result['error']:.2f} %"])
    lines = [table(["layer", "test error"], rows), ""] if rows else []
    lines.append(f"{_many(result['epochs'], 'epoch')} in {result['seconds']:.1f} s; the run is in {run.folder}")
    lines += [dense_line(result["metrics"])] if "metrics" in result else []
    after = "report" if "metrics" in result else "inspect"
    lines.append(f"next: {reading(after, chosen.network.name, str(run.folder))}")
    if "metrics" not in result and _comparable(chosen, result):
        given = _shared(chosen, recipe, config, settings)
        lines.append("next: " + options.command("compare", recipe, config, given, _unused(run.folder)))
    show({"run": str(run.folder), **result}, "\n".join(lines), json)


def _check_trusted(out: Path, held: Config, settings: Any, trust: bool) -> None:
    """Refuse to import what a run names, unless the user names it too or trusts the run."""
    if ":" in held.network.name and not trust and "network" not in options.given(settings):
        raise RunError(
            f"{out} names a network that is not part of deepsup, {held.network.name}; it is not imported unless you "
            f"name it too: give --network {held.network.name}, or --trust"
        )


def reading(verb_: str, network: str, *folders: str) -> str:
    """Return the command that reads runs of a network, quoted for a shell; one of the user's own has to be trusted."""
    command = shlex.join(["deepsup", verb_, *folders])
    return f"PYTHONPATH=. {command} --trust" if ":" in network else command


def _go_on(folder: Path | None, network: str) -> str:
    """Say how to go on with a training that was stopped."""
    if folder is None:
        return f"nothing was trained yet; start again: {same_command()}"
    own = ["--network", network] if ":" in network else []
    command = shlex.join(["deepsup", "train", "--out", str(folder), "--resume", *own])
    return f"the run is in {folder}; go on with: {command}"


def _comparable(config: Config, result: dict[str, Any]) -> bool:
    """Whether compare takes these settings: it chooses one learning rate, on a fifth of the training images."""
    plain = not config.run.phases and config.optimizer.anneal != "plateau" and config.run.select != "best"
    return plain and config.run.batch_size <= result["train_images"] * 4 // 5


def _shared(config: Config, recipe: str | None, file: Path | None, settings: Any) -> dict[str, Any]:
    """Return the settings that compare needs for the same data and network; the data are always named."""
    given = {name: value for name, value in options.given(settings).items() if name not in _DECIDED}
    return given if recipe or file else {"data": config.data.source} | given


def _unused(folder: Path) -> Path:
    """Return a folder beside this one that is not there yet."""
    names = itertools.chain(["-compare"], (f"-compare-{number}" for number in itertools.count(2)))
    return next(path for name in names if not (path := folder.with_name(folder.name + name)).exists())


@verb("compare", instead=_INSTEAD)
def compare(
    settings: Annotated[_CompareSettings, arg(name="")] = _CompareSettings(),  # noqa: B008 - frozen
    recipe: _Recipe = None,
    config: _File = None,
    out: Annotated[Path, arg(metavar="DIR")] = Path("runs/compare"),
    seeds: int = 3,
    rates: Annotated[tuple[float, ...], arg(metavar="FLOAT ...")] = (0.003, 0.01, 0.03),
    where: Annotated[EngineOptions, arg(name="")] = EngineOptions(),  # noqa: B008 - frozen
    json: Flag = False,
) -> None:
    """Compare CNN-Softmax, DSN-Softmax, CNN-SVM and DSN-SVM on the same data and seeds.

    Args:
        settings: the settings of the config that the methods leave open, in groups.
        recipe: recipe that the settings start from
        config: YAML file that the settings start from
        out: folder of all runs; a comparison that was stopped goes on there
        seeds: number of seeds per method
        rates: learning rates to choose from for each method, on validation images
        where: where the runs are trained.
        json: print one JSON object
    """
    from deepsup.cli.progress import counting
    from deepsup.runs.folder import RunFolder
    from deepsup.runs.shares import shares_line
    from deepsup.studies import compare as compare_methods
    from deepsup.training.memory import kept_memory

    engine = where.chosen()
    default = quick().replace(train_size=None) if "data" in options.given(settings) else quick()
    chosen = options.resolved(options.base(recipe, config, default), settings)
    words = f"the runs are in {out}; go on with: {same_command()}"
    with counting("runs") as watch, resumable(lambda: words), kept_memory():
        answer = compare_methods(chosen, out, seeds=seeds, rates=rates, engine=engine, watch=watch)
        _inspect_runs(answer, out, chosen.network.name)
    figure, report = _draw(answer, out)
    first = RunFolder(out / answer["methods"]["DSN-Softmax"]["runs"][0])
    lines = [_comparison_text(answer), "", *filter(None, [shares_line(first.metrics)])]
    lines.append(f"table: {out / 'comparison.json'}")
    lines += [f"figure: {figure}"] if figure else []
    lines.append("next: " + reading("evaluate", chosen.network.name, *_folders(answer, out)))
    if not all(map(_certain, answer["differences"].values())):
        more = ["--rates", *map(str, rates), *engine.options(), "--seeds", str(max(5, 2 * seeds))]
        lines.append("next: " + options.command("compare", recipe, config, options.given(settings), out, *more))
    lines += [f"report: {report}"] if report else []
    show({**answer, "figure": figure, "report": report}, "\n".join(lines), json)


def _folders(answer: dict[str, Any], out: Path) -> Iterable[str]:
    """Return the run folders of DSN-SVM, whose scores can be averaged."""
    return (str(out / name) for name in answer["methods"]["DSN-SVM"]["runs"])


def _inspect_runs(answer: dict[str, Any], out: Path, network: str) -> None:
    """Inspect one net with companions and one without, so that the page can show their layers beside each other."""
    from deepsup.networks.own_network import current_folder_searched, trusted_factory
    from deepsup.runs.folder import RunFolder
    from deepsup.runs.inspect import inspect

    with current_folder_searched():  # the user has named it on this very command line
        factory = trusted_factory(network) if ":" in network else None
    for method in ("CNN-Softmax", "DSN-Softmax"):
        run = RunFolder(out / answer["methods"][method]["runs"][0], factory)
        if "probes" not in run.insight:
            inspect(run)


def _draw(answer: dict[str, Any], out: Path) -> tuple[str | None, str | None]:
    """Return the paths of the figure and of the page, none where what draws them is not installed."""
    try:
        from deepsup.report import draw_methods, write_report
    except ImportError as error:
        sys.stderr.write(f"no figure, no report: {error.name} is not installed (pip install 'deepsup[figures]')\n")
        return None, None
    return str(draw_methods(answer, out)), str(write_report([out]))


def _comparison_text(answer: dict[str, Any]) -> str:
    rows = []
    for method, each in answer["methods"].items():
        deviation = "" if each["deviation"] is None else f" ± {each['deviation']:.2f}"
        layers = ", ".join(f"{tap} {error:.1f}" for tap, error in each["companions"].items())
        gain = "" if method == "CNN-Softmax" else f"{each['gain']:+.1f} %"
        rows.append([method, f"{each['mean']:.2f}{deviation}", gain, f"{each['lr']:g}", layers])
    lines = [table(["method", "test error %", "gain over CNN-Softmax", "lr", "companions' errors %"], rows), ""]
    for pair, each in answer["differences"].items():
        interval = each["interval"]
        around = "" if interval is None else f", 95 % interval {interval[0]:+.2f} to {interval[1]:+.2f}"
        seeds = _many(len(answer["seeds"]), "seed")
        lines.append(f"{pair}: {each['mean']:+.2f} points over {seeds}{around}{_verdict(each)}")
    return "\n".join(lines)


def _certain(difference: dict[str, Any]) -> bool:
    """Whether the interval of a difference leaves out 0."""
    interval = difference["interval"]
    return interval is not None and (interval[1] < 0 or interval[0] > 0)


def _verdict(difference: dict[str, Any]) -> str:
    if difference["interval"] is None:
        return "; one seed is not conclusive"
    low, high = difference["interval"]
    if low == high == 0:
        return "; no difference in any seed"
    return "; better" if high < 0 else "; worse" if low > 0 else "; not significant: the interval contains 0"


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


@verb("evaluate")
def evaluate(
    runs: _Runs,
    data: Annotated[str | None, arg(metavar="NAME|PATH", help_behavior_hint="(default: the run's own)")] = None,
    trust: Flag = False,
    json: Flag = False,
) -> None:
    """Measure the test error of a run and of its companions; for several runs, of their averaged scores.

    Args:
        runs: run folders
        data: data set to evaluate on
        trust: import the network that a run names (package.module:factory); only for runs of people you trust
        json: print one JSON object
    """
    from deepsup.runs.evaluate import evaluate as evaluate_runs
    from deepsup.runs.folder import RunFolder
    from deepsup.runs.shares import shares_line

    answer = evaluate_runs([opened(run, trust) for run in runs], data)
    rows = [[name, f"{error:.2f} %"] for name, error in answer["companions"].items()]
    if len(runs) > 1:
        rows = [[name, f"{error:.2f} %"] for name, error in answer["runs"].items()]
    rows.append(["output" if len(runs) == 1 else f"vote of the {len(runs)}", f"{answer['error']:.2f} %"])
    lines = [table(["", "error"], rows), "", f"on {answer['images']:,} test images"]
    lines += [told for run in runs[:1] if (told := shares_line(RunFolder(run).metrics))]
    if "metrics" in answer:
        lines += ["", dense_line(answer["metrics"]["output"]), "", class_table(answer["metrics"])]
    show(answer, "\n".join(lines), json)


@verb("predict")
def predict(
    run: _Run,
    files: Annotated[tuple[Path, ...], Positional, arg(metavar="FILE ...")],
    early: Flag = False,
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: RUN/predictions)")] = None,
    trust: Flag = False,
    json: Flag = False,
) -> None:
    """Predict the labels of image files, with the run's own preprocessing; a run trained on masks writes masks.

    Args:
        run: run folder
        files: image files
        early: let images leave at the first companion that is sure, with the thresholds of deepsup exits
        out: folder for the masks of a run that was trained on masks
        trust: import the network that a run names (package.module:factory); only for runs of people you trust
        json: print one JSON object
    """
    from deepsup.runs.evaluate import predict as predict_files

    if early:
        _predict_early(opened(run, trust), files, json)
        return
    answers = predict_files(opened(run, trust), files, out)
    if "mask" in answers[0]:
        rows = [[each["file"], each["mask"], shares_line(each["classes"])] for each in answers]
        show({"predictions": answers}, table(["file", "mask", "classes"], rows), json)
        return
    taps = list(answers[0]["companions"])
    rows = [
        [each["file"], each["label"], f"{each['confidence']:.3f}", *(each["companions"][tap] for tap in taps)]
        for each in answers
    ]
    show({"predictions": answers}, table(["file", "label", "confidence", *taps], rows), json)


def _predict_early(run: Any, files: tuple[Path, ...], json: bool) -> None:
    """Show the label of each file and the exit at which it left."""
    from deepsup.exits.run_exits import predict_early

    answers = predict_early(run, files)
    rows = [[each["file"], each["label"], f"{each['confidence']:.3f}", each["exit"]] for each in answers]
    show({"predictions": answers}, table(["file", "label", "confidence", "left at"], rows), json)
