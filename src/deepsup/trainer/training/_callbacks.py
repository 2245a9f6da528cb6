"""What happens between steps and epochs: the methods that the training loop calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepsup.trainer.training._loop import Training


class Callback:
    """The base class of all callbacks; its methods do nothing. ``training`` holds the net, the optimizer and counters.

    Several callbacks are called in the order of their list. Under torchrun every process calls its own.
    """

    def started(self, training: Training) -> None:
        """Called once, before the first step; a resumed training is already restored."""

    def step_ended(self, training: Training) -> None:
        """Called after every step; after the last step of an epoch, ``epoch_ended`` comes first."""

    def epoch_ended(self, training: Training, record: dict[str, Any]) -> None:
        """Called after every epoch, with its record as in metrics.jsonl; what a callback adds, later ones see."""

    def ended(self, training: Training) -> None:
        """Called once, when all steps are done or ``training.stop_requested`` is set; not after an error."""
