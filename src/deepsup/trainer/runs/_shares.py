"""The epochs of a run -> a sentence on how much of the gradient came from companions. Needs no torch."""

from collections.abc import Mapping, Sequence
from typing import Any


def shares_line(metrics: Sequence[Mapping[str, Any]]) -> str:
    """Return what share of the gradient came from companions, at first and at last; empty if nothing was recorded.

    >>> shares_line([{"companion_shares": {"conv1": 0.38, "conv2": 0.2}}, {"companion_shares": {"conv1": 0.004}}])
    'companions gave 38 % of the gradient at conv1 and 20 % at conv2 in the first epoch, 0 % and 0 % in the last'
    """
    recorded = [record["companion_shares"] for record in metrics if record.get("companion_shares")]
    if not recorded:
        return ""
    first, last = recorded[0], recorded[-1]
    begun = [f"{100 * share:.0f} % {'of the gradient ' * (not place)}at {tap}"
             for place, (tap, share) in enumerate(first.items())]  # fmt: skip
    ended = [f"{100 * last.get(tap, 0):.0f} %" for tap in first]
    return f"companions gave {listed(begun)} in the first epoch, {listed(ended)} in the last"


def listed(words: Sequence[str]) -> str:
    """Return words as a list in a sentence.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
