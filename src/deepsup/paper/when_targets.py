"""When do companions help? -> plain nets with and without companions over depth and over the number of images."""

from dataclasses import replace

from deepsup.paper.fast_targets import WITH, WITHOUT
from deepsup.paper.plan import Panel, Place, Plan, Row, at
from deepsup.paper.row_id import COMPANIONS, RowId
from deepsup.trainer.config import Config
from deepsup.trainer.recipes import FLAT_COMPANIONS, PRINTED
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
    found = [Place(line, row.depth or 0, over_depth, look)] if row.size == SIZE else []
    if row.depth == DEPTH and row.optimizer == "sgd":
        found.append(Place(line, row.size or 0, over_size, look))
    return tuple(found)
