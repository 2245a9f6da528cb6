"""A pickle of a stranger -> plain values, through an unpickler that imports nothing and takes bounded time and memory.

One byte of a pickle can make an object of a hundred, or ask for gigabytes.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any, ClassVar

MOST_OPERATIONS = 2**21
"""Of a pickle; a batch of CIFAR has some 100,000."""

_PYTHONS: Any = vars(pickle)["_Unpickler"]
"""The unpickler that is written in Python: its steps can be checked."""


class PlainUnpickler(_PYTHONS):  # type: ignore[misc] # it has no types
    """Reads lists, dictionaries, bytes, strings and numbers; a subclass says in ``find_class`` what else there may be.

    A dictionary's keys must be of ``KEYS``: others may take for ever to hash, such as a pair of twice the same pair of
    twice the same pair, ...
    """

    KEYS: ClassVar[tuple[type, ...]] = (str, bytes)
    dispatch: ClassVar[dict[int, Any]] = dict(_PYTHONS.dispatch)

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="bytes")
        self._room = len(data)

    def find_class(self, module: str, name: str) -> Any:
        """Refuse what is not plain."""
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")

    def encode(self, text: str, encoding: str) -> bytes:
        """Answer ``_codecs.encode(text, "latin1")``, the call by which protocol 2 writes bytes."""
        self._room -= len(text)
        if encoding != "latin1" or self._room < 0:
            raise pickle.UnpicklingError(f"encoding {encoding!r} of more text than there is")
        return text.encode("latin1")

    def load_setitem(self) -> None:
        """Set one item of a dictionary."""
        self._check_keys(self.stack[-2:-1])
        super().load_setitem()

    def load_setitems(self) -> None:
        """Set items of a dictionary."""
        self._check_keys(self.stack[::2])
        super().load_setitems()

    def load_dict(self) -> None:
        """Make a dictionary of items."""
        self._check_keys(self.stack[::2])
        super().load_dict()

    def _check_keys(self, keys: list[Any]) -> None:
        if not all(isinstance(key, self.KEYS) for key in keys):
            raise pickle.UnpicklingError("a dictionary has keys that are no text")

    dispatch |= {pickle.SETITEM[0]: load_setitem, pickle.SETITEMS[0]: load_setitems, pickle.DICT[0]: load_dict}


def check_operations(data: bytes, most: int = MOST_OPERATIONS) -> int:
    """Refuse a pickle that claims more bytes, or more places in its memo, than it has; return where it ends.

    Each would be allocated.
    """
    end = 0
    for number, (operation, argument, place) in enumerate(pickletools.genops(data)):  # raises where a length is short
        if number == most:
            raise pickle.UnpicklingError(f"it has more than {number:,} operations")
        if operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(argument or 0) > len(data):
            raise pickle.UnpicklingError(f"it asks for a memo of {argument:,} places")
        if operation.name in ("EMPTY_SET", "ADDITEMS", "FROZENSET"):
            raise pickle.UnpicklingError("it has a set")
        end = (place or 0) + 1  # of STOP, the last one
    return end
