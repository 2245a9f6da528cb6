"""Recipes of ours -> the rows to train: the fast nets with companions and without, few images, segmentation."""

from deepsup.paper.plan import Panel, Place, Plan, Row, at
from deepsup.paper.printed import TABLES
from deepsup.paper.row_id import WITH, WITHOUT, RowId
from deepsup.trainer.config import Config
from deepsup.trainer.recipes import FLAT, WEAK, find_recipe
from deepsup.trainer.studies import Method

FAST = {
    "fast-mnist": "mnist",
    "fast-cifar10": "cifar10-augmented",
    "fast-cifar10-plain": "cifar10",
    "fast-cifar100": "cifar100",
}
"""Recipe -> the paper's table that it is to beat."""
MINUTES = {"fast-mnist": 15, "fast-cifar10": 20, "fast-cifar10-plain": 60, "fast-cifar100": 120}
"""Recipe -> what a run may take on two cores."""

FEW = {250: 40, 1000: 20}
"""Training images -> epochs."""


def with_companions(config: Config) -> Config:
    """Return a fast recipe with the companions that it had until they were seen to gain nothing (dev/LOG.md)."""
    taps = ("group2", "group3") if config.data.source == "mnist" else ("network",)
    return config.replace(taps=taps, alpha=(0.1,), schedule="cut:0.34", companion_lr=0.2, **{**FLAT, "pool": "avg"})


def fast(recipe: str, _preset: str) -> Plan:
    """Return the recipe with companions and without; both presets are the recipe itself. MNIST: one epoch of it too."""
    config = with_companions(find_recipe(recipe)).replace(tensorboard=False)
    seeds = 3 if MINUTES[recipe] < 30 else 1
    differs = f"the net fast; {config.run.epochs} epochs"
    paper = TABLES[FAST[recipe]].rows["DSN-SVM"][0]
    supervised = Row(RowId(WITH), Method(WITH, {"recipe": config}, seeds), paper, differs)
    without = Method(WITHOUT, {"recipe": config.replace(taps=("none",))}, seeds)
    groups = [(supervised,), (Row(RowId(WITHOUT), without, None, differs),)]
    if recipe == "fast-mnist":
        once = Method(f"{WITH}, one epoch", {"recipe": config.replace(epochs=1)}, seeds)
        groups.insert(0, (Row(RowId(WITH, epochs=1), once, None, "the net fast; 1 epoch"),))
    return Plan(tuple(groups), recipe, ((RowId(WITH), RowId(WITHOUT)),))


def few(_preset: str) -> Plan:
    """Return the net of the recipe, narrow, on few images of CIFAR-10: where companions should help, if anywhere."""
    config = with_companions(find_recipe("fast-cifar10")).replace(
        network_options={"widths": [32, 128, 128], "mirror": True}, sides=(),
        batch_size=50, schedule="linear", tensorboard=False, gradient_every=0,
    )  # fmt: skip
    groups, pairs = [], []
    for size, epochs in FEW.items():
        supervised = config.replace(train_size=size, epochs=epochs)
        choices = {
            WITH: at(supervised, (0.2, 0.6), (0.1, 1.0)),
            WITHOUT: at(supervised.replace(taps=("none",)), (0.2, 0.6)),
        }
        differs = f"the net fast; {epochs} epochs"
        groups.append(
            tuple(
                Row(RowId(line, size=size), Method(f"{line}, {size:,} images", choices[line], 5, searches=1),
                    None, differs, (Place(line, size),))
                for line in choices
            )
        )  # fmt: skip
        pairs.append((RowId(WITH, size=size), RowId(WITHOUT, size=size)))
    return Plan(tuple(groups), "fast-few", tuple(pairs), (Panel("training images"),))


# segmentation: which targets side outputs need


SCENES = Config(
    data="digits-scenes-small", network="unet-small", epochs=8, batch_size=10, optimizer="adamw", lr=0.003,
    class_weights=(0.1, *[1.0] * 10), tensorboard=False, gradient_every=0, **WEAK,
)  # fmt: skip
"""Short, so that all runs together take about ten minutes on one core. With equal weights, such a short training ends
with a background that has all pixels."""
TARGET_MODES = ("probability", "nearest", "upsample")


def dense(_preset: str) -> Plan:
    """Return four rows, paired over seeds; both presets are the same."""
    configs = {RowId(WITHOUT): SCENES.replace(taps=("none",))}
    configs |= {RowId(WITH, companions=how): SCENES.replace(targets=how) for how in TARGET_MODES}
    rows = tuple(
        Row(name, Method(dense_label(name), {"lr0.003": config}, 3), differs="not of the paper: segmentation")
        for name, config in configs.items()
    )
    soft, nearest, upsample = (RowId(WITH, companions=how) for how in TARGET_MODES)
    pairs = [(each, RowId(WITHOUT)) for each in (soft, nearest, upsample)]
    return Plan((rows,), "dense", (*pairs, (soft, nearest), (soft, upsample)))


def dense_label(name: RowId) -> str:
    """Return what people call a row."""
    return f"companions, {name.companions} targets" if name.companions else "without companions"
