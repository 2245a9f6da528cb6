"""The ``fast`` recipes -> the rows to train: each as it stands, and the same net and seeds without companions."""

from deepsup.paper.plan import Plan, Row, at
from deepsup.paper.printed import TABLES
from deepsup.recipes import find_recipe
from deepsup.studies.study import Method

WITH, WITHOUT, ONE = "with companions", "without companions", "with companions, one epoch"
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


def fast(recipe: str, _preset: str) -> Plan:
    """Return the recipe with companions and without; both presets are the recipe itself. MNIST: one epoch of it too."""
    config = find_recipe(recipe).replace(tensorboard=False)
    seeds = 3 if MINUTES[recipe] < 30 else 1
    differs = f"the net fast; {config.run.epochs} epochs"
    supervised = Row(Method(WITH, {"recipe": config}, seeds), TABLES[FAST[recipe]].rows["DSN-SVM"][0], differs)
    plain = Row(Method(WITHOUT, {"recipe": config.replace(taps=("none",))}, seeds), None, differs)
    groups = [(supervised,), (plain,)]
    if recipe == "fast-mnist":
        groups.insert(
            0, (Row(Method(ONE, {"recipe": config.replace(epochs=1)}, seeds), None, "the net fast; 1 epoch"),)
        )
    return Plan(tuple(groups), recipe, ((WITH, WITHOUT),))


def few(_preset: str) -> Plan:
    """Return the net of the recipe, narrow, on few images of CIFAR-10: where companions should help, if anywhere."""
    config = find_recipe("fast-cifar10").replace(
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
        names = {line: f"{line}, {size:,} images" for line in choices}
        groups.append(tuple(Row(Method(names[line], choices[line], 5), None, differs, line, size) for line in choices))
        pairs.append((names[WITH], names[WITHOUT]))
    return Plan(tuple(groups), "fast-few", tuple(pairs), "training images")
