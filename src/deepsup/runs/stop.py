"""Ctrl-C or SIGTERM in, a training that is saved and then left out."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from deepsup.errors import TrainingError


class Stopped(BaseException):
    """A signal asked the training to stop, and it has been saved."""


@contextmanager
def stopped_by_signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM while training; afterwards do what they ask for, as if they came now."""
    caught: list[int] = []
    before = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup: what it shields from is no reason to stop
                before[number] = signal.signal(number, lambda given, _frame: caught.append(given))
    except ValueError:  # not the main thread: signals go elsewhere
        pass
    try:
        yield caught
        return
    except Stopped:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if caught:
        signal.raise_signal(caught[0])
    raise TrainingError("another process was asked to stop; what was trained is saved: go on with --resume")
