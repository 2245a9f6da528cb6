"""``deepsup train``, ``compare``, ``evaluate``, ``predict``: knobs or run folders in, errors and labels out."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Any

import yaml
from tyro.conf import Positional, arg

from deepsup.cli.app import show, table, verb
from deepsup.config import Config
from deepsup.errors import ConfigError
from deepsup.recipes import find_recipe, quick


def _knobs(defaults: Config, without: frozenset[str] = frozenset()) -> type:
    """Make a class with one optional field for every knob of the Config, so that each is a flag."""
    types = {"network_options": "tuple[str, ...]"}
    made = []
    for knob in dataclasses.fields(Config):
        if knob.name not in without | {"phases"}:  # these are written in a YAML file
            kind = types.get(knob.name, str(knob.type)).removesuffix(" | None")
            kind_or_none = eval(kind, {}) | None  # the Config's own annotations, postponed as text
            hint = f"(default: {_shown(getattr(defaults, knob.name))})"
            annotation = Annotated[kind_or_none, arg(help=_help(knob), help_behavior_hint=hint)]  # type: ignore[valid-type]
            made.append((knob.name, annotation, dataclasses.field(default=None)))
    return dataclasses.make_dataclass("Knobs", made, frozen=True)


def _help(knob: dataclasses.Field[Any]) -> str:
    among = knob.metadata["among"]
    return f"{knob.metadata['doc']}: {', '.join(among)}" if among else str(knob.metadata["doc"])


def _shown(default: Any) -> str:
    words = " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
    return "none" if default is None or default == {} or not words else words


# what a comparison decides by itself
_DECIDED = frozenset({"loss", "companion_loss", "lr", "validation", "select", "test", "tensorboard", "label_smoothing"})
_Knobs: Any = _knobs(Config())
_CompareKnobs: Any = _knobs(quick(), without=_DECIDED)
_AnyKnobs = Annotated[_Knobs, arg(name="")]
_AnyCompareKnobs = Annotated[_CompareKnobs, arg(name="")]
_Runs = Annotated[tuple[Path, ...], Positional, arg(metavar="RUN")]
_Run = Annotated[Path, Positional, arg(metavar="RUN")]


def _given(knobs: Any) -> dict[str, Any]:
    """Return the knobs that were set on the command line."""
    given = {name: value for name, value in dataclasses.asdict(knobs).items() if value is not None}
    if "network_options" in given:
        given["network_options"] = dict(_option(word) for word in given["network_options"])
    return given


def _option(word: str) -> tuple[str, Any]:
    key, equals, value = word.partition("=")
    if not equals:
        raise ConfigError(f"network_options {word!r}; expected key=value, e.g. drop=0.3")
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigError(f"network_options {word!r}: its value is not YAML; expected e.g. drop=0.3") from error


def _config(recipe: str | None, file: Path | None, knobs: Any, default: Config) -> Config:
    """Return a recipe's, a file's or the default config with the knobs set on the command line."""
    if recipe is not None and file is not None:
        raise ConfigError(f"both --recipe {recipe} and --config {file}; expected one of them")
    base = default
    if file is not None:
        base = Config.from_yaml(file)
    elif recipe is not None:
        base = find_recipe(recipe)
    return Config.from_dict({**base.to_dict(), **_given(knobs)})


@verb("train")
def train(
    knobs: _AnyKnobs = _Knobs(),  # noqa: B008 - frozen
    recipe: str | None = None,
    config: Path | None = None,
    out: Path | None = None,
    resume: bool = False,
    json: bool = False,
) -> None:
    """Train one net and leave its run folder.

    Args:
        knobs: every knob of the config.
        recipe: where the knobs start from, e.g. quick, dsn-mnist, caffe-cifar10, fast-cifar10.
        config: a YAML file of knobs to start from instead.
        out: the run's folder; by itself runs/ and a name.
        resume: go on where the run was stopped; start it if there is none.
        json: print one JSON object.
    """
    from deepsup.cli.progress import watching
    from deepsup.experiment import train as train_run
    from deepsup.record import Run

    if resume and out is not None and recipe is None and config is None and Run(out).exists:
        settings = _config(None, None, knobs, Run(out).config)
    else:
        settings = _config(recipe, config, knobs, Config())
    with watching(settings.total_epochs) as watch:
        run = train_run(settings, out, resume=resume, watch=watch)
    result = run.result
    rows = [[name, f"{error:.2f} %"] for name, error in result["companions"].items()]
    if result["error"] is not None:
        rows.append(["output", f"{result['error']:.2f} %"])
    text = (
        f"{table(['layer', 'test error'], rows)}\n\n{_many(result['epochs'], 'epoch')} in {result['seconds']:.1f} s; "
        f"the run is in {run.folder}\nnext: deepsup evaluate {run.folder}   or   deepsup compare"
    )
    show({"run": str(run.folder), **result}, text, json)


@verb("compare")
def compare(
    knobs: _AnyCompareKnobs = _CompareKnobs(),  # noqa: B008 - frozen
    recipe: str | None = None,
    config: Path | None = None,
    out: Path = Path("runs/compare"),
    seeds: int = 3,
    rates: tuple[float, ...] = (0.003, 0.01, 0.03, 0.1),
    jobs: int = 1,
    json: bool = False,
) -> None:
    """Do companions help? Train CNN-Softmax, DSN-Softmax, CNN-SVM and DSN-SVM on the same data and seeds.

    Args:
        knobs: every knob of the config that the methods do not decide.
        recipe: where the knobs start from; by itself 500 of the embedded digits.
        config: a YAML file of knobs to start from instead.
        out: the folder of all its runs; a comparison that was stopped goes on there.
        seeds: how many seeds to train each method with.
        rates: learning rates to choose from on validation images, for each method.
        jobs: how many runs to train at a time, each with its share of the cores.
        json: print one JSON object.
    """
    from deepsup.cli.progress import counting
    from deepsup.experiment import compare as compare_methods

    own_data = "data" in _given(knobs)
    settings = _config(recipe, config, knobs, dataclasses.replace(quick(), train_size=None) if own_data else quick())
    with counting("runs") as watch:
        answer = compare_methods(settings, out, seeds=seeds, rates=rates, jobs=jobs, watch=watch)
    _look_inside(answer, out)
    figure, report = _draw(answer, out)
    show({**answer, "figure": figure, "report": report}, _comparison_text(answer, out, figure, report), json)


def _look_inside(answer: dict[str, Any], out: Path) -> None:
    """Inspect one net with companions and one without, so that the page can show their layers beside each other."""
    from deepsup.experiment import inspect
    from deepsup.record import Run

    for method in ("CNN-SVM", "DSN-SVM"):
        run = Run(out / answer["methods"][method]["runs"][0])
        if "probes" not in run.inside:
            inspect(run)


def _draw(answer: dict[str, Any], out: Path) -> tuple[str | None, str | None]:
    """Return the paths of the figure and of the page, none where what draws them is not installed."""
    try:
        from deepsup.figures import draw_methods, write_report
    except ImportError as error:
        sys.stderr.write(f"no figure, no report: {error.name} is not installed (pip install 'deepsup[figures]')\n")
        return None, None
    return str(draw_methods(answer, out)), str(write_report([out]))


def _comparison_text(answer: dict[str, Any], out: Path, figure: str | None, report: str | None) -> str:
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
    lines += ["", f"table: {out / 'comparison.json'}"] + ([f"figure: {figure}"] if figure else [])
    lines.append(f"next: deepsup evaluate {out}/dsn-svm-*seed* (their vote), or your own images: --data DIR")
    return "\n".join([*lines, *([f"report: {report}"] if report else [])])


def _verdict(difference: dict[str, Any]) -> str:
    if difference["interval"] is None:
        return "; one seed says nothing certain"
    low, high = difference["interval"]
    if low == high == 0:
        return "; no difference in any seed"
    return "; better" if high < 0 else "; worse" if low > 0 else "; no certain difference: 0 lies inside"


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


@verb("evaluate")
def evaluate(runs: _Runs, data: str | None = None, json: bool = False) -> None:
    """Measure the test error of a run and of its companions; of several runs, that of their averaged scores.

    Args:
        runs: run folders.
        data: another data set than the run's own.
        json: print one JSON object.
    """
    from deepsup.experiment import evaluate as evaluate_runs
    from deepsup.record import Run

    answer = evaluate_runs([Run(run) for run in runs], data)
    rows = [[name, f"{error:.2f} %"] for name, error in answer["companions"].items()]
    if len(runs) > 1:
        rows = [[name, f"{error:.2f} %"] for name, error in answer["runs"].items()]
    rows.append(["output" if len(runs) == 1 else f"vote of the {len(runs)}", f"{answer['error']:.2f} %"])
    show(answer, f"{table(['', 'error'], rows)}\n\non {answer['images']:,} test images", json)


@verb("predict")
def predict(run: _Run, files: Annotated[tuple[Path, ...], Positional, arg(metavar="FILE")], json: bool = False) -> None:
    """Say what image files show, with the run's own preprocessing.

    Args:
        run: a run folder.
        files: image files.
        json: print one JSON object.
    """
    from deepsup.experiment import predict as predict_files
    from deepsup.record import Run

    answers = predict_files(Run(run), files)
    taps = list(answers[0]["companions"])
    rows = [
        [each["file"], each["label"], f"{each['confidence']:.3f}", *(each["companions"][tap] for tap in taps)]
        for each in answers
    ]
    show({"predictions": answers}, table(["file", "label", "confidence", *taps], rows), json)
