"""``deepsup train``, ``compare``, ``evaluate``, ``predict``: settings or run folders in, errors and labels out."""

from __future__ import annotations

import itertools
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from deepsup.cli import settings as options
from deepsup.cli.app import Flag, resumable, same_command, show, table, verb
from deepsup.cli.dense_text import class_table, dense_line, shares_line
from deepsup.cli.engine_options import EngineOptions
from deepsup.cli.help import Short
from deepsup.cli.insight_commands import understated
from deepsup.cli.trusted import opened
from deepsup.errors import MissingPackageError, RunError, extras_named
from deepsup.trainer.config import Config

_INSTEAD = {
    **dict.fromkeys(
        ("loss", "companion-loss"), "the methods have losses of their own: give --methods, or paper for all"
    ),
    **dict.fromkeys(("test", "no-test"), "compare judges by the test images, which it reads at the end of each run"),
    **dict.fromkeys(("tensorboard", "no-tensorboard"), "compare writes no TensorBoard events; deepsup train does"),
    "resume": "a comparison that was stopped goes on with the same command",
}
"""Options of train that compare does not have -> why, and what to use instead."""
_DECIDED = {option.replace("-", "_") for option in _INSTEAD}
_Settings: Any = options.options(Config())
_COMPARED = Config(amp="auto")
"""What compare starts from; its precision is also that of recipes, unless it is given."""
_CompareSettings: Any = options.options(_COMPARED, without=_DECIDED)
_CHANGED = ("data", "image_size", "augment", "network", "weights", "at", "optimizer", "lr", "epochs", "batch_size",
            "seed", "device")  # fmt: skip
"""The settings that people change."""
_TRAIN = Short(
    (*_CHANGED, "out", "resume", "config", "json"),
    (
        "deepsup train --data photos/ --image-size 64",
        "deepsup train --data photos/ --image-size 64 --network resnet18 --weights resnet18.pth",
        "deepsup train --data photos/ --image-size 64 --network my_file.py:MyNet --at none",
    ),
)
_COMPARE = Short(
    (*_CHANGED, "methods", "seeds", "minutes", "jobs", "out", "config", "json"),
    (
        "deepsup compare --data photos/ --image-size 64 --minutes 10",
        "deepsup compare --data photos/ --image-size 64 --network resnet18 --seeds 5 --jobs 2",
        "deepsup compare --data photos/ --image-size 64 --network my_file.py:MyNet",
    ),
)
_Recipe = Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: none)")]
_File = Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: none)")]
_Runs = Annotated[tuple[Path, ...], Positional, arg(metavar="RUN ...")]
_Run = Annotated[Path, Positional, arg(metavar="RUN")]
_Views = Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: the run's own)")]
_Precision = Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: as the run measured its error)")]


@verb("train", instead={"phases": "write phases in a YAML file and give it with --config"}, short=_TRAIN)
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
    from deepsup.trainer.runs import RunFolder, with_batch_size
    from deepsup.trainer.runs import train as train_run
    from deepsup.trainer.studies import chance_error, has_learned

    recorded = None
    if resume and out is not None and recipe is None and config is None and RunFolder(out).exists:
        config, recorded = out / "config.yaml", RunFolder(out).config
        _check_trusted(out, recorded, settings, trust)
    chosen = options.resolved(recorded or options.base(recipe, config, Config()), settings)
    if own_size := _leaves_size_open(recipe, config, settings):
        chosen = with_batch_size(chosen)
    with (
        training_display(chosen.total_epochs) as display,
        resumable(lambda: _go_on(display.folder, chosen.network.name)),
    ):
        run = train_run(chosen, out, resume=resume, callbacks=[display], keep_memory=True)
    result = run.result
    rows = [[name, f"{error:.2f} %"] for name, error in result["companions"].items()]
    if result["error"] is not None:
        rows.append([f"output{_how(result)}", f"{result['error']:.2f} %"])
    lines = [table(["layer", "test error"], rows), ""] if rows else []
    lines.append(f"{_many(result['epochs'], 'epoch')} in {result['seconds']:.1f} s; the run is in {run.folder}")
    lines += [dense_line(result["metrics"])] if "metrics" in result else []
    lines += _size_note(chosen) if own_size else []
    learned = result["error"] is None or "metrics" in result or has_learned(result["error"], len(run.classes))
    if not learned:
        chance = chance_error(len(run.classes))
        lines.append(
            f"it did not learn (guessing has {chance:.3g} % error); train longer or raise the rate: --epochs, --lr"
        )
    else:
        after = "report" if "metrics" in result else "inspect"
        lines.append(f"next: {reading(after, chosen.network.name, str(run.folder))}")
    if "metrics" not in result and _comparable(chosen):
        given = _shared(chosen, recipe, config, settings)
        methods = ["--methods", "CNN-SVM", "DSN-SVM"] if chosen.objective.loss == "squared_hinge" else []
        lines.append("next: " + options.command("compare", recipe, config, given, _unused(run.folder), *methods))
    show({"run": str(run.folder), **result}, "\n".join(lines), json)


