"""Runs on a Ray cluster: an existing one, or one that is started on this machine and ends with the study.

Whoever reaches a Ray cluster can run code on it, so one that is started here asks for a random token.

A run is a Ray task. Ray starts a task again, on another machine if need be, when its process or its machine dies; the
run then continues from its newest checkpoint. So the folder of the runs must be on a file system that all machines
share, and so must the data.
"""

from __future__ import annotations

import builtins
import logging
import os
import platform
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from deepsup.errors import ConfigError, DeepsupError, RunError, TrainingError, extras_named
from deepsup.trainer.studies._engine import Engine, Task, Work, Workers

RETRIES = 3
"""How often a run is placed again after its process was killed."""
WAIT = 5.0
"""Seconds in which a cluster has to answer; its health check, a process of its own, has six times as many."""
STORE = 100 * 2**20
"""Bytes of the object store of a cluster that is started here: jobs and results are small."""
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",  # no reports to the makers of Ray
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # a run without reserved GPUs sees what its machine has
    "RAY_worker_niceness": "0",  # Ray's 15 starves runs on a machine that does anything else
}
"""Of a cluster that is started here, unless the user has set it."""


class RayWorkers(Workers):
    """The processes of a Ray cluster."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        super().__init__(engine)
        self.folder = folder.absolute()
        self.running: set[Any] = set()

    def __enter__(self) -> Self:
        self.print = builtins.print  # Ray puts one of its own in its place
        self.ray = imported_ray(starts=self.engine.address is None)
        connect(self.ray, self.engine)
        try:
            check_resources(self.ray, self.engine)
            self.place = DriverPlace.of(self.folder)
        except BaseException:
            self.ray.shutdown()
            raise
        options = {"num_cpus": self.engine.threads, "num_gpus": self.engine.gpus, "max_retries": RETRIES}
        self.remote = self.ray.remote(**options)(work_there)
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self.running:
            with suppress(Exception):  # it ends now anyway
                self.ray.cancel(handle)  # as Ctrl-C: the run writes a checkpoint
        if self.running:
            with suppress(Exception):
                self.ray.wait(list(self.running), num_returns=len(self.running), timeout=2 * WAIT)
        self.place.leave()
        self.ray.shutdown()
        builtins.print = self.print

    def room(self) -> int:
        """Return the jobs, or how many runs the machines of the cluster can train at a time."""
        if self.engine.jobs is not None:
            return self.engine.jobs
        return max(1, sum(fits(machine, self.engine) for machine in machines(self.ray)))

    def submit(self, work: Work[Task], task: Task) -> Any:
        """Hand a task to Ray."""
        handle = self.remote.remote(work, task, self.engine.threads, self.place)
        self.running.add(handle)
        return handle

    def ended(self, handles: Sequence[Any]) -> Sequence[Any]:
        """Wait for the first to end."""
        done, _ = self.ray.wait(list(handles), num_returns=1)
        return list(done)

    def result(self, handle: Any) -> Any:
        """Return the result; an error of ours is raised as it was there."""
        from ray import exceptions

        self.running.discard(handle)
        try:
            answer = self.ray.get(handle)
        except exceptions.RayTaskError as error:
            cause = getattr(error, "cause", error)
            if isinstance(cause, ImportError):
                raise TrainingError(
                    f"a machine of the cluster cannot run deepsup ({cause}); install the same version on all of them"
                ) from error
            raise cause from error
        except exceptions.RayError as error:
            raise TrainingError(
                f"a run was killed {RETRIES + 1} times, perhaps for lack of memory, or the cluster is gone "
                f"({type(error).__name__}); finished runs and checkpoints are kept: give the same command again"
            ) from error
        if isinstance(answer, DeepsupError):
            raise answer
        return answer


@dataclass(frozen=True)
class DriverPlace:
    """What a process of the cluster needs to know about the driver: its folders, and a mark to recognise them by."""

    current: Path
    mark: Path
    data: str | None

    @staticmethod
    def of(folder: Path) -> DriverPlace:
        """Leave a mark in the folder of the runs."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            mark = folder / f".engine-{uuid4().hex}"
            mark.touch(exist_ok=False)
        except OSError as error:
            raise RunError(f"cannot write {folder}: {error.strerror}; choose another --out") from error
        return DriverPlace(Path.cwd(), mark, os.environ.get("DEEPSUP_DATA"))

    def enter(self) -> None:
        """Take the driver's place, on whatever machine this is."""
        if not self.mark.exists():
            raise RunError(
                f"{self.mark.parent} on {platform.node()} is not the folder of that name on the machine that started "
                f"the study; expected a file system that all machines share; choose another --out"
            )
        with suppress(OSError):  # only a network of the user's own needs it, and says so itself
            os.chdir(self.current)
        if self.data is not None:
            os.environ["DEEPSUP_DATA"] = self.data

    def leave(self) -> None:
        """Remove the mark."""
        with suppress(OSError):
            self.mark.unlink()


