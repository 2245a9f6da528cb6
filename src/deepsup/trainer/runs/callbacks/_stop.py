"""Ctrl-C or SIGTERM -> a training that is saved before the process ends."""

from __future__ import annotations

import signal
from types import TracebackType
from typing import Any

from deepsup.errors import TrainingError
from deepsup.trainer.training import Callback, Training


class StopOnSignal(Callback):
    """Ends the training after the step in which SIGINT or SIGTERM came, in all processes alike.

    It is a context manager: the signals are caught inside of it, and take effect after it.
    """

    def __init__(self) -> None:
        self._caught: list[int] = []
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopOnSignal:
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores them, and so does this
                    self._before[number] = signal.signal(number, lambda given, _frame: self._caught.append(given))
        except ValueError:  # not the main thread: signals go elsewhere
            pass
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def step_ended(self, training: Training) -> None:
        """Stop if a signal has come."""
        training.stop_requested |= training.processes.any(bool(self._caught))

    def ended(self, training: Training) -> None:
        """Look once more: a signal may have come while the last checkpoint was written."""
        self.step_ended(training)

    def answer(self) -> None:
        """Do what the signal asks for, as if it came now."""
        if self._caught:
            signal.raise_signal(self._caught[0])
        raise TrainingError("another process was asked to stop; the training is saved: continue with --resume")