def _leaves_size_open(recipe: str | None, file: Path | None, settings: Any) -> bool:
    """Whether nothing says how large the batches are, so that they may suit the number of images."""
    return recipe is None and file is None and "batch_size" not in options.given(settings)


def _size_note(config: Config) -> list[str]:
    """Say that few images were trained in small batches."""
    size = config.run.batch_size
    small = size < Config().run.batch_size
    return [f"batches of {size} images, since there are few; --batch-size chooses another size"] if small else []


def _check_trusted(out: Path, config: Config, settings: Any, trust: bool) -> None:
    """Refuse to import what a run names, unless the user names it too or trusts the run."""
    if ":" in config.network.name and not trust and "network" not in options.given(settings):
        raise RunError(
            f"{out} names a network that is not part of deepsup, {config.network.name}; it is not imported unless you "
            f"name it too: give --network {config.network.name}, or --trust"
        )


def reading(verb_: str, network: str, *folders: str) -> str:
    """Return the command that reads runs of a network, quoted for a shell; one of the user's own has to be trusted."""
    from deepsup.trainer.networks import is_file

    command = shlex.join(["deepsup", verb_, *folders])
    if ":" not in network:
        return command
    return f"{command} --trust" if is_file(network) else f"PYTHONPATH=. {command} --trust"


def _go_on(folder: Path | None, network: str) -> str:
    """Say how to go on with a training that was stopped."""
    if folder is None:
        return f"nothing was trained yet; start again: {same_command()}"
    own = ["--network", network] if ":" in network else []
    command = shlex.join(["deepsup", "train", "--out", str(folder), "--resume", *own])
    return f"the run is in {folder}; resume with: {command}"


def _comparable(config: Config) -> bool:
    """Whether compare can train such a net without companions too, with a loss that one of its methods has."""
    return config.objective.loss in ("softmax", "squared_hinge") and not any(phase.only for phase in config.run.phases)


def _shared(config: Config, recipe: str | None, file: Path | None, settings: Any) -> dict[str, Any]:
    """Return the settings that compare needs for the same data and network; the data are always named."""
    given = {name: value for name, value in options.given(settings).items() if name not in _DECIDED}
    return given if recipe or file else {"data": config.data.source} | given


def _unused(folder: Path) -> Path:
    """Return a folder beside this one that is not there yet."""
    names = itertools.chain(["-compare"], (f"-compare-{number}" for number in itertools.count(2)))
    return next(path for name in names if not (path := folder.with_name(folder.name + name)).exists())