def work_there(work: Work[Task], task: Task, threads: int, place: DriverPlace) -> Any:
    """Do the work in a process of the cluster; errors of ours are values, which Ray does not dress up."""
    try:
        place.enter()
        return work(task, threads, True)
    except DeepsupError as error:
        return error


def imported_ray(starts: bool) -> Any:
    """Return the package ray, or say how to install it; for a cluster that ``starts`` here, with a token of its own."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if starts and "ray" not in sys.modules and "RAY_AUTH_MODE" not in os.environ:  # Ray reads them when it is imported
        os.environ["RAY_AUTH_MODE"] = "token"
        if "RAY_AUTH_TOKEN_PATH" not in os.environ:
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    with extras_named("--engine ray"):
        import ray
    return ray


def connect(ray: Any, engine: Engine) -> None:
    """Connect to the cluster, or start one with the cores of this machine."""
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False}
    with signals_kept(), errors_named(engine.address):
        if engine.address is not None:
            check_answers(engine.address)
            ray.init(address=engine.address, **quiet)
        else:
            cpus = engine.threads * engine.jobs if engine.jobs else max(os.cpu_count() or 1, engine.threads)
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, object_store_memory=STORE, **quiet)


@contextmanager
def signals_kept() -> Iterator[None]:
    """Keep the answers to signals: Ray sets its own when it starts."""
    main_thread = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)} if main_thread else {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def errors_named(address: str | None) -> Iterator[None]:
    """Turn a failed connection into one line."""
    try:
        yield
    except DeepsupError:
        raise
    except (Exception, SystemExit) as error:  # Ray ends the process when its own time is over
        reason = " ".join(str(error).split())[:150]
        where = "cannot start Ray on this machine" if address is None else f"no Ray cluster at {address}"
        raise TrainingError(f"{where} ({reason}); {REMEDY}") from error


REMEDY = "expected --address HOST:PORT of a running cluster (ray start --head), auto, or none to start one here"


def check_answers(address: str) -> None:
    """Refuse an address at which no cluster answers soon; Ray itself would wait for minutes."""
    if address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ConfigError(f"address={address!r}; {REMEDY}")
    try:
        socket.create_connection((host, int(port)), timeout=WAIT).close()
    except OSError as error:
        raise TrainingError(f"no Ray cluster at {address} ({error.strerror or error}); {REMEDY}") from error
    if not address.startswith("ray://"):
        check_health(address)


def check_health(address: str) -> None:
    """Refuse something else that listens there."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        done = subprocess.run(command, timeout=6 * WAIT, capture_output=True, text=True)
    except subprocess.TimeoutExpired as error:
        raise TrainingError(f"what listens at {address} does not answer as a Ray cluster; {REMEDY}") from error
    if "AuthenticationError" in done.stderr:
        raise TrainingError(
            f"the Ray cluster at {address} refuses this machine: its token is missing or incorrect; set RAY_AUTH_MODE "
            f"to token and RAY_AUTH_TOKEN_PATH to the file of the token, as on the machines of the cluster"
        )
    if done.returncode:
        why = " ".join((done.stderr.strip().splitlines() or ["no reason given"])[-1].split())[:200]
        raise TrainingError(f"the Ray cluster at {address} cannot be used ({why}); {REMEDY}")


def machines(ray: Any) -> list[dict[str, float]]:
    """Return the resources of every machine of the cluster that is alive."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def fits(machine: dict[str, float], engine: Engine) -> int:
    """Return how many runs a machine can train at a time."""
    by_cpu = machine.get("CPU", 0) // engine.threads
    return int(min(by_cpu, machine.get("GPU", 0) // engine.gpus) if engine.gpus else by_cpu)


def check_resources(ray: Any, engine: Engine) -> None:
    """Refuse runs that no machine has room for: Ray would wait for one for ever."""
    cluster = machines(ray)
    if not any(fits(machine, engine) for machine in cluster):
        most = ", ".join(
            f"{machine.get('CPU', 0):g} CPUs and {machine.get('GPU', 0):g} GPUs" for machine in cluster[:4]
        )
        raise TrainingError(
            f"a run needs {engine.threads} CPUs and {engine.gpus:g} GPUs, and no machine of the cluster has so many "
            f"(they have {most or 'none'}); give fewer --cpus or --gpus"
        )
