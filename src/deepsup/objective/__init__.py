"""The paper's objective with its losses and schedules of alpha."""

from deepsup.objective._dense_targets import DenseTargets
from deepsup.objective._losses import LossFunction, find_loss, squared_hinge
from deepsup.objective._net_settings import supervised
from deepsup.objective._objective import Loss, Objective

__all__ = ["DenseTargets", "Loss", "LossFunction", "Objective", "find_loss", "squared_hinge", "supervised"]