@verb("compare", instead=_INSTEAD, short=_COMPARE)
def compare(
    settings: Annotated[_CompareSettings, arg(name="")] = _CompareSettings(),  # noqa: B008 - frozen
    recipe: _Recipe = None,
    config: _File = None,
    out: Annotated[Path, arg(metavar="DIR")] = Path("runs/compare"),
    methods: Annotated[tuple[str, ...], arg(metavar="NAME ...")] = ("CNN-Softmax", "DSN-Softmax"),
    seeds: int = 3,
    minutes: Annotated[float | None, arg(metavar="FLOAT", help_behavior_hint="(default: as long as it takes)")] = None,
    rates: Annotated[
        tuple[float, ...], arg(metavar="FLOAT ...", help_behavior_hint="(default: none; all have --lr)")
    ] = (),
    where: Annotated[EngineOptions, arg(name="")] = EngineOptions(),  # noqa: B008 - frozen
    json: Flag = False,
) -> None:
    """Train your network without and with companions, on the same data and seeds, and compare the test errors.

    It trains what deepsup train would train with the same options, says first how long that takes, and judges by the
    ratio of the errors, seed by seed.

    Args:
        settings: the settings of the config that the methods leave open, in groups.
        recipe: recipe that the settings start from
        config: YAML file that the settings start from
        out: folder of all runs; a comparison that was stopped goes on there
        methods: what to train: CNN-Softmax (without companions), DSN-Softmax (with them), CNN-SVM and DSN-SVM (the
            squared hinge), paper (these four), BatchNorm (without companions, with BatchNorm after its convolutions)
        seeds: number of seeds per method
        minutes: minutes to keep to, with fewer seeds (at least 2) and then fewer epochs
        rates: learning rates to choose from for each method, on validation images held out for it
        where: where the runs are trained.
        json: print one JSON object
    """
    from deepsup.cli.progress import counting
    from deepsup.trainer.runs import RunFolder, shares_line, with_batch_size
    from deepsup.trainer.studies import compare_methods, excludes
    from deepsup.trainer.training import kept_memory

    engine, start = where.chosen(), options.base(recipe, config, _COMPARED)
    chosen = options.resolved(start if config else start.replace(amp=_COMPARED.run.amp), settings)
    if own_size := _leaves_size_open(recipe, config, settings):
        chosen = with_batch_size(chosen)
    with counting("runs") as watch, resumable(lambda: _so_far(out)), kept_memory():
        answer = compare_methods(
            chosen, out, methods=methods, seeds=seeds, rates=rates, engine=engine, watch=watch, minutes=minutes,
            inspected=2,
        )  # fmt: skip
    with resumable(lambda: _so_far(out)):
        _inspect_runs(answer, out, chosen.network.name)
    figure, report = _draw(answer, out)
    lines = [_comparison_text(answer), ""]
    supervised = [RunFolder(out / each["runs"][0]) for each in answer["methods"].values() if each["companions"]]
    lines += [line for run in supervised[:1] if (line := shares_line(run.metrics))]
    lines += [line for run in supervised[:1] for line in understated(run.insight)]
    lines += _size_note(chosen) if own_size else []
    lines.append(f"table: {out / 'comparison.json'}")
    lines += [f"figure: {figure}"] if figure else []
    best = _best_runs(answer)
    if best:
        lines.append("next: " + reading("evaluate", chosen.network.name, *(str(out / name) for name in best)))
    if not all(excludes(ratio["interval"], 1) for ratio in answer["ratios"].values()):
        more = ["--methods", *methods] if methods != ("CNN-Softmax", "DSN-Softmax") else []
        more += ["--rates", *map(str, rates)] if rates else []
        given, epochs = options.given(settings), answer["config"]["epochs"]
        if best or chosen.run.phases:
            again, seeds = out, max(6, 2 * seeds)
            given |= {} if epochs == chosen.run.epochs else {"epochs": epochs}  # --minutes has shortened the runs
        else:  # what has not learned will not with more seeds
            again, given = out.with_name(f"{out.name}-{3 * epochs}-epochs"), {**given, "epochs": 3 * epochs}
        more += [*engine.options(), "--seeds", str(seeds)]
        lines.append("next: " + options.command("compare", recipe, config, given, again, *more))
    lines += [f"report: {report}"] if report else []
    show({**answer, "figure": figure, "report": report}, "\n".join(lines), json)


def _so_far(out: Path) -> str:
    """Say what a comparison that was stopped has, and how to go on with it."""
    from deepsup.io import read_json
    from deepsup.trainer.studies import ratio_text

    table = read_json(out / "comparison.json", {"ratios": {"*": {}}, "seeds": [int]}, "") if (
        out / "comparison.json").is_file() else {}  # fmt: skip
    words = [f"{pair}: {ratio_text(each)}" for pair, each in list(table.get("ratios", {}).items())[:1]]
    return "; ".join([*words, f"the runs are in {out}", f"resume with: {same_command()}"])


def _best_runs(answer: dict[str, Any]) -> list[str]:
    """Return the runs of the method with the lowest error that have learned, if most of them have."""
    best = min(answer["methods"].values(), key=lambda each: float(each["mean"]))
    learned = [run for run, has in zip(best["runs"], best["learned"], strict=True) if has]
    return learned if 2 * len(learned) > len(best["runs"]) else []


def _inspect_runs(answer: dict[str, Any], out: Path, network: str) -> None:
    """Inspect one net with companions and one without, so that the page can show their layers beside each other."""
    from deepsup.trainer.networks import current_folder_searched, trusted_factory
    from deepsup.trainer.runs import RunFolder, inspect

    with current_folder_searched():  # the user has named it on this very command line
        factory = trusted_factory(network) if ":" in network else None
    for method in list(answer["methods"])[:2]:
        run = RunFolder(out / answer["methods"][method]["runs"][0], factory)
        if run.finished and "metrics" not in run.result and "probes" not in run.insight:
            sys.stderr.write(f"what the layers know: {method}\n")
            inspect(run)


def _draw(answer: dict[str, Any], out: Path) -> tuple[str | None, str | None]:
    """Return the paths of the figure and of the page, none where what draws them is not installed."""
    try:
        with extras_named("the report with its figures"):
            from deepsup.trainer.report import draw_methods, write_report
    except MissingPackageError as error:
        sys.stderr.write(f"{error}\n")
        return None, None
    return str(draw_methods(answer, out)), str(write_report([out]))


