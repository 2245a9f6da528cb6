"""The record of an epoch in, TensorBoard events out, where that package is installed."""

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def events_in(folder: Path, first_epoch: int) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Give a function that writes an epoch's numbers as events, or one that does nothing."""
    if not importlib.util.find_spec("tensorboard"):
        yield lambda _: None
        return
    from torch.utils.tensorboard import SummaryWriter  # half a second: only where it is used

    with SummaryWriter(str(folder), purge_step=first_epoch) as writer:
        yield lambda record: write_events(writer, record)


def write_events(writer: Any, record: dict[str, Any]) -> None:
    """Write every number of an epoch's record."""
    for name, value in record.items():
        if isinstance(value, dict):
            for tap, each in ((tap, each) for tap, each in value.items() if isinstance(each, float)):
                writer.add_scalar(f"{name}/{tap}", each, record["epoch"])
        elif isinstance(value, float):
            writer.add_scalar(name, value, record["epoch"])
