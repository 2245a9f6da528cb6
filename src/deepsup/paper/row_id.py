"""What a row of a record is: fields that code looks it up by. Labels are for people only."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from deepsup.errors import RunError

WITH, WITHOUT = "with companions", "without companions"
"""The methods of studies that compare a net with itself."""
COMPANIONS = {
    "flat": "flat companions",  # recipes.FLAT_COMPANIONS
    "printed": "companions as printed",  # recipes.PRINTED
    "weak": "weak companions",  # recipes.WEAK
}
"""Kind of companions -> how a row says it."""


@dataclass(frozen=True)
class RowId:
    """The identity of a row, or of a reading, within its record; fields that do not tell rows apart stay empty."""

    method: str
    """One of the four methods, a rival's name, or with and without companions."""
    network: str = ""
    depth: int | None = None
    norm: str = ""
    optimizer: str = ""
    companions: str = ""
    """One of ``COMPANIONS``; empty: the library's defaults, or the only ones of the target."""
    loss: str = ""
    size: int | None = None
    """Number of training images."""
    lr: float | None = None
    epochs: int | None = None
    width: float | None = None
    """Of the net, relative to the published one."""
    alpha: float | None = None
    reading: str = ""
    """What was read off the runs; empty: their test error."""
    layer: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are set, as a record holds them."""
        return {name: value for name, value in asdict(self).items() if value not in ("", None)}

    @property
    def line(self) -> str:
        """The method, and its companions if they are not the defaults: what the rows of one line have in common."""
        return f"{self.method}, {COMPANIONS[self.companions]}" if self.companions in COMPANIONS else self.method

    @staticmethod
    def of(entry: Mapping[str, Any], key: str = "id") -> "RowId":
        """Return the id that an entry of a record holds."""
        try:
            return RowId(**entry[key])
        except (KeyError, TypeError) as error:
            raise RunError(
                f"a record has no valid {key!r} in {str(dict(entry))[:80]}; expected ids of its rows; an older version "
                f"made it: run its command again"
            ) from error
