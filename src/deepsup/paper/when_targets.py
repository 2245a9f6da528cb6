"""When do companions help? -> plain nets over depth and images, forms of companions, controls, and fine-tuning."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from math import ceil
from typing import Any

from deepsup.paper.paper_targets import HALF, digits_differ
from deepsup.paper.plan import Panel, Place, Plan, Row, at
from deepsup.paper.row_id import COMPANIONS, WITH, WITHOUT, RowId
from deepsup.trainer.config import Config
from deepsup.trainer.recipes import FLAT, FLAT_COMPANIONS, PRINTED, WEAK, find_recipe
from deepsup.trainer.studies import Method

DEPTHS = (6, 12, 21, 30)
NORMS = {"none": "no norm layers", "batch": "BatchNorm"}
OPTIMIZERS = {"sgd": (0.01, 0.03, 0.1), "adamw": (0.0003, 0.001, 0.003)}
"""Optimizer -> the learning rates to choose from, the same with and without companions."""
DEPTH, SIZE = 12, 500
"""Of the rows over the number of images, and of the rows over depth."""
SIZES = (100, 250, 1000, 2500, 10000)
STEPS, BATCH, SEEDS = 400, 25, 5
NET = Config(
    data="mnist", network="plain", normalize="standardize", batch_size=BATCH, tensorboard=False, gradient_every=0
)
WIDTHS = [8, 16, 32]
"""Narrow, so that a run of 30 layers stays below a minute on one thread."""


def when(_preset: str) -> Plan:
    """Return the rows: over depth under each optimizer, then over images; both presets are the same."""
    groups = [
        tuple(row for norm in NORMS for row in pair(depth, norm, optimizer, SIZE))
        for optimizer in OPTIMIZERS for depth in DEPTHS
    ]  # fmt: skip
    groups += [tuple(row for norm in NORMS for row in pair(DEPTH, norm, "sgd", size)) for size in SIZES]
    panels = (
        *(Panel("layers", f"{name}, {SIZE} digits", log=False) for name in ("SGD", "AdamW")),
        Panel("training digits", f"SGD, {DEPTH} layers"),
    )
    pairs = [
        (row.id, replace(row.id, method=WITHOUT, companions=""))
        for group in groups for row in group if row.id.method == WITH
    ]  # fmt: skip
    return Plan(tuple(groups), "when", tuple(pairs), panels)


def pair(depth: int, norm: str, optimizer: str, size: int) -> tuple[Row, ...]:
    """Return one net with the default companions, as a net of a user's own gets them, and without.

    If it has no norm layers, also with flat ones and, at the size of the rows over depth, with those the paper prints.
    """
    options = {"depth": depth, "widths": WIDTHS, "norm": norm, "init": "he"}
    config = NET.replace(network_options=options, optimizer=optimizer, train_size=size, epochs=STEPS * BATCH // size)
    configs = {(WITH, ""): config.replace(taps=("auto",)), (WITHOUT, ""): config.replace(taps=("none",))}
    if norm == "none":
        configs[WITH, "flat"] = config.replace(**FLAT_COMPANIONS)
        if size == SIZE:
            configs[WITH, "printed"] = config.replace(**PRINTED)
    what = f"{depth} layers, {NORMS[norm]}, {optimizer}, {size:,} digits"
    return tuple(
        Row(
            RowId(method, "plain", depth, norm, optimizer, companions, size=size),
            Method(f"{line_of(method, companions)}, {what}", at(each, OPTIMIZERS[optimizer]), SEEDS, searches=1),
            differs=f"the net plain, {STEPS} steps of batch {BATCH}",
            places=places(RowId(method, "plain", depth, norm, optimizer, companions, size=size)),
        )
        for (method, companions), each in configs.items()
    )


def line_of(method: str, companions: str) -> str:
    """Return what the rows of one line have in common."""
    return f"with {COMPANIONS[companions]}" if companions else method


def places(row: RowId) -> tuple[Place, ...]:
    """Return where a row is drawn: over depth, over images, or in both panels."""
    look = ("DSN-" if row.method == WITH else "CNN-") + ("Softmax" if row.norm == "none" else "SVM")
    line = f"{line_of(row.method, row.companions)}, {NORMS[row.norm]}"
    over_depth, over_size = list(OPTIMIZERS).index(row.optimizer), len(OPTIMIZERS)
    look = line if row.companions else look
    rows = [Place(line, row.depth or 0, over_depth, look)] if row.size == SIZE else []
    if row.depth == DEPTH and row.optimizer == "sgd":
        rows.append(Place(line, row.size or 0, over_size, look))
    return tuple(rows)


# which companions: a factorial design, each choice judged over all combinations of the others


FACTORS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "heads": {
        "weak heads": {},
        "flat heads": {"companion_lr": 0.01, **{key: value for key, value in FLAT.items() if key != "average"}},
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


def companion_forms(_preset: str) -> Plan:
    """Return the net without companions and with those of each combination; both presets are the same."""
    rows = tuple(
        Row(companion_id(name), Method(f"{name}, half width", {"fixed": config}, SEEDS), differs=digits_differ(config))
        for name, config in combinations().items()
    )
    pairs = tuple((row.id, companion_id(WITHOUT)) for row in rows if row.id.method != WITHOUT)
    return Plan((rows,), "when-companions", pairs)


def combinations() -> dict[str, Config]:
    """Return the config without companions, and that of each combination, by the names of their rows."""
    rows = {WITHOUT: BASE.replace(taps=("none",))}
    for words in product(*FACTORS.values()):
        settings = [each[word] for each, word in zip(FACTORS.values(), words, strict=True)]
        rows[", ".join(words)] = BASE.replace(**{key: value for each in settings for key, value in each.items()})
    return rows


def companion_id(name: str) -> RowId:
    """Return the id of a row of this target."""
    return RowId(name, "nin-mnist", size=SIZE)


# what else could explain that companions help


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
    comparison = [(WITH, WITHOUT), *((WITH, name) for name in CONTROLS), *((name, WITHOUT) for name in CONTROLS)]
    pairs = tuple((control_id(ours), control_id(theirs)) for ours, theirs in comparison)
    return Plan((tuple(replace(row, places=()) for row in rows),), "when", pairs)


def control_id(method: str) -> RowId:
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
    words = {
        SMOOTHED: f"; label smoothing {SMOOTHING:g}",
        DECAYED: f"; weight decay chosen among {', '.join(f'{decay:g}' for decay in DECAYS)}",
        SHUFFLED: "; the companions see the labels of the batch in a new random order at every step",
        LONGER: f"; {epochs} epochs, not {base.run.epochs}: a step with companions takes {COST:g} times as long",
    }
    method = replace(bare.method, name=f"{name}, {DEPTH} layers, {SIZE} digits", choices=choices)
    return Row(control_id(name), method, differs=supervised.differs + words[name])


# a net of 50 classes of CIFAR-100, tuned on few images of the others


TUNING_OPTIONS = {"widths": [16, 64, 64]}
START = find_recipe("fast-cifar10").replace(
    data="cifar100-first50", network_options=TUNING_OPTIONS, sides=(), epochs=6, batch_size=250, taps=("none",),
    label_smoothing=0.1, tensorboard=False, gradient_every=0,
)  # fmt: skip
"""What is tuned: the net fast, narrow, trained without companions on 25,000 images of 50 classes; once per seed."""
TUNING_STEPS = 300
PER_CLASS = (5, 10, 50)
CLASSES = 50
TUNING = Config(
    data="cifar100-last50", network="fast", network_options=TUNING_OPTIONS, batch_size=BATCH, tensorboard=False,
    gradient_every=0,
)  # fmt: skip
"""The library's own companions and optimizer; not run yet."""
TUNING_RATES = {WITH: ((0.1, 0.3), (0.3, 1.0)), WITHOUT: ((0.03, 0.1, 0.3, 1.0), ())}
"""Method -> learning rates and alphas to choose from: four combinations for each."""


def tuning(_preset: str) -> Plan:
    """Return the rows over the number of images; both presets are the same."""
    groups = tuple(tuning_rows(CLASSES * each) for each in PER_CLASS)
    pairs = tuple((RowId(WITH, "fast", size=CLASSES * each), RowId(WITHOUT, "fast", size=CLASSES * each))
                  for each in PER_CLASS)  # fmt: skip
    return Plan(groups, "when-tuning", pairs, (Panel("images to tune on"),))


def tuning_rows(size: int) -> tuple[Row, ...]:
    """Return the rows of one number of images: the same starts, images and steps with companions and without."""
    config = TUNING.replace(train_size=size, epochs=TUNING_STEPS * BATCH // size)
    configs = {WITH: config, WITHOUT: config.replace(taps=("none",))}
    return tuple(
        Row(
            RowId(name, "fast", size=size),
            Method(f"{name}, {size:,} images", at(each, *TUNING_RATES[name]), SEEDS, searches=1, start=START),
            differs=f"tuned for {TUNING_STEPS} steps of batch {BATCH}, from a net of the other 50 classes",
            places=(Place(name, size, look="DSN-Softmax" if name == WITH else "CNN-Softmax"),),
        )
        for name, each in configs.items()
    )
