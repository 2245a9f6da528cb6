"""The records of a comparison in, the sections of the page about it out: who won, what layers learned, what next."""

from collections.abc import Mapping
from typing import Any

from deepsup.figures import knowledge, methods, training
from deepsup.figures.page import Section, Table
from deepsup.figures.read import Contest, Story
from deepsup.figures.run_page import GRADIENTS, NONE, compact, mistakes, percent, settings
from deepsup.figures.style import number


def contest_sections(contest: Contest, several: bool) -> list[Section]:
    """Return everything known of one comparison."""
    first = [runs[0] for runs in contest.runs.values() if runs]
    best = min(contest.table["methods"], key=lambda method: number(contest.table["methods"][method]["mean"]))
    parts = [verdict(contest), course(contest), layers(contest, first), pictures(first)]
    if contest.runs.get(best):
        winner = mistakes(contest.runs[best][0])
        winner.title = f"Mistakes of {best}, {contest.runs[best][0].name}"
        parts.append(winner)
    parts += [next_step(contest), knobs(contest, first)]
    for part in parts:
        if several:
            part.set_apart(contest.name)
    return parts


def verdict(contest: Contest) -> Section:
    """Return the four methods: errors, deviations, and whether the differences are certain."""
    table = contest.table
    rows = [
        [method, methods.told_error(each), f"{number(each.get('gain')):+.1f} %", f"{number(each.get('lr')):g}",
         ", ".join(f"{error:.2f}" for error in each["errors"])]
        for method, each in table["methods"].items()
    ]  # fmt: skip
    section = Section("Do companions help?", conclusion(table))
    section.tables.append(Table(["method", "test error, %", "gain over CNN-Softmax", "lr", "seeds"], rows))
    pairs = [
        [pair.replace(" - ", " minus "), f"{each['mean']:+.2f}", interval(each), certain(each)]
        for pair, each in table.get("differences", {}).items()
    ]
    section.tables.append(Table(["difference, points", "mean", "95 % interval", "verdict"], pairs))
    section.show(
        methods.methods_figure(table), "Filled: with companions (DSN). Hollow: without (CNN). Lower is better."
    )
    return section


def conclusion(table: Mapping[str, Any]) -> str:
    """Say in a sentence what the comparison has shown."""
    held = table["methods"]
    best = min(held, key=lambda method: number(held[method]["mean"]))
    sure = [
        f"{pair}: {certain(each)}" for pair, each in table.get("differences", {}).items() if "not" not in certain(each)
    ]
    seeds = len(table.get("seeds", []))
    said = "; ".join(sure) if sure else "no difference is certain yet"
    return f"{best} has the lowest mean test error, {held[best]['mean']:.2f} % over {seeds} seeds; {said}."


def course(contest: Contest) -> Section:
    """Return the figures of all trainings."""
    section = Section("Training of the four methods")
    section.show(
        methods.draw_epochs(contest), "Mean over seeds (the paper's Fig. 2a; --test-every 1 records test errors)."
    )
    section.show(methods.draw_train_and_test(contest), "At the end of training (the paper's Fig. 2c).")
    return section


def layers(contest: Contest, first: list[Story]) -> Section:
    """Return what each layer learned, by method."""
    section = Section("What each layer learned")
    taps = list(dict.fromkeys(tap for each in contest.table["methods"].values() for tap in each.get("companions", {})))
    rows = [
        [method, *(percent(each.get("companions", {}).get(tap)) for tap in taps), percent(each["mean"])]
        for method, each in contest.table["methods"].items()
    ]
    if taps:
        section.text = (
            "Test errors of the companions, means over seeds. A net without companions has linear probes below."
        )
        section.tables.append(Table(["method", *(f"companion {tap}" for tap in taps), "output"], rows))
    probed = [story for story in first if story.inside.get("probes")]
    supervised = [story for story in first if story.method.startswith("DSN")]
    section.show(knowledge.draw_layer_knowledge(probed), f"Probes fitted on frozen layers of {names(probed)}.")
    section.show(
        knowledge.draw_agreement(probed or supervised), "The layer from which on images are right (first seed)."
    )
    for loss in ("Softmax", "SVM"):
        ours, theirs = contest.runs.get(f"DSN-{loss}", []), contest.runs.get(f"CNN-{loss}", [])
        ratio = training.draw_gradient_ratio(ours, theirs) if ours and theirs else None
        if ratio is not None:
            ratio.name += f"-{loss.lower()}"
        section.show(ratio, f"{GRADIENTS} Mean over epochs and seeds. The paper reports 4.55 in the first convolution.")
    return section


