"""A config -> a run: trained, recorded, and gone on with wherever it was stopped."""

import dataclasses
import logging
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from deepsup.config import Config
from deepsup.data import Part
from deepsup.errors import DivergedError, RunError
from deepsup.insight import Measurement, layers_facts, measure
from deepsup.networks import WhiteningConv2d, fit_whitening
from deepsup.preprocess import fit, to_tensor
from deepsup.runs.begin import (
    FREE,
    MENDING,
    agreed_config,
    check_same,
    default_name,
    record_change,
    with_whole_path,
)
from deepsup.runs.environment import environment_now
from deepsup.runs.insight_files import record_knowledge
from deepsup.runs.model import save_model
from deepsup.runs.run import Run
from deepsup.runs.run_data import data_to_train, digest, whitening_images
from deepsup.runs.stop import Stopped, stopped_by_signals
from deepsup.runs.tensorboard import events_in
from deepsup.training import checkpoint
from deepsup.training.build import build_batches, build_net
from deepsup.training.distributed import Processes, joined
from deepsup.training.loop import Training
from deepsup.training.memory import kept_memory

logger = logging.getLogger("deepsup")


class Watch:
    """Someone who looks on: each method is called as the training goes; this one does nothing."""

    def started(self, training: Training, run: Run) -> None:
        """Be told that training begins or goes on."""

    def stepped(self, training: Training) -> None:
        """Be told of each step."""

    def epoch_ended(self, record: dict[str, Any]) -> None:
        """Be told of each epoch: its record as in metrics.jsonl."""


def train(
    config: Config | None = None,
    out: str | os.PathLike[str] | None = None,
    *,
    resume: bool = False,
    watch: Watch | None = None,
) -> Run:
    """Train one net and return its run folder.

    config: what to train; by default, and with ``resume`` where the run has its own, all knobs' defaults.
    out: the run's folder; default ``runs/`` and a name out of the config.
    resume: go on where the run was stopped; start it if there is none. After a divergence, lr, head_lr and alpha may
        be others than before.
    """
    config = None if config is None else with_whole_path(config)
    run = Run(out if out is not None else Path("runs") / default_name(config or Config()))
    began = run.exists
    config = agreed_config(run, config, resume)
    if run.finished and not (run.result.get("limited") and limit_of(config) > run.result["steps"]):
        logger.info("%s has ended; nothing is left to train", run.folder)
        return run
    if resume:
        logger.info("%s %s", "going on with" if began else "starting", run.folder)
    with joined(config.device) as processes:
        Experiment(config, run, processes, watch or Watch()).go()
    return run


def limit_of(config: Config) -> float:
    """Return how many steps a run may take."""
    return float("inf") if config.limit_steps is None else config.limit_steps


