"""The candidates of a method -> where the chosen one stands among them, and the next ones beyond an edge of the grid.

A candidate's learning rates are ``lr`` and those of its phases. Candidates that differ in these alone are a line.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from deepsup.trainer.config import Config

Side = Literal["lowest", "highest"]
SIDES: tuple[Side, Side] = ("lowest", "highest")
Candidates = Mapping[str, Config]
"""A short name -> the config."""


def rates_of(config: Config) -> tuple[float, ...]:
    """Return the learning rate of a config, and those of its phases."""
    return config.optimizer.lr, *(phase.lr for phase in config.run.phases)


def with_rates(config: Config, rates: tuple[float, ...]) -> Config:
    """Return a config with other learning rates."""
    first, *others = rates
    phases = tuple(replace(phase, lr=lr) for phase, lr in zip(config.run.phases, others, strict=True))
    return config.replace(lr=first, phases=phases)


def line_of(candidates: Candidates, name: str) -> list[str]:
    """Return the candidates that differ from one in their learning rates alone, and that one; the lowest rate first."""

    def without(config: Config) -> Config:
        return with_rates(config, (1.0,) * len(rates_of(config)))

    own = without(candidates[name])
    return sorted(
        (each for each, config in candidates.items() if without(config) == own),
        key=lambda each: rates_of(candidates[each]),
    )


def sides_of(candidates: Candidates, name: str) -> tuple[Side, ...]:
    """Return at which ends of its line a candidate stands. A line of one rate has none: its rate is given."""
    line = line_of(candidates, name)
    if len(line) < 2:
        return ()
    return tuple(side for side, end in zip(SIDES, (line[0], line[-1]), strict=True) if end == name)


def beyond(candidates: Candidates, name: str, side: Side) -> dict[str, Config]:
    """Return the next candidates beyond an edge of the grid: one for each line that ends at the rate of ``name``.

    Each goes on by the factor between the last two rates of its line.

    >>> grid = {f"lr{lr:g}": Config(lr=lr) for lr in (0.01, 0.03, 0.1)}
    >>> [*beyond(grid, "lr0.01", "lowest")], [*beyond(grid, "lr0.1", "highest")]
    (['lr0.00333'], ['lr0.333'])
    """
    more = {}
    for each, config in candidates.items():
        if rates_of(config) != rates_of(candidates[name]) or side not in sides_of(candidates, each):
            continue
        line = line_of(candidates, each)
        last = rates_of(config)
        before = rates_of(candidates[line[1 if side == "lowest" else -2]])
        rates = tuple(old if old in (other, 0) or not other else float(f"{old * old / other:.3g}")
                      for old, other in zip(last, before, strict=True))  # fmt: skip
        if rates == last:  # a rate of 0, or a factor that rounding swallows
            continue
        old, new = next(pair for pair in zip(last, rates, strict=True) if pair[0] != pair[1])
        more[renamed(each, old, new)] = with_rates(config, rates)
    return more


def renamed(name: str, old: float, new: float) -> str:
    """Return the name of a candidate with its learning rate replaced, or with the new one appended.

    >>> renamed("lr0.01-alpha1", 0.01, 0.0033), renamed("late", 0.01, 0.0033)
    ('lr0.0033-alpha1', 'late-lr0.0033')
    """
    rate = rf"lr{re.escape(f'{old:g}')}(?![\d.e])"
    return re.sub(rate, f"lr{new:g}", name, count=1) if re.search(rate, name) else f"{name}-lr{new:g}"


def regrown(candidates: Candidates, names: Mapping[str, Any], most: int) -> dict[str, Config]:
    """Return candidates with those of ``names`` that at most so many steps beyond the edges of the grid give."""
    grown = dict(candidates)
    for _ in range(most):
        if names.keys() <= grown.keys():
            break
        for side in SIDES:
            for name in [each for each in grown if side in sides_of(grown, each)]:
                grown |= beyond(grown, name, side)
    return {name: config for name, config in grown.items() if name in candidates or name in names}


def on_edges(candidates: Candidates, name: str) -> list[str]:
    """Say which settings of a candidate are the lowest or the highest of those tried, others being equal.

    >>> on_edges({f"lr{lr:g}": Config(lr=lr) for lr in (0.01, 0.03, 0.1)}, "lr0.1")
    ['lr 0.1 is the highest of 3']
    """
    chosen = candidates[name].to_dict()
    edges = []
    if sides := sides_of(candidates, name):
        line = line_of(candidates, name)
        neighbor = rates_of(candidates[line[1 if sides[0] == "lowest" else -2]])
        rate = next(new for new, old in zip(rates_of(candidates[name]), neighbor, strict=True) if new != old)
        edges.append(f"lr {rate:g} is the {sides[0]} of {len(line)}")
    others = [config.to_dict() for config in candidates.values()]
    for setting, value in chosen.items():
        tried = sorted({number for each in others if alike(each, chosen, setting)
                        and (number := number_of(each[setting])) is not None})  # fmt: skip
        if setting not in ("lr", "phases") and len(tried) > 1 and number_of(value) in (tried[0], tried[-1]):
            side = SIDES[number_of(value) == tried[-1]]
            edges.append(f"{setting} {number_of(value):g} is the {side} of {len(tried)}")
    return edges


def alike(one: Mapping[str, Any], other: Mapping[str, Any], but: str) -> bool:
    """Whether two configs are the same but for one setting."""
    return all(one[name] == other[name] for name in one if name != but)


def number_of(value: Any) -> float | None:
    """Return a number, also one in a list of its own; None for all else."""
    value = value[0] if isinstance(value, list) and len(value) == 1 else value
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
