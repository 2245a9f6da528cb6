"""Bytes or decoded values and a random generator in, damaged or hostile ones out."""

import copy
from random import Random
from typing import Any

EXTREME_BYTES = [b"\xff" * 4, b"\x00" * 8, b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x80", b"9" * 30, b"[" * 2000]
EXTREMES: list[Any] = [
    None, True, 0, -1, 2**31, 2**63 - 1, 10**9, -(2**40), 0.5, 1e308, float("nan"), float("inf"), "", "x", "9" * 5000,
    "x" * 1000, "\x1b[2J", "../..", "torch.hub:load", [], [[]], [0] * 100, ["x"], {}, {"x": {}}, {"step": "zca"},
]  # fmt: skip


def damaged(data: bytes, random: Random) -> bytes:
    """Change some bytes: flips, cuts, doublings, insertions, extremes."""
    changed = bytearray(data)
    for _ in range(random.choice([1, 1, 1, 2, 4, 16])):
        at = random.randrange(max(1, len(changed)))
        length = random.choice([1, 2, 4, 8, 64, 1000])
        kind = random.randrange(7)
        if kind <= 1 and changed:
            changed[min(at, len(changed) - 1)] ^= 1 << random.randrange(8)
        elif kind == 2:
            del changed[at : len(changed) if random.random() < 0.3 else at + length]
        elif kind == 3:
            changed[at:at] = changed[at : at + length]
        elif kind == 4:
            changed[at:at] = random.choice(EXTREME_BYTES)
        elif kind == 5:
            extreme = random.choice(EXTREME_BYTES)
            changed[at : at + len(extreme)] = extreme
        else:
            changed[at : at + length] = random.randbytes(length)
    return bytes(changed)


def distorted(value: Any, random: Random, leaf: Any = None) -> Any:
    """Give some place of a decoded structure another type, an extreme value, a twin, or nothing.

    leaf: changes values that are neither lists nor dictionaries, such as arrays; by default they are replaced.
    """
    changed = copy.deepcopy(value)
    for _ in range(random.choice([1, 1, 2, 3])):
        place, key = None, None
        here = changed
        while isinstance(here, dict | list) and here and (place is None or random.random() < 0.85):
            place, key = here, random.choice(list(here)) if isinstance(here, dict) else random.randrange(len(here))
            here = here[key]
        if place is None:
            return random.choice(EXTREMES)
        kind = random.randrange(5)
        if kind == 0:
            del place[key]
        elif kind == 1 and isinstance(place, list):
            place.append(copy.deepcopy(here))
        elif kind == 2 and isinstance(here, str | int):
            place[key] = here * random.choice([-1, 0, 2, 1000])
        elif leaf is not None and not isinstance(here, dict | list | str | int | float | None):
            place[key] = leaf(here, random)
        else:
            place[key] = copy.deepcopy(random.choice(EXTREMES))
    return changed
