"""The sections of the page about one run or several."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deepsup.trainer.report import _insight_figures as insight_figures
from deepsup.trainer.report import _layer_figures as layers
from deepsup.trainer.report import _training_figures as training
from deepsup.trainer.report._dense_page import dense_sections
from deepsup.trainer.report._exit_page import exit_section
from deepsup.trainer.report._html import PageTable, Picture, Section
from deepsup.trainer.report._labels import NONE, shown
from deepsup.trainer.report._read import RunRecord
from deepsup.trainer.report._style import MOST_PICTURES, number
from deepsup.trainer.runs import shares_line

PROBES = (
    "How well does each layer separate the classes? A linear probe measures that: a linear classifier fitted to the "
    "layer's output, while the trained net stays fixed. The companions were trained together with the net, "
    "slowly and with a falling weight: where their errors are higher, they understate their layers."
)
BY_LAYER = "Test error of a linear probe on each layer, and of the output. Lower is better."
COMPANIONS = "Test errors of the companions and of the output. Lower is better."
FIRST_RIGHT = "The first layer from which all later layers and the output predict the right class."
GRADIENTS = "The variance of the gradient over a layer's weights at one step, averaged over the recorded steps."
SHARES = (
    "Of the gradient that reaches the output of a layer, the share that comes from its companion and from those above "
    "it; the rest comes from the output's loss."
)
RATIO = "The paper reports 4.55 for the first convolution."
MAPS = "One image per class. Only the top 30 % of each image's activations are shown, as in the paper's Fig. 3."
CONFUSION = (
    "Test images: rows are true classes, columns predicted classes. Grey is right. Red is wrong: the stronger the "
    "colour, the larger the share of that class."
)
MOST_SIDE_BY_SIDE = 12
"""Runs in a figure that shows them beside each other."""
UNPROBED = "By the layers' companions; deepsup inspect adds linear probes, which do not understate a layer."
INSPECT = "Not recorded in this run; deepsup inspect adds it."


def run_title(run: RunRecord) -> str:
    return f"{run.method}: {run.config.get('network', 'a net')} on {data_name(run)}"


def run_lead(run: RunRecord) -> str:
    """Return two sentences: what was trained on how many images, and the result."""
    result = run.result or {}
    taps = list(result.get("companions") or ((run.metrics or [{}])[-1].get("companion_errors") or {}))
    kind = (
        f"with companions at {', '.join(taps)}" if taps else "with companions" if run.supervised else "as a plain net"
    )
    images = f"{result['train_images']:,} training images" if result.get("train_images") else "the training images"
    seed = f", seed {run.config['seed']}" if "seed" in run.config else ""
    return (
        f"The network {run.config.get('network', '?')} was trained {kind} on {images} of {data_name(run)} for "
        f"{len(run.metrics)} epochs{seed}. {run_outcome(run)}"
    )


def run_outcome(run: RunRecord) -> str:
    """Return the test errors of the output and the companions as a sentence."""
    result = run.result or {}
    if not math.isfinite(number(result.get("error"))):
        return "It has no test error yet."
    images = f"{result['test_images']:,} test images" if result.get("test_images") else "the test images"
    hidden = ", ".join(f"{percent(error)} at {tap}" for tap, error in (result.get("companions") or {}).items())
    own = f"; the errors of its companions are {hidden}" if hidden else ""
    if "metrics" in result:
        return f"Its error on {images} (100 % minus the mean IoU) is {percent(result['error'])}{own}."
    return f"It is wrong on {percent(result['error'])} of {images}{own}."


def several_lead(runs: Sequence[RunRecord]) -> str:
    """Return two sentences about several runs: their test errors, and how to compare properly."""
    errors = ", ".join(f"{percent((run.result or {}).get('error'))} ({run.label})" for run in runs)
    return (
        f"{len(runs)} runs are shown side by side; their test errors are {errors}. Single runs do not show whether a "
        f"difference is more than chance: deepsup compare trains several seeds and gives the interval."
    )


def data_name(run: RunRecord) -> str:
    """Return the name of the data set, or of the folder."""
    return Path(str(run.config.get("data", "?"))).name or "?"


def run_sections(run: RunRecord, several: bool) -> list[Section]:
    seen = dense_sections(run) or [knows(run)]
    parts = [summary(run), *seen, course(run), mistakes(run), exit_section(run), maps(run), settings(run)]
    for part in parts:
        if several:
            part.set_apart(run.name)
    return parts


def summary(run: RunRecord) -> Section:
    """Return the main numbers of the run."""
    result, last = run.result or {}, run.metrics[-1] if run.metrics else {}
    planned = run.config.get("epochs", "?") if not run.config.get("phases") else "?"
    state = "finished" if run.result is not None else f"running or stopped, epoch {len(run.metrics)} of {planned}"
    cards = [
        ("test error", percent(result.get("error"))),
        (
            "wrong pixels in training" if run.dense else "training error, last epoch",
            percent(last.get("error")),
        ),
        ("method", run.method),
        ("network", str(run.config.get("network", "?"))),
        ("data", data_name(run)),
        ("epochs", str(result.get("epochs", len(run.metrics)))),
        ("seconds", plain(result.get("seconds"))),
        ("state", state),
    ]
    broken = [str(record.get("epoch")) for record in run.metrics if math.isnan(number(record.get("loss")))]
    text = (
        f"Training diverged: the loss is not a number in epoch {', '.join(broken[:5])}. Lower lr or alpha."
        if broken
        else ""
    )
    return Section("Summary", text, cards=cards)


def knows(run: RunRecord) -> Section:
    """Return what each layer knows: errors, confidence, and the layer at which images are first right."""
    probed = bool(run.insight.get("probes"))
    text = PROBES if probed else UNPROBED if run.insight else INSPECT
    section = Section("What each layer knows", text, tables=[layer_table(run)])
    section.show(layers.draw_layers({run.label: [run]}), BY_LAYER if probed else COMPANIONS)
    section.show(layers.draw_agreement([run]), FIRST_RIGHT)
    return section


def layer_table(run: RunRecord) -> PageTable:
    """Return a row for every layer: its errors and confidences."""
    last = run.metrics[-1] if run.metrics else {}
    result, facts = run.result or {}, run.insight.get("layers", {})
    trained = {**(last.get("companion_errors") or {}), "output": last.get("error")}
    tested = {**(result.get("companions") or {}), "output": result.get("error")}
    rows = [
        [
            name, "output" if name == "output" else "companion", percent(tested.get(name)), percent(trained.get(name)),
            plain(facts.get(name, {}).get("confidence_right")), plain(facts.get(name, {}).get("confidence_wrong")),
        ]
        for name in tested | trained
    ]  # fmt: skip
    for name, probe in run.insight.get("probes", {}).items():
        confidences = [plain(probe.get(f"confidence_{which}")) for which in ("right", "wrong")]
        rows.append(
            [name, "linear probe", percent(probe.get("error")), percent(probe.get("train_error")), *confidences]
        )
    header = ["layer", "classifier", "test error", "training error", "confidence, right", "confidence, wrong"]
    return PageTable(header, rows)


def course(run: RunRecord) -> Section:
    """Return the figures of the training."""
    section = Section("Training")
    what = "Wrong pixels" if run.dense else "Error"
    section.show(training.draw_layer_errors(run), f"{what} of every layer over the epochs, in training mode.")
    section.show(training.draw_dense_errors(run), "The error of the output, 100 % minus its mean IoU, over the epochs.")
    section.show(training.draw_losses(run), "The objective, and its parts before they are weighted by alpha.")
    section.show(
        training.draw_activity(run),
        "The fraction of steps in which a companion's loss was above gamma, so that it contributed.",
    )
    section.show(training.draw_shares(run), SHARES)
    section.show(training.draw_gradients(run), GRADIENTS)
    line = shares_line(run.metrics)
    section.text = f"{line[0].upper()}{line[1:]}." if line else ""
    if not run.metrics:
        section.text = "No epoch has ended yet."
    return section


def mistakes(run: RunRecord) -> Section:
    """Return the confusion matrix and the misclassified images with the highest confidence."""
    section = Section("Mistakes")
    section.show(insight_figures.draw_confusion(run), CONFUSION)
    absent = run.insight.get("absent", [])
    if absent:
        section.text = f"No test image of: {', '.join(map(str, absent))}."
    images = run.arrays.get("mistakes", ())[:MOST_PICTURES]
    for each, image in zip(run.insight.get("mistakes", []), images, strict=False):
        words = [f"{each['label']} classified as {each['said']}", f"confidence {plain(each['confidence'])}"]
        hidden = [f"{layer}: {label}" for layer, label in each.get("layers", {}).items()]
        alt = f"Test image {each['index']}, {words[0]}"
        section.pictures.append(Picture(insight_figures.picture_uri(image), alt, [*words, *hidden]))
    return section


def maps(run: RunRecord) -> Section:
    """Return feature maps and filters."""
    section = Section("What the first layers see")
    section.show(insight_figures.draw_maps([run]), MAPS)
    section.show(insight_figures.draw_filters(run), "Filters of the first convolution.")
    return section


def settings(run: RunRecord) -> Section:
    """Return the config and the environment, folded."""
    listed = [[key, shown(value)] for key, value in run.config.items()]
    where = [[key, shown(value)] for key, value in run.environment.items()]
    return Section(
        "Settings",
        tables=[PageTable(["setting", "value"], listed), PageTable(["environment", ""], where)],
        folded=True,
    )


def side_by_side(runs: Sequence[RunRecord]) -> list[Section]:
    """Return several runs side by side: numbers, differing settings, and layers."""
    head = ["", *(run.label for run in runs)]
    rows: list[list[Any]] = [["run", *(run.name for run in runs)], ["method", *(run.method for run in runs)]]
    rows.append(["test error", *(percent((run.result or {}).get("error")) for run in runs)])
    taps = list(dict.fromkeys(tap for run in runs for tap in (run.result or {}).get("companions") or {}))
    for tap in taps:
        errors = [((run.result or {}).get("companions") or {}).get(tap) for run in runs]
        rows.append([f"test error, companion {tap}", *map(percent, errors)])
    rows.append(["epochs", *(str(len(run.metrics)) for run in runs)])
    keys = list(dict.fromkeys(key for run in runs for key in run.config))
    other = [key for key in keys if len({shown(run.config.get(key)) for run in runs}) > 1]
    differ = [[key, *(shown(run.config.get(key)) for run in runs)] for key in other]
    section = Section("Side by side", tables=[PageTable(head, rows)])
    if len(runs) > MOST_SIDE_BY_SIDE:
        section.text = f"The figures show the first {MOST_SIDE_BY_SIDE} of {len(runs)} runs."
        runs = runs[:MOST_SIDE_BY_SIDE]
    if differ:
        section.tables.append(PageTable(["setting", *head[1:]], differ))
    section.show(layers.draw_layers({run.label: [run] for run in runs}), BY_LAYER)
    section.show(layers.draw_agreement(runs), FIRST_RIGHT)
    section.show(gradient_ratio(runs), f"{GRADIENTS} {RATIO}")
    section.show(insight_figures.draw_maps(runs), MAPS)
    return [section]


def gradient_ratio(runs: Sequence[RunRecord]) -> Any:
    """Draw the ratio of gradient variances with and without companions, if there are both."""
    ours, theirs = ([run for run in runs if run.supervised is kind] for kind in (True, False))
    return training.draw_gradient_ratio(ours, theirs) if ours and theirs else None


def percent(value: Any) -> str:
    """Return a percentage as text, or a dash."""
    return f"{value:.2f} %" if math.isfinite(number(value)) else NONE


def plain(value: Any) -> str:
    """Return a number as text, or a dash."""
    return f"{value:.3g}" if math.isfinite(number(value)) else NONE
