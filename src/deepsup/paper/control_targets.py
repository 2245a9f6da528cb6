"""What else could explain that companions help? -> the plain net of ``when`` under each other explanation."""

from dataclasses import replace
from math import ceil

from deepsup.paper.fast_targets import WITH, WITHOUT
from deepsup.paper.plan import Plan, Row, at
from deepsup.paper.row_id import RowId
from deepsup.paper.when_targets import DEPTH, OPTIMIZERS, SIZE, pair
from deepsup.trainer.config import Config

SMOOTHING = 0.1
DECAYS = (0.002, 0.01, 0.05)
"""Weight decays to choose from; all other rows have the default, 0.0005."""
COST = 1.2
"""Time of a training step of this net with companions, weak or flat, over one without: the medians of 300 steps
each, in turns, one thread, batch 25. (By multiply-adds it would be 1.02 with flat ones: they are small, their
overhead is not.)"""
SMOOTHED, DECAYED = "label smoothing alone", "weight decay alone"
SHUFFLED, LONGER = "companions with shuffled labels", "more steps, no companions"
CONTROLS = (SMOOTHED, DECAYED, SHUFFLED, LONGER)


def controls(_preset: str) -> Plan:
    """Return the net with flat companions, without, and under each control; both presets are the same.

    Flat ones: the first defaults gained nothing on this net, so there was nothing to explain. The first two rows are
    rows of ``when`` and share its runs.
    """
    _, bare, supervised, *_ = pair(DEPTH, "none", "sgd", SIZE)
    rows = (supervised, bare, *(control(name, supervised, bare) for name in CONTROLS))
    compared = [(WITH, WITHOUT), *((WITH, name) for name in CONTROLS), *((name, WITHOUT) for name in CONTROLS)]
    pairs = tuple((id_of(ours), id_of(theirs)) for ours, theirs in compared)
    return Plan((tuple(replace(row, places=()) for row in rows),), "when", pairs)


def id_of(method: str) -> RowId:
    """Return the id of a row of this target."""
    companions = "flat" if method in (WITH, SHUFFLED) else ""
    return RowId(method, "plain", DEPTH, "none", "sgd", companions, size=SIZE)


def control(name: str, supervised: Row, bare: Row) -> Row:
    """Return the row of one control: the same net, images, seeds and learning rates."""
    base = next(iter((supervised if name == SHUFFLED else bare).method.choices.values()))
    epochs = ceil(base.run.epochs * COST)
    configs: dict[str, dict[str, Config]] = {
        SMOOTHED: {"": base.replace(label_smoothing=SMOOTHING)},
        DECAYED: {f"decay{decay:g}": base.replace(weight_decay=decay) for decay in DECAYS},
        SHUFFLED: {"": base.replace(companion_labels="shuffled")},
        LONGER: {"": base.replace(epochs=epochs)},
    }
    choices = {
        f"{rate}-{word}".strip("-"): config
        for word, each in configs[name].items()
        for rate, config in at(each, OPTIMIZERS["sgd"]).items()
    }
    said = {
        SMOOTHED: f"; label smoothing {SMOOTHING:g}",
        DECAYED: f"; weight decay chosen among {', '.join(f'{decay:g}' for decay in DECAYS)}",
        SHUFFLED: "; the companions see the labels of the batch in a new random order at every step",
        LONGER: f"; {epochs} epochs, not {base.run.epochs}: a step with companions takes {COST:g} times as long",
    }
    method = replace(bare.method, name=f"{name}, {DEPTH} layers, {SIZE} digits", choices=choices)
    return Row(id_of(name), method, differs=supervised.differs + said[name])
