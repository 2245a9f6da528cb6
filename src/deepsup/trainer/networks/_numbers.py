"""Check the numbers and options that a user gives; raise a NetworkError that says what was expected."""

import math
import operator
from numbers import Real

from deepsup.errors import NetworkError, nearest


def count(what: str, given: object, least: int = 1) -> int:
    """Return ``given`` as a plain int, if it is a whole number of at least ``least``."""
    try:
        whole = operator.index(given)  # type: ignore[arg-type]  # whatever has no __index__ raises TypeError
    except TypeError:
        whole = None
    if whole is None or isinstance(given, bool) or whole < least:
        raise NetworkError(f"{what} is {given!r}; expected a whole number of at least {least}")
    return whole


def number(what: str, given: object, least: float = -math.inf, most: float = math.inf) -> float:
    """Return ``given`` as a float, if it is a finite number between ``least`` and ``most``."""
    # Real includes the numbers of numpy
    value = float(given) if isinstance(given, Real) and not isinstance(given, bool) else math.nan
    if math.isfinite(value) and least <= value <= most:
        return value
    bounds = f"between {least:g} and {most:g}" if math.isfinite(most) else f"of at least {least:g}"
    raise NetworkError(f"{what} is {given!r}; expected a finite number {bounds}")


def probability(what: str, given: object) -> float:
    """Return ``given`` as a float, if it lies in [0, 1]."""
    return number(what, given, 0, 1)


def choice(what: str, given: object, known: tuple[str, ...]) -> str:
    """Return ``given``, if it is one of the ``known`` words."""
    if given not in known:
        raise NetworkError(f"{what} is {given!r}; {nearest(str(given), known)}")
    return str(given)


def flag(what: str, given: object) -> bool:
    """Return ``given``, if it is True or False."""
    if not isinstance(given, bool):
        raise NetworkError(f"{what} is {given!r}; expected True or False")
    return given
