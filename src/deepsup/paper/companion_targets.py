"""Which companions help? -> NIN on 500 digits with every combination of three choices, weak or flat.

The combinations are a factorial design: each choice is judged over all combinations of the others.
"""

from collections.abc import Mapping
from itertools import product
from statistics import mean
from typing import Any

from deepsup.paper.fast_targets import WITHOUT
from deepsup.paper.paper_targets import HALF, digits_differ
from deepsup.paper.plan import Plan, Row
from deepsup.paper.readings import Rows, reading
from deepsup.paper.row_id import RowId
from deepsup.trainer.config import Config
from deepsup.trainer.recipes import FLAT, WEAK
from deepsup.trainer.studies import Method

SIZE, SEEDS = 500, 5
FACTORS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "heads": {
        "weak heads": {},
        "flat heads": {"head_lr": 0.01, **{key: value for key, value in FLAT.items() if key != "average"}},
    },
    "weights": {"mean": {"average": True}, "sum": {"average": False}},
    "schedule": {"linear": {"schedule": "linear"}, "constant": {"schedule": "constant"}},
}
"""What a companion is, whether the losses are averaged or added, and whether alpha decays: those of the first
defaults, then the paper's (its constant alpha; the decay that it mentions is an option)."""
BASE = Config(
    data="mnist", network="nin-mnist", network_options=HALF, normalize="none", train_size=SIZE, epochs=60,
    batch_size=25, tensorboard=False, gradient_every=0, lr=0.03, **{**WEAK, "alpha": (1.0,)},
)  # fmt: skip
"""Learning rate and alpha: flat companions had the lowest error with these on held-out digits (Fig. 2b, NIN)."""


def companions(_preset: str) -> Plan:
    """Return the net without companions and with those of each combination; both presets are the same."""
    rows = tuple(
        Row(id_of(name), Method(f"{name}, half width", {"fixed": config}, SEEDS), differs=digits_differ(config))
        for name, config in combinations().items()
    )
    pairs = tuple((row.id, id_of(WITHOUT)) for row in rows if row.id.method != WITHOUT)
    return Plan((rows,), "when-companions", pairs)


def combinations() -> dict[str, Config]:
    """Return the config without companions, and that of each combination, by the names of their rows."""
    found = {WITHOUT: BASE.replace(taps=("none",))}
    for words in product(*FACTORS.values()):
        settings = [each[word] for each, word in zip(FACTORS.values(), words, strict=True)]
        found[", ".join(words)] = BASE.replace(**{key: value for each in settings for key, value in each.items()})
    return found


def effects(rows: Rows) -> dict[str, Any]:
    """Read what the paper's side of each choice does: its error minus the other's, seed by seed, mean over the rest.

    A seed that diverged with one of the combinations is left out.
    """
    errors = {name: rows[id_of(name)]["values"] for name in combinations() if id_of(name) in rows}
    if not errors.keys() >= combinations().keys():
        return {}
    ended = [place for place, seed in enumerate(zip(*errors.values(), strict=True)) if None not in seed]
    found = []
    for place, (factor, (ours, theirs)) in enumerate(FACTORS.items()):
        sides = [[errors[name] for name in errors if name != WITHOUT and name.split(", ")[place] == side]
                 for side in (theirs, ours)]  # fmt: skip
        values = [mean(each[seed] for each in sides[0]) - mean(each[seed] for each in sides[1]) for seed in ended]
        label = f"{theirs} instead of {ours}, over all other choices"
        found.append(reading(RowId(factor, reading="effect"), label, values, "points of test error"))
    return {"rows": found}


def id_of(name: str) -> RowId:
    """Return the id of a row of this target."""
    return RowId(name, "nin-mnist", size=SIZE)