def pictures(first: list[Story]) -> Section:
    """Return the feature maps of the methods that were inspected, beside each other."""
    held = [story for story in first if "merged" in story.arrays]
    section = Section("What the first layer sees")
    section.show(knowledge.draw_maps(held), "One image a class; only the top 30 % of activations (the paper's Fig. 3).")
    for story in held:
        drawing = knowledge.draw_filters(story)
        if drawing is not None:
            drawing.name += f"-{story.method.lower()}"
        section.show(drawing, f"First filters of {story.name}.")
    return section


def next_step(contest: Contest) -> Section:
    """Say what to try next, by a few rules."""
    table, seeds = contest.table, len(contest.table.get("seeds", []))
    pair = table.get("differences", {}).get("DSN-SVM - CNN-SVM", {"mean": 0, "interval": None})
    again = "deepsup compare --out runs/next"
    runs = " ".join(
        str(contest.folder / contest.runs[method][0].name)
        for method in ("DSN-SVM", "CNN-SVM")
        if contest.runs.get(method)
    )
    if "not" in certain(pair):
        words = f"{seeds} seeds do not tell CNN-SVM and DSN-SVM apart: train more of them."
        commands = [f"{again} --seeds {max(10, 2 * seeds)}"]
    elif pair["mean"] > 0:
        words = "Companions make it worse here: give them a smaller weight, or let it decay."
        commands = [f"{again} --alpha 0.1", f"{again} --schedule paper"]
    else:
        words = "Companions help here: see whether they still do with more images."
        commands = [f"{again} --train-size {2 * methods.size_of(contest)}"]
    ends = {method: number((held[0].metrics or [{}])[-1].get("error")) for method, held in contest.runs.items() if held}
    slow = [method for method, error in ends.items() if error > 2]
    if slow:
        words += f"\nStill above 2 % in training: {', '.join(slow)}. Train longer."
        commands.append(f"{again} --epochs {2 * epochs_of(table)}")
    return Section("The next thing to try", words, commands=[*commands, f"deepsup inspect {runs}"])


def epochs_of(table: Mapping[str, Any]) -> int:
    """Return how many epochs each run had."""
    return int(table.get("config", {}).get("epochs", 10))


def knobs(contest: Contest, first: list[Story]) -> Section:
    """Return the config that all methods share, and the environment of the first run."""
    section = settings(first[0]) if first else Section("Config and environment", folded=True)
    shared = [[key, compact(value)] for key, value in contest.table.get("config", {}).items()]
    section.tables = [Table(["knob", "value"], shared), *section.tables[1:]]
    return section


def names(stories: list[Story]) -> str:
    """Say the names of runs."""
    return ", ".join(story.name for story in stories)


def interval(difference: Mapping[str, Any]) -> str:
    """Say a 95 % interval."""
    held = difference["interval"]
    return NONE if held is None else f"{held[0]:+.2f} to {held[1]:+.2f}"


def certain(difference: Mapping[str, Any]) -> str:
    """Say whether a difference is shown: below 0, the first is better."""
    held = difference["interval"]  # none of one seed
    return "not certain" if held is None or held[0] <= 0 <= held[1] else "better" if held[1] < 0 else "worse"
