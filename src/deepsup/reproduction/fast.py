"""The ``fast`` recipes -> the rows to train: each as it stands, and the same net and seeds without companions."""

from dataclasses import replace

from deepsup.experiment.arms import Arm
from deepsup.recipes import find_recipe
from deepsup.reproduction.paper import TABLES
from deepsup.reproduction.plan import Plan, Row

WITH, WITHOUT = "with companions", "without companions"
FAST = {
    "fast-mnist": "mnist",
    "fast-cifar10": "cifar10-augmented",
    "fast-cifar10-plain": "cifar10",
    "fast-cifar100": "cifar100",
}
"""Recipe -> the paper's table that it is to beat."""
MINUTES = {"fast-mnist": 15, "fast-cifar10": 20, "fast-cifar10-plain": 60, "fast-cifar100": 120}
"""Recipe -> what a run may take on two cores."""


def fast(recipe: str, _preset: str) -> Plan:
    """Return the recipe with companions, then without; both presets are the recipe itself."""
    config = replace(find_recipe(recipe), tensorboard=False)
    seeds = 3 if MINUTES[recipe] < 30 else 1
    differs = f"the net fast; {config.epochs} epochs"
    supervised = Row(Arm(WITH, {"recipe": config}, seeds), TABLES[FAST[recipe]].rows["DSN-SVM"][0], differs)
    plain = Row(Arm(WITHOUT, {"recipe": replace(config, taps=("none",))}, seeds), None, differs)
    return Plan(((supervised,), (plain,)), recipe, ((WITH, WITHOUT),))
