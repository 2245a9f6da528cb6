"""The records of one run, or of several, in; the sections of the page about them out."""

import json
import math
from collections.abc import Sequence
from typing import Any

from deepsup.figures import knowledge, training
from deepsup.figures.page import Picture, Section, Table
from deepsup.figures.read import Story
from deepsup.figures.style import number

GRADIENTS = (
    "The gradient of the objective with respect to a layer's weights at one step has a variance over the weights; "
    "shown is its mean over the steps recorded."
)
NONE = "\N{EN DASH}"  # where there is no number
INSPECT = "Not recorded in this run; deepsup inspect finds it."


def run_sections(story: Story, several: bool) -> list[Section]:
    """Return everything known of one run."""
    parts = [summary(story), layers(story), course(story), mistakes(story), maps(story), settings(story)]
    for part in parts:
        if several:
            part.set_apart(story.name)
    return parts


def summary(story: Story) -> Section:
    """Return the run in a few numbers."""
    result, last = story.result or {}, story.metrics[-1] if story.metrics else {}
    planned = story.config.get("epochs", "?") if not story.config.get("phases") else "?"
    state = (
        "finished" if story.result is not None else f"still going or stopped, epoch {len(story.metrics)} of {planned}"
    )
    cards = [
        ("test error", percent(result.get("error"))),
        ("training error, last epoch", percent(last.get("error"))),
        ("method", story.method),
        ("network", str(story.config.get("network", "?"))),
        ("data", str(story.config.get("data", "?")).rsplit("/", 1)[-1]),
        ("epochs", str(result.get("epochs", len(story.metrics)))),
        ("seconds", plain(result.get("seconds"))),
        ("state", state),
    ]
    broken = [str(record.get("epoch")) for record in story.metrics if math.isnan(number(record.get("loss")))]
    text = f"The loss is no number in epoch {', '.join(broken[:5])}: lower lr or alpha." if broken else ""
    return Section("Summary", text, cards=cards)


def layers(story: Story) -> Section:
    """Return what each layer knows: errors, confidence, where images are first right."""
    section = Section("What each layer knows", tables=[layer_table(story)])
    if not story.inside:
        section.text = INSPECT
    section.show(
        knowledge.draw_layer_knowledge([story]), "Companions: trained with the net. Probes: fitted on the frozen net."
    )
    section.show(
        knowledge.draw_agreement([story]), "The layer from which on all layers and the output say the right class."
    )
    return section


def layer_table(story: Story) -> Table:
    """Return a row for every layer: its errors and confidences."""
    last = story.metrics[-1] if story.metrics else {}
    result, inside = story.result or {}, story.inside.get("layers", {})
    trained = {**(last.get("companion_errors") or {}), "output": last.get("error")}
    tested = {**(result.get("companions") or {}), "output": result.get("error")}
    rows = [
        [
            name, "output" if name == "output" else "companion", percent(tested.get(name)), percent(trained.get(name)),
            plain(inside.get(name, {}).get("confidence_right")), plain(inside.get(name, {}).get("confidence_wrong")),
        ]
        for name in tested | trained
    ]  # fmt: skip
    for name, probe in story.inside.get("probes", {}).items():
        confidences = [plain(probe.get(f"confidence_{which}")) for which in ("right", "wrong")]
        rows.append(
            [name, "linear probe", percent(probe.get("error")), percent(probe.get("train_error")), *confidences]
        )
    header = ["layer", "judged by", "test error", "training error", "confidence, right", "confidence, wrong"]
    return Table(header, rows, wide=True)


def course(story: Story) -> Section:
    """Return the figures of the training."""
    section = Section("Training")
    section.show(training.draw_layer_errors(story), "Error of every layer over the epochs, in training (with dropout).")
    section.show(training.draw_losses(story), "The objective, and its parts before alpha.")
    section.show(training.draw_activity(story), "The fraction of steps at which a companion was above gamma.")
    section.show(training.draw_gradients(story), GRADIENTS)
    if not story.metrics:
        section.text = "No epoch has ended yet."
    return section


