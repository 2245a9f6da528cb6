"""What happens between steps and epochs: the methods that the training loop calls, and callbacks that need no folder.

Those that write to the folder of a run are in ``trainer/runs/callbacks``.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor

from deepsup.insight import measure
from deepsup.trainer.training._answers import answering

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


class EarlyStopping(Callback):
    """Stops after ``patience`` epochs without a lower validation error; keeps the weights of the best epoch."""

    def __init__(self, samples: Tensor, labels: Tensor, patience: int) -> None:
        self.samples, self.labels, self.patience = samples, labels, patience
        self.best: dict[str, Any] = {}

    def epoch_ended(self, training: Training, record: dict[str, Any]) -> None:
        """Measure the net and judge the epoch."""
        forward = answering(training.config, training.net)
        measured = measure(training.net, self.samples, self.labels, forward=forward)
        record |= {"validation_error": measured.error, "validation_companions": measured.companion_errors}
        if training.judge(record["epoch"], measured.error):
            self.best = copy.deepcopy(training.net.state_dict())
        elif record["epoch"] - training.best_epoch >= self.patience:
            training.stop_requested = True

    def ended(self, training: Training) -> None:
        """Go back to the best epoch."""
        training.net.load_state_dict(self.best)


class History(Callback):
    """Keeps what is worth knowing of each epoch."""

    def __init__(self) -> None:
        self.epochs: list[dict[str, Any]] = []

    def epoch_ended(self, training: Training, record: dict[str, Any]) -> None:  # noqa: ARG002
        """Keep errors and losses."""
        self.epochs.append(
            {key: value for key, value in record.items() if not key.startswith("gradient_") and key != "phase"}
        )


class Deadline(Callback):
    """Stops the training when the sweep's time is over; the run is saved."""

    passed = False
    done, seconds = 0.0, 0.0
    """The share of a whole run that was trained here, and how long that took."""

    def __init__(self, deadline: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.deadline, self.clock = deadline, clock

    def started(self, training: Training) -> None:
        """Note where and when the training starts: it may have been resumed."""
        self.first, self.began = training.iteration, self.clock()

    def step_ended(self, training: Training) -> None:
        """Look at the clock."""
        if self.clock() > self.deadline and not training.finished:
            training.stop_requested = self.passed = True
            whole = len(training.batches) * training.config.total_epochs
            self.done, self.seconds = (training.iteration - self.first) / whole, self.clock() - self.began


class Clock(Callback):
    """Notes when every step has ended, and ends the training after so many steps or seconds."""

    def __init__(self, steps: int, seconds: float) -> None:
        self.steps, self.seconds = steps, seconds
        self.times: list[float] = []

    def step_ended(self, training: Training) -> None:
        """Note the time; stop when there is enough."""
        self.times.append(time.perf_counter())
        training.stop_requested = len(self.times) > self.steps or self.times[-1] - self.times[0] > self.seconds
