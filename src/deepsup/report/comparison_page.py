"""The sections of the page about a comparison: results, what each layer knows, what to try next."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deepsup.report import insight_figures
from deepsup.report import layer_figures as layers
from deepsup.report import method_figures as methods
from deepsup.report import training_figures as training
from deepsup.report.labels import NONE, shown
from deepsup.report.next_commands import compare_again, compare_own, is_own_data, more_images
from deepsup.report.page import PageTable, Section
from deepsup.report.read import Comparison, RunRecord
from deepsup.report.run_page import BY_LAYER, FIRST_RIGHT, GRADIENTS, MAPS, PROBES, RATIO, mistakes, percent, settings
from deepsup.report.style import Drawing, number

LOSSES = {"Softmax": "softmax", "SVM": "SVM"}
NOT_SIGNIFICANT = "not significant"


def comparison_title(comparison: Comparison) -> str:
    """Return the question that the comparison answers."""
    return f"Do companions help on {data_name(comparison)}?"


def comparison_lead(comparison: Comparison) -> str:
    """Return two sentences: what was compared on how many images, and the result."""
    table = comparison.table
    seeds, nets = len(table.get("seeds", [])), sum(len(each["errors"]) for each in table["methods"].values())
    trained, tested = methods.size_of(comparison), test_images(comparison)
    images = f"{trained:,} training images" if trained else "the training images"
    judged = f"the same {tested:,} images" if tested else "the same images"
    network = table.get("config", {}).get("network", "?")
    return (
        f"The network {network} was trained with and without companions on {images} of {data_name(comparison)}, with "
        f"two losses and {counted(seeds, 'seed')} each, and all {nets} nets were tested on {judged}. {outcome(table)}"
    )


def outcome(table: Mapping[str, Any]) -> str:
    """Return one sentence: whether companions made a difference, by the 95 % intervals."""
    clauses = []
    for loss, word in LOSSES.items():
        pair = table.get("differences", {}).get(f"DSN-{loss} - CNN-{loss}")
        if pair is not None:
            clauses.append(f"with the {word} loss, {clause(table['methods'], loss, pair)}")
    said = "; ".join(clauses) or "no pair of methods that differ only in their companions was trained"
    return f"{said[0].upper()}{said[1:]}."


def clause(by_method: Mapping[str, Any], loss: str, pair: Mapping[str, Any]) -> str:
    """Return the effect of companions with one loss."""
    plain, ours = (f"{by_method[f'{kind}-{loss}']['mean']:.2f}" for kind in ("CNN", "DSN"))
    both, around = (
        f"the test error is {plain} % without and {ours} % with companions",
        f"95 % interval {interval(pair)}",
    )
    if pair["interval"] is None:
        return f"{both}; one seed cannot show whether that is more than chance"
    if significance(pair) == NOT_SIGNIFICANT:
        return f"{both}, which is not a significant difference ({around} points)"
    verb = "lower" if significance(pair) == "better" else "raise"
    return f"companions {verb} the test error from {plain} to {ours} % ({around} points for the difference)"


def comparison_sections(comparison: Comparison, several: bool) -> list[Section]:
    """Return all sections of one comparison."""
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
    """Return the four methods: errors, standard deviations, and whether the differences are significant."""
    table = comparison.table
    section = Section("Results")
    section.show(
        methods.methods_figure(table), "Test error: mean and standard deviation over the seeds. Lower is better."
    )
    section.show(
        methods.draw_differences(table),
        "Each net is compared with the other net of the same seed. An interval that contains 0 is not conclusive.",
    )
    rows = [
        [method, methods.error_text(each), ", ".join(f"{error:.2f}" for error in each["errors"]),
         f"{number(each.get('gain')):+.1f} %" if method != "CNN-Softmax" else NONE, f"{number(each.get('lr')):g}"]
        for method, each in table["methods"].items()
    ]  # fmt: skip
    head = ["method", "test error, %", "each seed", "gain over CNN-Softmax", "learning rate"]
    section.tables.append(PageTable(head, rows))
    pairs = [
        [pair.replace(" - ", " minus "), f"{each['mean']:+.2f}", interval(each), significance(each)]
        for pair, each in table.get("differences", {}).items()
    ]
    section.tables.append(PageTable(["difference in points", "mean", "95 % interval", "the first is"], pairs))
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
    seeds, pair = len(table.get("seeds", [])), deciding_pair(table)
    if significance(pair) == NOT_SIGNIFICANT:
        more = max(10, 2 * seeds)
        why = f"{counted(seeds, 'seed')} cannot distinguish the methods. More seeds make the intervals narrower:"
        section.commands.append((why, compare_again(table, name, seeds=more)))
    elif pair["mean"] > 0:
        why = "Companions raise the error here. Give them less weight:"
        section.commands.append((why, compare_again(table, name, alpha=[0.1])))
    elif more_images(table):
        why = "Companions help here. See whether they still do with more images:"
        section.commands.append((why, compare_again(table, name, train_size=more_images(table))))
    section.commands += longer(comparison) + inspect_pair(comparison)
    return section


def deciding_pair(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the difference between DSN and CNN that decides: a significant one, if there is one."""
    differences = table.get("differences", {})
    pairs = [differences[key] for key in (f"DSN-{loss} - CNN-{loss}" for loss in LOSSES) if key in differences]
    unknown: Mapping[str, Any] = {"mean": 0.0, "interval": None}
    return next((pair for pair in pairs if significance(pair) != NOT_SIGNIFICANT), pairs[0] if pairs else unknown)


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
    """Return the figures of all training runs."""
    section = Section("Training")
    section.show(
        methods.draw_epochs(comparison),
        "Mean over seeds, as in the paper's Fig. 2a. Use --test-every 1 to record the test errors too.",
    )
    section.show(methods.draw_train_and_test(comparison), "At the end of training, as in the paper's Fig. 2c.")
    for loss in LOSSES:
        ours, theirs = comparison.runs.get(f"DSN-{loss}", []), comparison.runs.get(f"CNN-{loss}", [])
        ratio = training.draw_gradient_ratio(ours, theirs) if ours and theirs else None
        show_named(section, ratio, loss, f"{GRADIENTS} Mean over epochs and seeds. {RATIO}")
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


def interval(difference: Mapping[str, Any]) -> str:
    """Return a 95 % interval as text."""
    ends = difference["interval"]
    return NONE if ends is None else f"{ends[0]:+.2f} to {ends[1]:+.2f}"


def significance(difference: Mapping[str, Any]) -> str:
    """Return whether a difference is significant; below 0, the first is better."""
    ends = difference["interval"]  # None for one seed
    return NOT_SIGNIFICANT if ends is None or ends[0] <= 0 <= ends[1] else "better" if ends[1] < 0 else "worse"
