"""Schedules of alpha: progress of training, from 0 to 1 -> the factor on every alpha_m.

    constant   1
    paper      0.1 * (1 - progress)   the paper's decay in closed form: t/N is the progress
    linear     1 - progress           the same without the 0.1
    cut:F      1 until the fraction F of training, then 0; "cut" is cut:0.25, the authors' 50k of 200k iterations

Progress may be a number or a tensor; a tensor avoids recompilations of a compiled step.
"""

import math
from collections.abc import Callable
from numbers import Real

import torch
from torch import Tensor

from deepsup.errors import ObjectiveError, nearest

Number = float | Tensor
Schedule = Callable[[Number], Number]


def constant(progress: Number) -> Number:  # noqa: ARG001 - a schedule is a function of progress
    """Return 1."""
    return 1.0


def paper(progress: Number) -> Number:
    """Return 0.1 * (1 - t/N)."""
    return 0.1 * (1 - progress)


def linear(progress: Number) -> Number:
    """Return 1 - t/N."""
    return 1 - progress


def cut(at: float = 0.25) -> Schedule:
    """Return a schedule that is 1 before the fraction ``at`` of training and 0 after it."""
    if not 0 <= at <= 1:
        raise ObjectiveError(f"schedule 'cut' at {at}; expected a fraction of training within 0 and 1, e.g. 'cut:0.25'")

    def cut_at(progress: Number) -> Number:
        return (progress < at) * 1.0

    cut_at.__name__ = f"cut:{at:g}"
    return cut_at


SCHEDULES: dict[str, Schedule] = {"constant": constant, "paper": paper, "linear": linear, "cut": cut()}


def find_schedule(schedule: str | Schedule) -> Schedule:
    """Return the schedule of that name, ``cut:F`` for any fraction F, or the callable itself."""
    if callable(schedule):
        return schedule
    name, _, fraction = str(schedule).partition(":")
    if name == "cut" and fraction:
        try:
            return cut(float(fraction))
        except ValueError as error:
            raise ObjectiveError(f"schedule={schedule!r}; expected a fraction, e.g. 'cut:0.25'") from error
    if schedule not in SCHEDULES:
        raise ObjectiveError(f"schedule={schedule!r} is not known; {nearest(str(schedule), SCHEDULES)}")
    return SCHEDULES[schedule]


def factor_at(schedule: Schedule, progress: Number | None) -> Number:
    """Return the factor of the schedule. Both are checked, but values only outside a compiled step."""
    if progress is None:
        if schedule is not constant:
            raise ObjectiveError(
                f"schedule {name_of(schedule)} needs the progress of training and got none; expected "
                f"Objective(net, steps=...), progress=step / steps in the call, or schedule='constant'"
            )
        return 1.0
    if not is_number(progress) or not holds(progress, lambda p: 0 <= p <= 1):
        raise ObjectiveError(
            f"progress={progress!r}; expected a fraction of training within 0 and 1, e.g. step / steps"
        )
    factor = schedule(progress)
    if not is_number(factor) or not holds(factor, lambda f: math.isfinite(f) and f >= 0):
        raise ObjectiveError(
            f"the schedule gives {factor!r} at progress {float(progress)}; expected a number of at least 0; fix the "
            f"schedule"
        )
    return factor


def name_of(schedule: Schedule) -> str:
    """Return the name of a schedule for messages.

    >>> name_of(find_schedule("cut:0.5"))
    "'cut:0.5'"
    """
    return repr(getattr(schedule, "__name__", schedule))


def is_number(given: object) -> bool:
    """Whether something is one number: of Python, of numpy, or a tensor without dimensions."""
    kinds = (Real, torch.SymFloat)  # as a tuple: torch 2.6 cannot compile a union of types
    return given.ndim == 0 if isinstance(given, Tensor) else isinstance(given, kinds)


def holds(number: Number, law: Callable[[float], bool]) -> bool:
    """Whether a number satisfies a condition; assumed inside a compiled step, where a check would split the graph."""
    return torch.compiler.is_compiling() or law(float(number))
