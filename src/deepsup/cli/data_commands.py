"""``deepsup data``: list, fetch and verify data sets."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from tyro.conf import Positional, arg

from deepsup.cli.app import Flag, show, table, verb


@verb("data list")
def data_list(json: Flag = False) -> None:
    """List the data sets that are known by name, and whether they have been fetched.

    Args:
        json: print one JSON object
    """
    from deepsup.trainer.data import COMPOSED, HALVES, KNOWN, data_folder, is_present

    sets: list[dict[str, Any]] = [
        {
            "name": known.name,
            "about": known.about,
            "classes": len(known.classes),
            "shape": list(known.shape),
            "parts": known.counts,
            "present": is_present(known),
        }
        for known in KNOWN.values()
    ]
    sets += [
        {"name": each.name, "about": each.about, "classes": len(each.classes), "shape": [1, each.canvas, each.canvas],
         "parts": each.counts, "present": True}
        for each in COMPOSED.values()
    ]  # fmt: skip
    sets += [
        {"name": each.name, "about": each.about, "classes": len(each.classes), "shape": list(each.shape),
         "parts": each.counts, "present": is_present(KNOWN[each.of])}
        for each in HALVES.values()
    ]  # fmt: skip
    rows = [
        [each["name"], "yes" if each["present"] else "no", _counts(each["parts"]), each["classes"], each["about"]]
        for each in sets
    ]
    text = table(["name", "there", "images", "classes", "about"], rows)
    show({"folder": str(data_folder()), "sets": sets}, f"{text}\n\ndata folder: {data_folder()}", json)


_Name = Annotated[str, Positional, arg(metavar="NAME")]


@verb("data get")
def data_get(name: _Name, extra: Flag = False, json: Flag = False) -> None:
    """Fetch a data set if it is missing, and verify it.

    Args:
        name: data set: mnist, fashion-mnist, cifar10, cifar100, svhn or mnist-mini
        extra: fetch the 531,131 extra images of SVHN too
        json: print one JSON object
    """
    from deepsup.trainer.data import get

    _show_report(get(name, extra), json)


@verb("data check")
def data_check(
    name: Annotated[str, Positional, arg(metavar="NAME|PATH")],
    image_size: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: as they are)")] = None,
    json: Flag = False,
) -> None:
    """Verify a data set that was fetched, or show how a folder of images or an .npz file is read.

    Args:
        name: data set: a known name, a folder with one sub-folder per class, or an .npz file
        image_size: side in pixels to which the images of a folder are resized
        json: print one JSON object
    """
    from deepsup.trainer.data import check

    _show_report(check(name, image_size), json)


def _show_report(report: Any, json: bool) -> None:
    channels, height, width = report.shape
    rows = [
        ["name", report.name],
        ["from", report.source],
        ["images", _counts(report.parts) + f", {height}x{width}, {channels} channel{'s' if channels > 1 else ''}"],
        ["classes", len(report.classes)],
        *([f"{part} per class", _range(counts)] for part, counts in report.per_class.items()),
        ["channel means", " ".join(f"{mean:.5f}" for mean in report.means)],
    ]
    if report.exact is not None:
        verdict = "every file is the published one" if report.exact else "read, and its means are the published ones"
        rows.append(["verdict", verdict])
    show(dataclasses.asdict(report), table(["", ""], rows).lstrip("\n"), json)


def _counts(parts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {part}" for part, count in parts.items())


def _range(counts: list[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
