"""Weights of the companions by name: how alpha is spread over the layers, from the first to the last.

equal     the default weight for every companion
linear    rising with the depth, with the default weight as their mean (LayerSkip's rising weights)
last-k    the default weight for the last k companions, 0 for the others
random    one companion per step, drawn from the progress of training, at as many times its weight as there are
          companions; the others are multiplied by zero. All processes draw the same, and so does a resumed training

Equal weights are not the default ones, which are smaller at layers that return sequences.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from deepsup.errors import ObjectiveError, nearest
from deepsup.objective._schedules import Number

RULES = ("equal", "linear", "last-1", "last-2", "last-3", "random")


def check_rule(rule: str) -> str:
    """Return the name of a rule; raise an error for one that does not exist."""
    count = rule.removeprefix("last-")
    if rule not in RULES and not (count != rule and count.isdecimal() and int(count)):
        raise ObjectiveError(f"alpha={rule!r} is no number and no rule; {nearest(rule, RULES)}")
    return rule


def spread(rule: str, default: Mapping[str, float], order: Sequence[str]) -> dict[str, float]:
    """Return the weight of each companion.

    order: the companions from the first layer to the last.

    >>> spread("linear", {"a": 0.5, "b": 0.5, "c": 0.5}, ["a", "b", "c"])
    {'a': 0.25, 'b': 0.5, 'c': 0.75}
    """
    if rule == "linear":
        factors = {name: 2 * place / (len(order) + 1) for place, name in enumerate(order, 1)}
    elif rule.startswith("last-"):
        kept = order[-int(rule.removeprefix("last-")) :]
        factors = {name: float(name in kept) for name in order}
    elif rule == "random":
        factors = dict.fromkeys(order, float(len(order)))
    else:
        return dict.fromkeys(default, max(default.values(), default=0.0))
    return {name: each * factors[name] for name, each in default.items()}


def draw(progress: Number | None, names: Sequence[str]) -> dict[str, Tensor]:
    """Return which one companion counts in this step: 1 for it, 0 for the others."""
    if progress is None:
        raise ObjectiveError(
            "alpha='random' draws a companion per step from the progress of training and got none; expected "
            "Objective(net, steps=...), or progress=step / steps in the call"
        )
    number = (torch.as_tensor(progress, dtype=torch.float64) * 2**31).long()
    for _ in range(2):  # mixes the bits, so that neighbouring steps draw independently
        number = ((number ^ (number >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    number = number ^ (number >> 16)
    return {name: (number % len(names) == place).double() for place, name in enumerate(names)}
