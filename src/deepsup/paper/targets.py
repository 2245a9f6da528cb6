"""Every target by its name: what it trains, and what is read off the runs beyond their test errors."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from deepsup.errors import ConfigError, nearest
from deepsup.paper import readings
from deepsup.paper.companion_targets import companions, effects
from deepsup.paper.control_targets import controls
from deepsup.paper.dense_targets_study import dense
from deepsup.paper.fast_targets import FAST, fast, few
from deepsup.paper.plan import Plan
from deepsup.paper.printed import TABLES
from deepsup.paper.size_targets import lenet_sizes, sizes
from deepsup.paper.study_targets import cifar_pair, course, hinges, pretraining, robustness
from deepsup.paper.table_targets import table
from deepsup.paper.tuning_targets import tuning
from deepsup.paper.when_targets import when


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


STUDIES = {
    "fig2a": Target("Fig. 2a: test error of the four methods over training", course, readings.course,
                    readings.test_errors),
    "fig2c": Target("Fig. 2c: training and test error of CNN and DSN", course, readings.generalisation,
                    readings.training_error),
    "robustness": Target("Error over a grid of learning rates", robustness, readings.spread),
    "pretraining": Target("Greedy pre-training against joint training", pretraining),
    "l1-l2": Target("The plain hinge (L1) against the squared one (L2)", hinges),
}  # fmt: skip
"""Studies on digits, each on two nets."""
TARGETS = {
    "fig2b-nin": Target("Fig. 2b: test error against the number of training digits, NIN", sizes, readings.gains),
    "fig2b": Target(
        "Fig. 2b on a LeNet: test error against the number of training digits", lenet_sizes, readings.gains
    ),
    "when": Target("When companions help: test error over depth and over images, plain nets, MNIST", when),
    "when-companions": Target(
        "Which companions help: weak and flat ones, choice by choice, NIN of half width, 500 digits", companions,
        effects,
    ),
    "when-tuning": Target("When companions help: a trained net tuned on few images of other classes", tuning),
    "when-controls": Target(
        "What else could explain that companions help: a plain net of 12 layers under controls, MNIST", controls
    ),
    **{f"{name}-nin": replace(study, title=f"{study.title}, NIN, MNIST") for name, study in STUDIES.items()},
    **{name: replace(study, title=f"{study.title}, a LeNet, MNIST", plan=partial(study.plan, lenet=True))
       for name, study in STUDIES.items()},
    "gradient-variance": Target(
        "The variance of the first convolution's gradient, DSN over CNN, CIFAR-10", cifar_pair, readings.variances,
        readings.gradient_variances,
    ),
    "fig3": Target("Fig. 3: feature maps of the first convolution, CIFAR-10", cifar_pair, readings.maps,
                   readings.probed),
    **{name: Target(printed.title, partial(table, name)) for name, printed in TABLES.items()},
    **{name: Target(f"{TABLES[table_].title}, by the recipe {name}", partial(fast, name))
       for name, table_ in FAST.items()},
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
