"""docs/networks.md is true: its table is what ``describe`` says, and its code runs."""

from pathlib import Path

from deepsup.trainer.networks import describe, list_networks
from deepsup.trainer.networks._specs import SPECS

PAGE = (Path(__file__).parents[3] / "docs" / "networks.md").read_text()


def test_the_table_is_what_describe_says() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| `")
    ]
    table = {row[0].strip("`"): row[1:] for row in rows if row[0].strip("`") in SPECS and len(row) == 7}
    assert sorted(table) == list_networks()
    for name, cells in table.items():
        d = describe(name)
        assert cells == [
            f"{d.in_channels}x{d.image_size}x{d.image_size} -> {d.num_classes}",
            str(d.minimum_image_size),
            f"{d.parameters:,}",
            f"{d.multiply_adds:,}",
            ", ".join(d.taps),
            d.source,
        ]


def test_every_option_is_explained() -> None:
    for name in list_networks():
        for option in describe(name).options:
            assert f"| `{option}=" in PAGE, f"{option} of {name}"
