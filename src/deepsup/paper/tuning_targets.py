"""Do companions help to tune a trained net? -> a net of 50 classes of CIFAR-100, tuned on few images of the others."""

from deepsup.paper.fast_targets import WITH, WITHOUT
from deepsup.paper.plan import Panel, Place, Plan, Row, at
from deepsup.paper.row_id import RowId
from deepsup.trainer.config import Config
from deepsup.trainer.recipes import find_recipe
from deepsup.trainer.studies import Method

OPTIONS = {"widths": [16, 64, 64]}
START = find_recipe("fast-cifar10").replace(
    data="cifar100-first50", network_options=OPTIONS, sides=(), epochs=6, batch_size=250, taps=("none",),
    label_smoothing=0.1, tensorboard=False, gradient_every=0,
)  # fmt: skip
"""What is tuned: the net fast, narrow, trained without companions on 25,000 images of 50 classes; once per seed."""
STEPS, BATCH, SEEDS = 300, 25, 5
PER_CLASS = (5, 10, 50)
CLASSES = 50
TUNING = Config(
    data="cifar100-last50", network="fast", network_options=OPTIONS, batch_size=BATCH, tensorboard=False,
    gradient_every=0,
)  # fmt: skip
"""The library's own companions and optimizer; not run yet."""
RATES = {WITH: ((0.1, 0.3), (0.3, 1.0)), WITHOUT: ((0.03, 0.1, 0.3, 1.0), ())}
"""Method -> learning rates and alphas to choose from: four combinations for each."""


def tuning(_preset: str) -> Plan:
    """Return the rows over the number of images; both presets are the same."""
    groups = tuple(tuned(CLASSES * each) for each in PER_CLASS)
    pairs = tuple((RowId(WITH, "fast", size=CLASSES * each), RowId(WITHOUT, "fast", size=CLASSES * each))
                  for each in PER_CLASS)  # fmt: skip
    return Plan(groups, "when-tuning", pairs, (Panel("images to tune on"),))


def tuned(size: int) -> tuple[Row, ...]:
    """Return the rows of one number of images: the same starts, images and steps with companions and without."""
    config = TUNING.replace(train_size=size, epochs=STEPS * BATCH // size)
    configs = {WITH: config, WITHOUT: config.replace(taps=("none",))}
    return tuple(
        Row(
            RowId(name, "fast", size=size),
            Method(f"{name}, {size:,} images", at(each, *RATES[name]), SEEDS, searches=1, start=START),
            differs=f"tuned for {STEPS} steps of batch {BATCH}, from a net of the other 50 classes",
            places=(Place(name, size, look="DSN-Softmax" if name == WITH else "CNN-Softmax"),),
        )
        for name, each in configs.items()
    )