class Experiment:
    """One run: it knows every stage."""

    def __init__(self, config: Config, run: Run, processes: Processes, watch: Watch) -> None:
        self.config, self.run, self.processes, self.watch = config, run, processes, watch
        self.data, self.split = data_to_train(run, config)
        self.normalize = fit(config.normalize, self.data)
        random.seed(config.seed)
        np.random.seed(config.seed)  # noqa: NPY002 - a network of the user's own may draw from it
        torch.manual_seed(config.seed)
        net = build_net(config, len(self.data.classes), self.data.shape)
        if any(isinstance(layer, WhiteningConv2d) for layer in net.modules()):
            fit_whitening(net.trunk, self.normalize(to_tensor(whitening_images(config, self.data.train))))
        torch.manual_seed(1_000_003 * (config.seed + 1) + processes.rank)  # each process its own dropout
        self.training = Training(config, net, build_batches(config, self.data, self.normalize, processes), processes)
        self.data_digest = digest(self.data)
        self.seconds = 0.0
        self._saved_at, self._began = time.monotonic(), time.monotonic()

    def go(self) -> None:
        """Train to the end, or to the next signal."""
        self.start()
        with self.divergence_recorded(), stopped_by_signals() as stop, self.events() as events, kept_memory():
            for epoch in self.training.epochs(lambda: self.after_step(stop)):
                record = dataclasses.asdict(epoch) | self.judged(epoch.epoch) | self.changed(epoch.epoch)
                if self.processes.first:
                    self.run.add_metrics(record)
                    events(record)
                self.watch.epoch_ended(record)
                self.after_step(stop)
            self.save()  # what comes now takes time too, and must not cost the last epochs
        self.finish()

    def start(self) -> None:
        """Make the run folder, or restore the newest checkpoint in it."""
        held = checkpoint.newest_sound(self.run.checkpoints)
        if held is not None:
            self.restore(*held)
        if self.processes.first:
            environment = environment_now() | {
                "cpu": torch.backends.cpu.get_cpu_capability(),
                "threads": torch.get_num_threads(),
                "processes": self.processes.world,
            }
            record_change(self.run, self.config, self.training.epoch, self.training.iteration)
            self.run.create(self.config, environment)
            self.run.forget_divergence()
            if self.split is not None:
                self.run.write_json("split.json", self.split.to_dict())
            self.run.keep_metrics(self.training.epoch)
        self.watch.started(self.training, self.run)

    def restore(self, path: Path, state: dict[str, Any]) -> None:
        """Go back to a checkpoint of this config and these data."""
        try:
            held = Config.recorded(state["config"], str(path))  # an older one has fewer knobs
            changed = {key for change in self.run.changes for key in change["changed"]}
            free = FREE | changed | (MENDING if self.run.diverged is not None else set())
            check_same(self.run, self.config.to_dict(), held.to_dict(), free)
            if state["data"] != self.data_digest:
                raise RunError(
                    f"{self.run.folder} was begun with other training images or classes than {self.config.data} "
                    f"holds now; expected the same; bring them back, or choose another --out"
                )
            self.training.restore(state)
            self.seconds = state["seconds"]
        except Exception as error:  # a checkpoint of a stranger can hold anything
            if isinstance(error, RunError):
                raise
            reason = " ".join(str(error).split())[:200]
            raise RunError(f"{path} does not fit the run ({reason}); has the network changed since?") from error

    def after_step(self, stop: list[int]) -> None:
        """Save where it is time to; leave where a signal asked for it."""
        self.watch.stepped(self.training)
        signalled = self.processes.any(bool(stop))
        if signalled or self.due():
            self.save()
        if signalled:
            raise Stopped

    def due(self) -> bool:
        """Whether it is time for a checkpoint, in all processes alike."""
        config, training = self.config, self.training
        if config.checkpoint_steps is not None and training.iteration % config.checkpoint_steps == 0:
            return True
        return self.processes.any(time.monotonic() - self._saved_at >= 60 * config.checkpoint_minutes)

    def save(self) -> None:
        """Write a checkpoint; weights that are no numbers are never written."""
        training = self.training
        if not all(bool(parameter.isfinite().all()) for parameter in training.net.parameters()):
            raise training.diverged("a weight is not finite", training.optimizer.param_groups[0]["lr"])
        state = training.state() | {
            "seconds": self.elapsed(),
            "classes": list(self.data.classes),
            "shape": list(self.data.shape),
            "data": self.data_digest,
            "normalize": self.normalize.state(),
        }
        if self.processes.first:
            checkpoint.save(checkpoint.step_path(self.run.checkpoints, training.iteration), state)
            checkpoint.keep_last(self.run.checkpoints, self.config.keep)
        self._saved_at = time.monotonic()

    def judged(self, epoch: int) -> dict[str, Any]:
        """Return the validation error, and the test error where it is to be recorded; keep the best weights."""
        judged: dict[str, Any] = {}
        every = self.config.validate_every
        if self.data.validation is not None and every and (epoch + 1) % every == 0:
            errors = self.errors(self.data.validation)
            judged = {"validation_error": errors[0], "validation_companions": errors[1]}
            if self.training.judge(epoch, errors[0]) and self.processes.first:
                checkpoint.save(self.run.checkpoints / "best.pt", {"net": self.training.trained.state_dict()})
        every = self.config.test_every
        if every and (epoch + 1) % every == 0:
            measured = self.measured(self.data.test) if self.processes.first else None
            judged["test_error"], judged["test_companions"] = self.shared_errors(measured)
            if measured is not None:
                judged["test_layers"] = layers_facts(measured)
        return judged

    def changed(self, epoch: int) -> dict[str, Any]:
        """Return what was changed within an epoch, after a divergence."""
        changes = [change for change in self.run.changes if change["epoch"] == epoch]
        return {"changes": changes} if changes else {}

    @contextmanager
    def divergence_recorded(self) -> Iterator[None]:
        """Leave a record of a divergence in the run, and say how to go on."""
        try:
            yield
        except DivergedError as error:
            self.run.write_json("diverged.json", {"failed": str(error), "config": self.config.to_dict()})
            raise DivergedError(f"{error}; {self.remedy()}") from error

    def remedy(self) -> str:
        """Return what to do after a divergence."""
        if self.config.phases:
            return "the rates are those of the phases: lower them and start again in another folder (--out)"
        held = checkpoint.all_steps(self.run.checkpoints)
        where = f"goes on from step {int(held[-1].stem.split('-')[1])}" if held else "starts it again"
        return f"deepsup train --out {self.run.folder} --resume --lr {self.config.lr / 10:g} {where}"

    def errors(self, part: Part) -> tuple[float, dict[str, float]]:
        """Return the errors of output and companions on a part, the same in all processes."""
        return self.shared_errors(self.measured(part) if self.processes.first else None)

    def shared_errors(self, measured: Measurement | None) -> tuple[float, dict[str, float]]:
        """Return the errors that the first process has measured, in all processes."""
        taps = self.training.net.taps
        values = torch.zeros(1 + len(taps), dtype=torch.float64)
        if measured is not None:
            values = torch.tensor([measured.error, *measured.companion_errors.values()], dtype=torch.float64)
        error, *companions = self.processes.sum(values).tolist()
        return error, dict(zip(taps, companions, strict=True))

    def measured(self, part: Part) -> Measurement:
        """Return what the trained net says of a part."""
        return measure(self.training.trained, to_tensor(part.images), torch.from_numpy(part.labels), self.normalize)

    def events(self) -> AbstractContextManager[Callable[[dict[str, Any]], None]]:
        """Give what writes events, or does nothing where they are not asked for."""
        writing = self.config.tensorboard and self.processes.first
        return events_in(self.run.folder, self.training.epoch) if writing else nullcontext(lambda _: None)

    def elapsed(self) -> float:
        """Return the seconds of this run, those before a stop included."""
        return self.seconds + time.monotonic() - self._began

    def finish(self) -> None:
        """Read the test set, once, and leave the model and the result."""
        if self.config.select == "best":
            self.training.trained.load_state_dict(checkpoint.load(self.run.checkpoints / "best.pt")["net"])
        measured = self.measured(self.data.test) if self.config.test and self.processes.first else None
        error, companions = self.shared_errors(measured) if self.config.test else (None, {})
        validation = self.errors(self.data.validation)[0] if self.data.validation is not None else None
        if self.processes.first:
            self.leave(measured, error, companions, validation)
        self.processes.any(False)  # the others wait: nobody reads the result before it is written

    def leave(
        self, measured: Measurement | None, error: float | None, companions: dict[str, float], validation: float | None
    ) -> None:
        """Write the model, what its layers know, and the result."""
        save_model(
            self.run.model, self.training.trained, self.normalize, self.data.classes, self.data.shape, self.config
        )
        if measured is not None:
            record_knowledge(self.run, measured, self.data.test.images, self.data.classes)
        self.run.write_json(
            "result.json",
            {
                "error": error,
                "validation_error": validation,
                "companions": companions,
                "epochs": len(self.run.metrics),
                "steps": self.training.iteration,
                "limited": self.training.epoch < self.config.total_epochs,
                "seconds": round(self.elapsed(), 3),
                "train_images": len(self.data.train),
                "test_images": len(self.data.test),
                "best_epoch": self.training.best_epoch if self.training.best_epoch >= 0 else None,
            },
        )
