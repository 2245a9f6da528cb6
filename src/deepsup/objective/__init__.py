"""Scores -> one scalar and its parts: losses, schedules of alpha, and the paper's objective."""

from deepsup.objective.objective import Loss, Objective

__all__ = ["Loss", "Objective"]