def mistakes(story: Story) -> Section:
    """Return the confusion matrix and the images that the net gets wrong and is surest of."""
    section = Section("Mistakes")
    section.show(knowledge.draw_confusion(story), "Test images: rows what they are, columns what the output says.")
    absent = story.inside.get("absent", [])
    if absent:
        section.text = f"No test image of: {', '.join(map(str, absent))}."
    images = story.arrays.get("mistakes", ())
    for each, image in zip(story.inside.get("mistakes", []), images, strict=False):
        said = [f"{each['label']} taken for {each['said']}", f"confidence {plain(each['confidence'])}"]
        hidden = [f"{layer}: {label}" for layer, label in each.get("layers", {}).items()]
        alt = f"Test image {each['index']}, {said[0]}"
        section.pictures.append(Picture(knowledge.picture_uri(image), alt, [*said, *hidden]))
    return section


def maps(story: Story) -> Section:
    """Return feature maps and filters."""
    section = Section("What the first layers see")
    section.show(
        knowledge.draw_maps([story]), "One image a class; of every image's activations only the top 30 % are shown."
    )
    section.show(knowledge.draw_filters(story), "Filters of the first convolution.")
    return section


def settings(story: Story) -> Section:
    """Return the config and the environment, folded away."""
    knobs = [[key, compact(value)] for key, value in story.config.items()]
    where = [[key, compact(value)] for key, value in story.environment.items()]
    return Section(
        "Config and environment",
        tables=[Table(["knob", "value"], knobs), Table(["environment", ""], where)],
        folded=True,
    )


def side_by_side(stories: Sequence[Story]) -> list[Section]:
    """Return several runs beside each other: numbers, where their configs differ, and their layers."""
    head = ["", *(story.name for story in stories)]
    rows: list[list[Any]] = [["method", *(story.method for story in stories)]]
    rows.append(["test error", *(percent((story.result or {}).get("error")) for story in stories)])
    taps = list(dict.fromkeys(tap for story in stories for tap in (story.result or {}).get("companions") or {}))
    for tap in taps:
        errors = [((story.result or {}).get("companions") or {}).get(tap) for story in stories]
        rows.append([f"test error, companion {tap}", *map(percent, errors)])
    rows.append(["epochs", *(str(len(story.metrics)) for story in stories)])
    keys = list(dict.fromkeys(key for story in stories for key in story.config))
    other = [key for key in keys if len({compact(story.config.get(key)) for story in stories}) > 1]
    differ = [[key, *(compact(story.config.get(key)) for story in stories)] for key in other]
    section = Section("Side by side", tables=[Table(head, rows, wide=True)])
    if differ:
        section.tables.append(Table(["config", *head[1:]], differ, wide=True))
    section.show(knowledge.draw_layer_knowledge(stories), "Test error of every layer; hollow: linear probes.")
    section.show(knowledge.draw_agreement(stories), "The layer from which on images are right.")
    section.show(gradient_ratio(stories), GRADIENTS + " The paper reports 4.55 in the first convolution.")
    section.show(knowledge.draw_maps(stories), "The same images; only the top 30 % of activations are shown.")
    return [section]


def gradient_ratio(stories: Sequence[Story]) -> Any:
    """Draw the gradient variance of the nets with companions over those without, where there are both."""
    ours = [story for story in stories if story.method.startswith("DSN")]
    theirs = [story for story in stories if story.method.startswith("CNN")]
    return training.draw_gradient_ratio(ours, theirs) if ours and theirs else None


def percent(value: Any) -> str:
    """Say a percentage, or that there is none."""
    return f"{value:.2f} %" if math.isfinite(number(value)) else NONE


def plain(value: Any) -> str:
    """Say a number, or that there is none."""
    return f"{value:.3g}" if math.isfinite(number(value)) else NONE


def compact(value: Any) -> str:
    """Say a knob's value in one line."""
    return value if isinstance(value, str) else NONE if value is None else json.dumps(value)
