"""Which targets do side outputs need? -> a U-Net on scenes of small digits: no companions, or each kind of target."""

from deepsup.paper.fast_targets import WITH, WITHOUT
from deepsup.paper.plan import Plan, Row
from deepsup.paper.row_id import RowId
from deepsup.trainer.config import Config
from deepsup.trainer.recipes import WEAK
from deepsup.trainer.studies import Method

SCENES = Config(
    data="digits-scenes-small", network="unet-small", epochs=8, batch_size=10, optimizer="adamw", lr=0.003,
    class_weights=(0.1, *[1.0] * 10), tensorboard=False, gradient_every=0, **WEAK,
)  # fmt: skip
"""Short, so that all runs together take about ten minutes on one core. With equal weights, such a short training ends
with a background that has all pixels."""
MEETINGS = ("probability", "nearest", "upsample")
SEEDS = 3


def dense(_preset: str) -> Plan:
    """Return four rows, paired over seeds; both presets are the same."""
    configs = {RowId(WITHOUT): SCENES.replace(taps=("none",))}
    configs |= {RowId(WITH, companions=how): SCENES.replace(targets=how) for how in MEETINGS}
    rows = tuple(
        Row(name, Method(label(name), {"lr0.003": config}, SEEDS), differs="not of the paper: segmentation")
        for name, config in configs.items()
    )
    soft, nearest, upsample = (RowId(WITH, companions=how) for how in MEETINGS)
    pairs = [(each, RowId(WITHOUT)) for each in (soft, nearest, upsample)]
    return Plan((rows,), "dense", (*pairs, (soft, nearest), (soft, upsample)))


def label(name: RowId) -> str:
    """Return what people call a row."""
    return f"companions, {name.companions} targets" if name.companions else "without companions"
