"""A record -> on which images its settings were chosen, and how often the test set had been read before."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deepsup.paper.plan import Row
from deepsup.trainer.studies import search_jobs

NOT_RECORDED = "not recorded"
PILOTS = "companions, budgets and the grid of rates were set by pilots "
ON_TEST = PILOTS + "on seed 0 to 4, some of them judged by test digits"
ON_HELD_OUT = PILOTS + "on held-out images"
HISTORY: dict[str, tuple[int | None, str]] = {
    "budget": (0, ON_TEST),
    **dict.fromkeys(("fig2b-nin", "pretraining-nin", "l1-l2-nin"), (1, ON_TEST)),
    "robustness-nin": (2, PILOTS + "on seed 0 to 4, some of them judged by test digits; nothing is chosen"),
    **dict.fromkeys(("mnist", "fig2a-nin", "fig2c-nin"), (1, ON_TEST)),
    **dict.fromkeys(("cifar10-augmented", "budget-cifar10", "cifar100", "svhn"), (0, ON_HELD_OUT)),
    "cifar10": (1, ON_HELD_OUT),
    **dict.fromkeys(("gradient-variance", "fig3"), (2, ON_HELD_OUT)),
    "dense": (1, "settings with which the net learns at all were found with probability targets, on test scenes"),
    "when": (0, "widths and steps were set by the time that a run takes; alpha of flat companions: fig2b-nin"),
    "when-companions": (0, "learning rate and alpha: the best of flat companions on held-out digits, fig2b-nin"),
    "when-tuning": (0, "net, steps and candidates were set by a few runs on held-out training images"),
    "when-controls": (1, "widths and steps were set by the time that a run takes; the controls' values are usual ones; "
                         "the first version had weak companions, which gained nothing"),
    "fast-mnist": (1, "chosen on 10,000 held-out digits; the last two changes, 12 epochs and no first companion, were "
                      "not judged on held-out digits"),
    "fast-cifar10": (0, "chosen on 5,000 held-out images"),
    "fast-cifar10-plain": (None, "those of fast-cifar10, chosen on 5,000 held-out images; dropout 0.2 was not tuned"),
    "fast-cifar100": (1, "those of fast-cifar10-plain; epochs, dropout and width were changed after the first version "
                         "and not judged on held-out images"),
}  # fmt: skip
"""Target -> how many earlier versions of it had their test errors read (None: not recorded), and how settings that the
target does not choose by itself were chosen. From dev/LOG.md; renew an entry if a target changes after its test errors
were seen."""


def chosen_on(row: Row) -> dict[str, Any]:
    """Return on what the settings of a row are chosen: held-out images, of which data set, how many candidates."""
    first = next(search_jobs(row.method, Path()), None)
    config = next(iter(row.method.choices.values()))
    return {
        "images": 0 if first is None else first.config.data.validation,
        "of": Path(config.data.source).stem,  # smoke trains on a file
        "candidates": len(row.method.choices),
        "seeds": 0 if first is None else row.method.searches,
        "train_size": None if first is None else first.config.data.train_size,
        "epochs": 0 if first is None else first.config.total_epochs,
    }


def history(target: str) -> dict[str, Any]:
    """Return the fields of a record that tell what was known before it was made."""
    read, settings = HISTORY.get(target, (None, ""))
    return {"test_read_before": NOT_RECORDED if read is None else read, "settings": settings}


def chosen_words(record: Mapping[str, Any]) -> str:
    """Say on what the settings of a record were chosen."""
    rows = [row["chosen_on"] for row in record["rows"] if "chosen_on" in row]
    choosing = [each for each in rows if each["candidates"] > 1]
    words = [record["settings"]] if record.get("settings") else []
    if choosing:
        images = sorted({each["images"] for each in choosing})
        counts = sorted({each["candidates"] for each in choosing})
        source = f"{span_words(images)} held-out training images of {choosing[0]['of']}"
        further = sum("further" in each for each in choosing)
        more = f", after looking further in {further} row{'s' * (further > 1)}" if further else ""
        words.insert(0, f"{source}, {span_words(counts)} candidates per row{more}")
    elif rows and not words:
        words.append("nothing was chosen")
    return "; ".join(words)


def span_words(numbers: list[int]) -> str:
    """Say a number, or the smallest and the largest.

    >>> span_words([4]), span_words([2, 4, 5000])
    ('4', '2 to 5,000')
    """
    return f"{numbers[0]:,}" if len(numbers) == 1 else f"{numbers[0]:,} to {numbers[-1]:,}"
