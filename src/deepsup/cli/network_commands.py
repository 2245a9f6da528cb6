"""``deepsup networks``: list the registered networks."""

from __future__ import annotations

import dataclasses

from deepsup.cli.app import Flag, show, table, verb


@verb("networks")
def networks(json: Flag = False) -> None:
    """List the networks of the paper's tables: parameters, multiply-adds, conventional taps.

    Args:
        json: print one JSON object
    """
    from deepsup.trainer.networks import describe, list_networks

    described = [describe(name) for name in list_networks()]
    rows = [
        [
            each.name,
            f"{each.in_channels}x{each.image_size}x{each.image_size}",
            each.num_classes,
            f"{each.parameters:,}",
            f"{each.multiply_adds / 1e6:,.1f} M",
            ", ".join(each.taps),
            each.source,
        ]
        for each in described
    ]
    text = table(["name", "input", "classes", "parameters", "multiply-adds", "taps", "source"], rows)
    notes = [f"{each.name}: {each.note}" for each in described if each.note]
    text = "\n".join([text, "", *notes])
    show({"networks": [dataclasses.asdict(each) for each in described]}, text, json)
