"""Every target by its name: what it trains, and what is read off the runs beyond their test errors."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from deepsup.errors import ConfigError, nearest
from deepsup.paper import budget_curves, paper_targets, readings
from deepsup.paper.own_targets import FAST, dense, fast, few
from deepsup.paper.plan import Plan
from deepsup.paper.printed import TABLES
from deepsup.paper.when_targets import companion_forms, controls, tuning, when


def no_reading(_rows: readings.Rows) -> dict[str, Any]:
    """Read nothing beyond the test errors."""
    return {}


@dataclass(frozen=True)
class Target:
    """A table, a figure or a claim of the paper."""

    title: str
    plan: Callable[..., Plan]
    """A preset -> what is trained."""
    read: Callable[[readings.Rows], dict[str, Any]] = no_reading
    """Rows -> more of the record: ``rows``, and ``figure``."""
    measure: readings.Measure | None = None
    """What ``read`` needs of each run beyond its test error."""


TARGETS = {
    "fig2b-nin": Target("Fig. 2b: test error against the number of training digits", paper_targets.sizes,
                        readings.gains),
    "budget": Target("Faster or better? Test error over the number of epochs, 500 digits", paper_targets.budget,
                     budget_curves.distances),
    "cifar10-augmented": Target(TABLES["cifar10-augmented"].title, partial(paper_targets.table, "cifar10-augmented")),
    "budget-cifar10": Target("Faster or better? Test error over the number of epochs, CIFAR-10, shifts and flips",
                             paper_targets.cifar_budget, budget_curves.distances),
    **{name: Target(TABLES[name].title, partial(paper_targets.table, name))
       for name in ("cifar10", "svhn", "cifar100", "mnist")},
    "fig2a-nin": Target("Fig. 2a: test error of the four methods over training, MNIST", paper_targets.course,
                        readings.course, readings.test_errors),
    "fig2c-nin": Target("Fig. 2c: training and test error of CNN and DSN, MNIST", paper_targets.course,
                        readings.generalisation, readings.training_error),
    "robustness-nin": Target("Error over a grid of learning rates, 500 digits", paper_targets.robustness,
                             readings.spread),
    "pretraining-nin": Target("Greedy pre-training against joint training, 500 digits", paper_targets.pretraining),
    "l1-l2-nin": Target("The plain hinge (L1) against the squared one (L2), 500 digits", paper_targets.hinges),
    "gradient-variance": Target(
        "The variance of the first convolution's gradient, DSN over CNN, CIFAR-10", paper_targets.first_layer,
        readings.variances, readings.gradient_variances,
    ),
    "fig3": Target("Fig. 3: feature maps of the first convolution, CIFAR-10", paper_targets.first_layer, readings.maps,
                   readings.probe_first_layer),
    "when": Target("When companions help: test error over depth and over images, plain nets, MNIST", when),
    "when-companions": Target(
        "Which companions help: weak and flat ones, choice by choice, NIN of half width, 500 digits", companion_forms,
        readings.effects,
    ),
    "when-tuning": Target("When companions help: a trained net tuned on few images of other classes", tuning),
    "when-controls": Target(
        "What else could explain that companions help: a plain net of 12 layers under controls, MNIST", controls
    ),
    **{name: Target(f"{TABLES[table].title}, by the recipe {name}", partial(fast, name))
       for name, table in FAST.items()},
    "dense": Target("Segmentation: how masks meet side outputs of a lower resolution, scenes of small digits", dense),
    "fast-few": Target("Companions on the net fast with few images, CIFAR-10", few),
}  # fmt: skip
"""In the order in which ``all`` runs them; ``theory`` trains nothing and comes after."""
NAMES = (*TARGETS, "theory")


def find_target(name: str) -> Target:
    """Return a target that trains nets, by its name."""
    if name not in TARGETS:
        raise ConfigError(f"no target {name!r}; {nearest(name, (*NAMES, 'all'), most=len(NAMES) + 1)}")
    return TARGETS[name]
