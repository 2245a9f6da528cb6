"""The sections of the page about a comparison: results, what each layer knows, what to try next."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deepsup.trainer.report import _insight_figures as insight_figures
from deepsup.trainer.report import _layer_figures as layers
from deepsup.trainer.report import _method_figures as methods
from deepsup.trainer.report import _training_figures as training
from deepsup.trainer.report._html import PageTable, Section
from deepsup.trainer.report._labels import NONE, shown
from deepsup.trainer.report._next_commands import compare_again, compare_own, is_own_data, more_images
from deepsup.trainer.report._read import Comparison, RunRecord
from deepsup.trainer.report._run_page import (
    BY_LAYER,
    FIRST_RIGHT,
    GRADIENTS,
    MAPS,
    PROBES,
    RATIO,
    mistakes,
    percent,
    settings,
)
from deepsup.trainer.report._style import Drawing, number
from deepsup.trainer.statistics import excludes

LOSSES = ("Softmax", "SVM")


def comparison_title(comparison: Comparison) -> str:
    """Return the question that the comparison answers."""
    return f"Do companions help on {data_name(comparison)}?"


def comparison_lead(comparison: Comparison) -> list[str]:
    """Return two paragraphs: one sentence with the number to remember, then the rest and what was compared."""
    table = comparison.table
    seeds, nets = len(table.get("seeds", [])), sum(len(each["errors"]) for each in table["methods"].values())
    trained, tested = methods.size_of(comparison), test_images(comparison)
    images = f"{trained:,} training images" if trained else "the training images"
    judged = f"the same {tested:,} images" if tested else "the same images"
    network = table.get("config", {}).get("network", "?")
    what = (
        f"The network {network} was trained on {images} of {data_name(comparison)} by "
        f"{counted(len(table['methods']), 'method')} with {counted(seeds, 'seed')} each, and all {nets} nets were "
        f"tested on {judged}."
    )
    rest = " ".join(filter(None, [sooner(comparison), norm_first(table), what]))
    return [paragraph for paragraph in (outcome(table), rest) if paragraph]


def main_ratio(table: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """Return the pair that differs in its companions only, the first of them, and the ratio of its errors."""
    return next(((pair, each) for pair, each in table.get("ratios", {}).items() if pair.startswith("DSN")), None)


def outcome(table: Mapping[str, Any]) -> str:
    """Return one sentence: how many times the error companions leave."""
    main = main_ratio(table)
    if main is None:
        return ""
    ratio = main[1]
    times = f"{ratio['ratio']:.2f} times that without"
    if ratio["interval"] is None:
        return f"With companions the test error is {times}, with one seed, which says nothing about chance."
    low, high = ratio["interval"]
    rest = f"(95 % interval {low:.2f} to {high:.2f}), lower in {ratio['lower']} of {ratio['pairs']} seeds."
    if excludes(ratio["interval"], 1):
        return f"With companions the test error is {times} {rest}"
    return f"{counted(ratio['pairs'], 'seed')} do not decide it: with companions the test error is {times} {rest}"


def sooner(comparison: Comparison) -> str:
    """Return after how many epochs the net with companions has the error that the other one ends with, if sooner."""
    main = main_ratio(comparison.table)
    what, curves = methods.mean_curves(comparison)
    ours, theirs = (curves.get(name) for name in (main[0].split(" / ") if main else ("", "")))
    if ours is None or theirs is None or not len(theirs) or not theirs[-1] >= np.nanmin(ours):
        return ""
    epoch = 1 + int(np.argmax(ours <= theirs[-1]))
    if epoch >= len(theirs):
        return ""
    return (
        f"Companions save steps: after {epoch} of {len(theirs)} epochs the net with them has the {what} that the net "
        f"without them ends with ({theirs[-1]:.1f} %)."
    )


def norm_first(table: Mapping[str, Any]) -> str:
    """Return what BatchNorm does to the same net, where it was trained."""
    ratio = next((each for pair, each in table.get("ratios", {}).items() if pair.startswith("BatchNorm")), None)
    if ratio is None:
        return ""
    advice = " If you can add BatchNorm, add it first." if ratio["ratio"] < 1 and excludes(ratio["interval"], 1) else ""
    times = f"{ratio['ratio']:.2f} times that of the plain net"
    return f"With BatchNorm instead of companions the test error is {times}.{advice}"


def comparison_sections(comparison: Comparison, several: bool) -> list[Section]:
    first = [runs[0] for runs in comparison.runs.values() if runs]
    table = comparison.table["methods"]
    best = min(table, key=lambda method: number(table[method]["mean"]))
    parts = [results(comparison), knows(comparison, first), next_step(comparison), course(comparison)]
    if comparison.runs.get(best):
        winner = mistakes(comparison.runs[best][0])
        winner.title = f"Mistakes of {best}"
        parts.append(winner)
    parts += [pictures(first), shared_settings(comparison, first)]
    for part in parts:
        if several:
            part.set_apart(comparison.name)
    return parts


def results(comparison: Comparison) -> Section:
    """Return the ratio of the errors, every seed of every method, and the tables."""
    table = comparison.table
    section = Section("Results", "\n".join(table.get("notes", [])))
    main = main_ratio(table)
    if main is not None:
        ratio = main[1]
        section.cards = [("test error with companions / without", f"{ratio['ratio']:.2f}"),
                         ("95 % interval", interval(ratio)),
                         ("lower in", f"{ratio['lower']} of {ratio['pairs']} seeds")]  # fmt: skip
    section.show(methods.methods_figure(table), "Test error: a line for each seed, and the mean. Lower is better.")
    what = methods.mean_curves(comparison)[0]
    section.show(methods.draw_epochs(comparison), f"The {what} over the epochs, mean over the seeds.")
    rows = [
        [method, methods.error_text(each), ", ".join(f"{error:.2f}" for error in each["errors"]),
         f"{number(each.get('lr')):g}"]
        for method, each in table["methods"].items()
    ]  # fmt: skip
    section.tables.append(PageTable(["method", "test error, %", "each seed", "learning rate"], rows))
    ratios = [
        [pair, f"{each['ratio']:.2f}", interval(each), f"{each['lower']} of {each['pairs']}", f"{each['p']:.2g}"]
        for pair, each in table.get("ratios", {}).items()
    ]
    if ratios:
        head = ["ratio of errors", "geometric mean", "95 % interval", "lower in", "sign test p"]
        section.tables.append(PageTable(head, ratios))
    return section


def knows(comparison: Comparison, first: Sequence[RunRecord]) -> Section:
    """Return what each layer knows, by method."""
    section = Section("What each layer knows", PROBES)
    pairs = layers.probed_pairs(comparison)
    for loss, pair in pairs.items():
        seeds = min(map(len, pair.values()))
        over = f"Mean and standard deviation over {seeds} seeds." if seeds > 1 else "One seed, so no error bars."
        show_named(section, layers.draw_layers(pair), loss, f"{BY_LAYER} {over}")
    supervised = {method: runs for method, runs in comparison.runs.items() if method.startswith("DSN") and runs}
    if not pairs:
        section.show(layers.draw_layers(supervised), "Test errors of the companions and of the output.")
    section.tables += companion_table(comparison.table["methods"])
    probed = [runs[0] for pair in pairs.values() for runs in pair.values()]
    right = layers.draw_agreement(probed or [run for run in first if run.supervised])
    section.show(right, f"{FIRST_RIGHT} First seed.")
    return section


def show_named(section: Section, drawing: Drawing | None, suffix: str, caption: str) -> None:
    """Add one of several drawings of the same kind, with its own file name."""
    if drawing is not None:
        drawing.name += f"-{suffix.lower()}"
    section.show(drawing, caption)


def companion_table(by_method: Mapping[str, Any]) -> list[PageTable]:
    """Return the test errors of the companions, if there are any."""
    supervised = {method: each for method, each in by_method.items() if each.get("companions")}
    taps = list(dict.fromkeys(tap for each in supervised.values() for tap in each["companions"]))
    rows = [
        [method, *(percent(each["companions"].get(tap)) for tap in taps), percent(each["mean"])]
        for method, each in supervised.items()
    ]
    return [PageTable(["test errors of companions", *taps, "output"], rows)] if taps else []


def next_step(comparison: Comparison) -> Section:
    """Return what to try next: commands that can be pasted as they are."""
    table, name = comparison.table, comparison.name
    section = Section("What to try next")
    if not is_own_data(table):
        why = "Your own images. Replace FOLDER by a folder that has one sub-folder of images per class:"
        section.commands.append((why, compare_own(table)))
    seeds, main = len(table.get("seeds", [])), main_ratio(table)
    if main is not None and not excludes(main[1]["interval"], 1):
        more = max(10, 2 * seeds)
        why = f"{counted(seeds, 'seed')} cannot distinguish the methods. More seeds make the interval narrower:"
        section.commands.append((why, compare_again(table, name, seeds=more)))
    elif main is not None and main[1]["ratio"] > 1:
        why = "Companions raise the error here. Give them less weight:"
        section.commands.append((why, compare_again(table, name, alpha=[0.1])))
    elif main is not None and more_images(table):
        why = "Companions help here. See whether they still do with more images:"
        section.commands.append((why, compare_again(table, name, train_size=more_images(table))))
    section.commands += longer(comparison) + inspect_pair(comparison)
    return section


def longer(comparison: Comparison) -> list[tuple[str, str]]:
    """Return the command for more epochs, if a method has not fitted its training images."""
    ends = {method: (runs[0].metrics or [{}])[-1].get("error") for method, runs in comparison.runs.items() if runs}
    slow = [method for method, error in ends.items() if number(error) > 2]
    if not slow:
        return []
    epochs = 2 * int(comparison.table.get("config", {}).get("epochs", 10))
    why = f"More than 2 % of the training images are still wrong with {', '.join(slow)}. Train longer:"
    return [(why, compare_again(comparison.table, comparison.name, epochs=epochs))]


def inspect_pair(comparison: Comparison) -> list[tuple[str, str]]:
    """Return the command that inspects a pair of nets on a separate page."""
    pairs = layers.probed_pairs(comparison) or {
        loss: {kind: comparison.runs.get(f"{kind}-{loss}", []) for kind in ("DSN", "CNN")} for loss in LOSSES
    }
    runs = [str(each[0].folder) for each in next(iter(pairs.values())).values() if each]
    return (
        [("A page about two of these nets, side by side:", shlex.join(["deepsup", "inspect", *runs]))] if runs else []
    )


def course(comparison: Comparison) -> Section:
    """Return the figures of the paper on all training runs."""
    section = Section("Training")
    section.show(methods.draw_train_and_test(comparison), "At the end of training, as in the paper's Fig. 2c.")
    ours, theirs = (comparison.runs.get(method, []) for method in ("DSN-SVM", "CNN-SVM"))  # as the paper has it
    ratio = training.draw_gradient_ratio(ours, theirs) if ours and theirs else None
    section.show(ratio, f"{GRADIENTS} Mean over epochs and seeds. {RATIO}")
    return section


def pictures(first: Sequence[RunRecord]) -> Section:
    """Return the feature maps of the inspected methods, side by side."""
    inspected = [run for run in first if "merged" in run.arrays]
    section = Section("What the first layer sees")
    section.show(insight_figures.draw_maps(inspected), MAPS)
    for run in inspected:
        caption = f"Filters of the first convolution of {run.method}, first seed."
        show_named(section, insight_figures.draw_filters(run), run.method, caption)
    return section


def shared_settings(comparison: Comparison, first: Sequence[RunRecord]) -> Section:
    """Return the config that all methods share, and the environment of the first run."""
    section = settings(first[0]) if first else Section("Settings", folded=True)
    shared = [[key, shown(value)] for key, value in comparison.table.get("config", {}).items()]
    section.tables = [PageTable(["setting", "value"], shared), *section.tables[1:]]
    return section


def data_name(comparison: Comparison) -> str:
    """Return the name of the data set, or of the folder."""
    return Path(str(comparison.table.get("config", {}).get("data", "?"))).name


def test_images(comparison: Comparison) -> int:
    """Return the number of test images, or 0 if it is unknown."""
    results = [run.result for runs in comparison.runs.values() for run in runs if run.result]
    return int(results[0].get("test_images", 0)) if results else 0


def counted(count: int, what: str) -> str:
    """Return a count with its noun.

    >>> counted(1, "seed"), counted(3, "seed")
    ('1 seed', '3 seeds')
    """
    return f"{count} {what}{'' if count == 1 else 's'}"


def interval(ratio: Mapping[str, Any]) -> str:
    """Return a 95 % interval as text."""
    ends = ratio["interval"]
    return NONE if ends is None else f"{ends[0]:.2f} to {ends[1]:.2f}"
