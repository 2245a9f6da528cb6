"""A run folder and ``--trust`` in, a run that may be read out: without it, nothing that a run names is imported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepsup.trainer.runs import RunFolder


def opened(folder: Path, trust: bool) -> RunFolder:
    """Return a run; a trusted one with what makes its network."""
    from deepsup.trainer.runs import RunFolder

    run = RunFolder(folder)
    network = run.config.network.name if trust else ""
    if ":" not in network:
        return run
    from deepsup.trainer.networks import trusted_factory

    return RunFolder(folder, trusted_factory(network))
