"""The paper's objective with its losses and schedules of alpha."""

from deepsup.objective.objective import Loss, Objective

__all__ = ["Loss", "Objective"]
