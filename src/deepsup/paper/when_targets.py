"""When do companions help? -> plain nets with and without companions over depth and over the number of images."""

from dataclasses import replace

from deepsup.config import Config
from deepsup.paper.fast_targets import WITH, WITHOUT
from deepsup.paper.plan import Panel, Place, Plan, Row, at
from deepsup.paper.row_id import RowId
from deepsup.studies.study import Method

DEPTHS = (6, 12, 21, 30)
NORMS = {"none": "no norm layers", "batch": "BatchNorm"}
OPTIMIZERS = {"sgd": (0.01, 0.03, 0.1), "adamw": (0.0003, 0.001, 0.003)}
"""Optimizer -> the learning rates to choose from, the same with and without companions."""
DEPTH, SIZE = 12, 500
"""Of the rows over the number of images, and of the rows over depth."""
SIZES = (100, 250, 1000, 2500, 10000)
STEPS, BATCH, SEEDS = 800, 25, 5
NET = Config(
    data="mnist", network="plain", normalize="standardize", batch_size=BATCH, tensorboard=False, gradient_every=0
)
WIDTHS = [8, 16, 32]
"""Narrow, so that a run of 30 layers stays below two minutes on one thread."""


def when(_preset: str) -> Plan:
    """Return the rows: over depth under each optimizer, then over images; both presets are the same."""
    groups = [
        tuple(row for norm in NORMS for row in pair(depth, norm, optimizer, SIZE))
        for optimizer in OPTIMIZERS for depth in DEPTHS
    ]  # fmt: skip
    groups += [tuple(row for norm in NORMS for row in pair(DEPTH, norm, "sgd", size)) for size in SIZES]
    panels = (
        *(Panel("layers", f"{optimizer}, {SIZE} digits", log=False) for optimizer in OPTIMIZERS),
        Panel("training digits", f"sgd, {DEPTH} layers"),
    )
    pairs = [(row.id, replace(row.id, method=WITHOUT)) for group in groups for row in group if row.id.method == WITH]
    return Plan(tuple(groups), "when", tuple(pairs), panels)


def pair(depth: int, norm: str, optimizer: str, size: int) -> tuple[Row, ...]:
    """Return one net with companions, the library's defaults, and without."""
    options = {"depth": depth, "widths": WIDTHS, "norm": norm, "init": "he"}
    config = NET.replace(network_options=options, optimizer=optimizer, train_size=size, epochs=STEPS * BATCH // size)
    configs = {WITH: config, WITHOUT: config.replace(taps=("none",))}
    what = f"{depth} layers, {NORMS[norm]}, {optimizer}, {size:,} digits"
    return tuple(
        Row(
            RowId(method, "plain", depth, norm, optimizer, size=size),
            Method(f"{method}, {what}", at(config, OPTIMIZERS[optimizer]), SEEDS),
            differs=f"the net plain, {STEPS} steps of batch {BATCH}",
            places=places(method, depth, norm, optimizer, size),
        )
        for method, config in configs.items()
    )


def places(method: str, depth: int, norm: str, optimizer: str, size: int) -> tuple[Place, ...]:
    """Return where a row is drawn: over depth, over images, or in both panels."""
    look = ("DSN-" if method == WITH else "CNN-") + ("Softmax" if norm == "none" else "SVM")
    line, over_depth, over_size = f"{method}, {NORMS[norm]}", list(OPTIMIZERS).index(optimizer), len(OPTIMIZERS)
    found = [Place(line, depth, over_depth, look)] if size == SIZE else []
    if depth == DEPTH and optimizer == "sgd":
        found.append(Place(line, size, over_size, look))
    return tuple(found)
