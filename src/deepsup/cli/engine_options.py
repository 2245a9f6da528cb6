"""The options of verbs that train many runs -> the engine that trains them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

if TYPE_CHECKING:
    from deepsup.trainer.studies import Engine


@dataclass(frozen=True)
class EngineOptions:
    """Where the runs are trained."""

    jobs: Annotated[
        int | None,
        arg(
            metavar="INT",
            help="number of runs to train at a time, each with its share of the cores",
            help_behavior_hint="(default: 1; on a cluster, all that fit)",
        ),
    ] = None
    engine: Annotated[str, arg(metavar="NAME")] = "local"
    """engine: local (processes of this machine) or ray (a Ray cluster)"""
    address: Annotated[
        str | None, arg(metavar="HOST:PORT", help_behavior_hint="(default: none; one is started on this machine)")
    ] = None
    """address of an existing Ray cluster, or auto"""
    cpus: Annotated[
        int | None, arg(metavar="INT", help_behavior_hint="(default: the cores divided by the jobs; 1 on a cluster)")
    ] = None
    """CPU cores and threads per run; results are the same to the bit for the same number"""
    gpus: Annotated[float, arg(metavar="FLOAT")] = 0.0
    """GPUs per run that Ray reserves"""

    def chosen(self) -> Engine:
        """Return where the runs are trained."""
        from deepsup.trainer.studies import Engine

        return Engine(self.engine, self.jobs, self.cpus, self.gpus, self.address)
