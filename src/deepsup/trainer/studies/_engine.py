"""Where many runs are trained: in this process, in several processes of this machine, or on a Ray cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Self, TypeVar

from deepsup.errors import ConfigError, TrainingError, nearest

Task = TypeVar("Task")
Work = Callable[[Task, int, bool], Any]
"""What to do: a task, the threads to train with, and whether the process is the work's own -> its result."""
ENGINES = ("local", "ray")


@dataclass(frozen=True)
class Engine:
    """How many runs to train at a time, and where. The last bits of a result depend on the threads per run only."""

    name: str = "local"
    """``local`` or ``ray``."""
    jobs: int | None = None
    """Runs at a time; None: 1, or as many as a Ray cluster has room for."""
    cpus: int | None = None
    """CPU cores and threads per run; None: this machine's cores divided by the jobs, at most OMP_NUM_THREADS, or 1 on
    an existing cluster."""
    gpus: float = 0.0
    """GPUs per run, which Ray reserves."""
    address: str | None = None
    """Of an existing Ray cluster; None: Ray is started on this machine."""

    def __post_init__(self) -> None:
        if self.name not in ENGINES:
            raise ConfigError(f"engine={self.name!r}; {nearest(self.name, ENGINES)}")
        for option, value, least in (("jobs", self.jobs, 1), ("cpus", self.cpus, 1), ("gpus", self.gpus, 0)):
            if value is not None and not value >= least:
                raise ConfigError(f"{option}={value}; expected at least {least}")
        if self.name != "ray" and (self.address is not None or self.gpus):
            given = f"address={self.address}" if self.address is not None else f"gpus={self.gpus:g}"
            raise ConfigError(f"{given} with engine={self.name}; it is for --engine ray")

    @property
    def threads(self) -> int:
        """Threads per run: ``cpus``, or a share of the cores, at most OMP_NUM_THREADS where that is set."""
        share = 1 if self.address else max(1, (os.cpu_count() or 1) // (self.jobs or 1))
        most = os.environ.get("OMP_NUM_THREADS", "")
        return self.cpus or (min(share, int(most)) if most.isdecimal() and int(most) else share)

    def options(self) -> list[str]:
        """Return the options of the command line that mean this engine."""
        words = ["--jobs", str(self.jobs or 1)] if self.jobs or self.name == "local" else []
        words += ["--engine", self.name] if self.name != "local" else []
        words += ["--address", self.address] if self.address else []
        words += ["--cpus", str(self.cpus)] if self.cpus else []
        return words + (["--gpus", f"{self.gpus:g}"] if self.gpus else [])

    def workers(self, folder: Path) -> Workers:
        """Return what trains runs in sub-folders of ``folder``: a context manager."""
        if self.name == "local":
            return LocalWorkers(self)
        from deepsup.trainer.studies._ray_workers import RayWorkers

        return RayWorkers(self, folder)


class Workers(AbstractContextManager["Workers"], ABC):
    """What trains runs. Tasks are taken one by one as there is room, so that a task may depend on earlier results."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def stream(self, work: Work[Task], tasks: Iterable[Task]) -> Iterator[tuple[Task, Any]]:
        """Do the work for all tasks; yield each task that has ended with its result, as they end."""
        source, running = iter(tasks), dict[Any, Task]()
        while True:
            for task in islice(source, max(0, self.room() - len(running))):
                running[self.submit(work, task)] = task
            if not running:
                return
            for handle in self.ended(list(running)):
                yield running.pop(handle), self.result(handle)

    @abstractmethod
    def room(self) -> int:
        """Return how many tasks may run at a time."""

    @abstractmethod
    def submit(self, work: Work[Task], task: Task) -> Any:
        """Start a task and return its handle."""

    @abstractmethod
    def ended(self, handles: Sequence[Any]) -> Sequence[Any]:
        """Wait until at least one task has ended; return the handles of those that have."""

    @abstractmethod
    def result(self, handle: Any) -> Any:
        """Return the result of a task that has ended, or raise its error."""


class LocalWorkers(Workers):
    """One job at a time in this process; for more, processes of their own."""

    executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self.room() > 1:
            self.executor = ProcessPoolExecutor(
                self.room(),
                mp_context=multiprocessing.get_context("spawn"),
                initializer=end_with_parent,
                initargs=(os.getpid(),),
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self.executor is not None:
            self.executor.shutdown(wait=True, cancel_futures=True)

    def room(self) -> int:
        """Return the number of jobs."""
        return self.engine.jobs or 1

    def submit(self, work: Work[Task], task: Task) -> Future[Any]:
        """Start a task; without processes, do it now."""
        if self.executor is not None:
            with killed_named():
                return self.executor.submit(work, task, self.engine.threads, True)
        future: Future[Any] = Future()
        future.set_result(work(task, self.engine.threads, False))
        return future

    def ended(self, handles: Sequence[Future[Any]]) -> Sequence[Future[Any]]:
        """Wait for the first to end."""
        done = wait(handles, return_when=FIRST_COMPLETED).done
        return [future for future in handles if future in done]

    def result(self, handle: Future[Any]) -> Any:
        """Return the result, or say that the process was killed."""
        with killed_named():
            return handle.result()


class killed_named(AbstractContextManager[None]):  # noqa: N801 - used like a function
    """Says what to do when a process of the pool was killed."""

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, BrokenProcessPool):
            raise TrainingError(
                "a process that trained was killed, perhaps for lack of memory; finished runs and checkpoints are "
                "kept: give the same command again to continue, with fewer --jobs if memory is short"
            ) from error


def end_with_parent(parent: int) -> None:
    """End this process when its parent has ended; a Ctrl-C is the parent's to answer."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=watch, daemon=True).start()