def _comparison_text(answer: dict[str, Any]) -> str:
    from deepsup.trainer.studies import ratio_text

    rows = []
    for method, each in answer["methods"].items():
        deviation = "" if each["deviation"] is None else f" ± {each['deviation']:.2f}"
        seeds = ", ".join(f"{error:.1f}" for error in each["errors"])
        layers = ", ".join(f"{tap} {error:.1f}" for tap, error in each["companions"].items())
        rows.append([method, f"{each['mean']:.2f}{deviation}", seeds, f"{each['lr']:g}", layers])
    lines = [table(["method", "test error %", "each seed", "lr", "companions' errors %"], rows), ""]
    lines += [f"{pair}: {ratio_text(each)}" for pair, each in answer["ratios"].items()]
    return "\n".join([*lines, *answer["notes"]])


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


@verb("evaluate")
def evaluate(
    runs: _Runs,
    data: Annotated[str | None, arg(metavar="NAME|PATH", help_behavior_hint="(default: the run's own)")] = None,
    tta: _Views = None,
    amp: _Precision = None,
    trust: Flag = False,
    json: Flag = False,
) -> None:
    """Measure the test error of a run and of its companions; for several runs, of their averaged scores.

    Args:
        runs: run folders
        data: data set to evaluate on
        tta: test-time augmentation: none, flip, shift or flip-shift
        amp: precision: auto, on (bfloat16) or off (float32)
        trust: import the network that a run names (package.module:factory); only for runs of people you trust
        json: print one JSON object
    """
    from deepsup.trainer.runs import RunFolder, shares_line
    from deepsup.trainer.runs import evaluate as evaluate_runs

    answer = evaluate_runs([opened(run, trust) for run in runs], data, tta=tta, amp=amp)
    rows = [[name, f"{error:.2f} %"] for name, error in answer["companions"].items()]
    if len(runs) > 1:
        rows = [[name, f"{error:.2f} %"] for name, error in answer["runs"].items()]
    rows.append(["output" if len(runs) == 1 else f"vote of the {len(runs)}", f"{answer['error']:.2f} %"])
    lines = [table(["", "error"], rows), "", f"on {answer['images']:,} test images{_how(answer)}"]
    lines += [line for run in runs[:1] if (line := shares_line(RunFolder(run).metrics))]
    lines += [line for run in runs if len(runs) == 1 for line in understated(RunFolder(run).insight)]
    if "metrics" in answer:
        lines += ["", dense_line(answer["metrics"]["output"]), "", class_table(answer["metrics"])]
    show(answer, "\n".join(lines), json)


def _how(answer: Mapping[str, Any]) -> str:
    """Say from which views and in which precision errors were measured, where they are not the usual ones."""
    views = "" if answer.get("tta", "none") == "none" else f", test-time augmentation {answer['tta']}"
    return views + ("" if answer.get("measured_in", "float32") == "float32" else f", in {answer['measured_in']}")


@verb("predict")
def predict(
    run: _Run,
    files: Annotated[tuple[Path, ...], Positional, arg(metavar="FILE|FOLDER ...")],
    early: Flag = False,
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: RUN/predictions)")] = None,
    tta: _Views = None,
    amp: _Precision = None,
    trust: Flag = False,
    json: Flag = False,
) -> None:
    """Predict the labels of image files, with the run's own preprocessing; a run trained on masks writes masks.

    Args:
        run: run folder
        files: image files, or folders: all images in them and in their sub-folders
        early: let images leave at the first companion that is sure, with the thresholds of deepsup exits
        out: folder for the masks of a run that was trained on masks
        tta: test-time augmentation: none, flip, shift or flip-shift
        amp: precision: auto, on (bfloat16) or off (float32)
        trust: import the network that a run names (package.module:factory); only for runs of people you trust
        json: print one JSON object
    """
    from deepsup.trainer.data import image_files
    from deepsup.trainer.runs import predict as predict_files

    files = image_files(files)
    if early and (tta or amp):
        raise RunError("--early with --tta or --amp; expected one view in float32, on which the exits were calibrated")
    if early:
        _predict_early(opened(run, trust), files, json)
        return
    answers = predict_files(opened(run, trust), files, out, tta=tta, amp=amp)
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
    from deepsup.trainer.runs import predict_early

    answers = predict_early(run, files)
    rows = [[each["file"], each["label"], f"{each['confidence']:.3f}", each["exit"]] for each in answers]
    show({"predictions": answers}, table(["file", "label", "confidence", "left at"], rows), json)
