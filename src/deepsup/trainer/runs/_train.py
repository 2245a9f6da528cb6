"""A config -> a run: trained, recorded, and continued wherever it was stopped."""

import logging
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from deepsup.errors import ConfigError, DivergedError, WriteError, extras_named
from deepsup.insight import DenseMeasurement, Measurement
from deepsup.supervision import DeeplySupervised
from deepsup.trainer.config import Config
from deepsup.trainer.data import Dataset
from deepsup.trainer.preprocess import fit, to_tensor
from deepsup.trainer.runs._dense_files import write_scenes
from deepsup.trainer.runs._environment import environment_now
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.runs._insight_files import write_insight
from deepsup.trainer.runs._lock import owned
from deepsup.trainer.runs._model import save_model
from deepsup.trainer.runs._run import Run
from deepsup.trainer.runs._run_data import data_to_train, digest, images_to_fit
from deepsup.trainer.runs._start_or_resume import (
    config_to_train,
    default_name,
    record_change,
    record_surroundings,
    with_whole_names,
)
from deepsup.trainer.runs._starting_weights import start_trunk
from deepsup.trainer.runs.callbacks import (
    Checkpointing,
    Measuring,
    MetricsFile,
    Snapshots,
    StopOnSignal,
    TensorBoard,
)
from deepsup.trainer.training import (
    Callback,
    Processes,
    Training,
    answering,
    bfloat16_on,
    build_batches,
    build_net,
    device_of,
    hooks,
    joined,
    kept_memory,
    measured_in,
    precision_of,
    settle_layers,
    settle_precision,
)
from deepsup.trainer.training import _checkpoint as checkpoint

logger = logging.getLogger("deepsup")


@extras_named("deepsup.train")
def train(
    config: Config | None = None,
    out: str | os.PathLike[str] | None = None,
    *,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    keep_memory: bool = False,
) -> Run:
    """Train one net and return its run.

    config: what to train; default: all settings' defaults, or with ``resume`` the config of the run.
    out: the run folder; default: ``runs/`` and a name made from the config.
    resume: continue the run where it was stopped; start it if there is none. After a divergence, lr, companion_lr and
        alpha may differ from before.
    callbacks: what to call between steps and epochs, in this order.
    keep_memory: have malloc keep freed memory while training, in the whole process; faster on the CPU.
    """
    config = None if config is None else with_whole_names(config)
    run = Run(out if out is not None else Path("runs") / default_name(config or Config()))
    to_train = config_to_train(run, config, resume)
    if not ended(run, to_train):
        with on_error_resume(), joined(device_of(to_train).type) as processes, owned(run.folder, processes):
            began, to_train = run.exists, config_to_train(run, config, resume)  # another process may have been here
            processes.any(False)  # all have read the folder before the first process writes to it
            if not ended(run, to_train):
                if resume:
                    logger.info("%s %s", "going on with" if began else "starting", run.folder)
                with kept_memory() if keep_memory else nullcontext():
                    RunTraining(to_train, run, processes).train(callbacks)
    return run


@contextmanager
def on_error_resume() -> Iterator[None]:
    """Say, where a file cannot be written, that nothing is lost."""
    try:
        yield
    except WriteError as error:
        error.again = "continue with --resume"
        raise


def ended(run: RunFolder, config: Config) -> bool:
    """Whether nothing is left to train; a run that its limit ended goes on under a higher one."""
    if not run.finished:
        return False
    limit = float("inf") if config.run.limit_steps is None else config.run.limit_steps
    if run.result.get("limited") and limit > run.result["steps"]:
        return False
    logger.info("%s has ended; nothing is left to train", run.folder)
    return True


class RunTraining:
    """Trains one run in its folder: builds all parts, restores, trains, writes the model and the result."""

    def __init__(self, config: Config, run: RunFolder, processes: Processes) -> None:
        config = settle_precision(config, processes)
        self.run, self.processes = run, processes
        self.data, self.split = data_to_train(run, config)
        self.normalize = fit(config.data.normalize, self.data)
        random.seed(config.run.seed)
        np.random.seed(config.run.seed)  # noqa: NPY002 - a network of the user's own may draw from it
        torch.manual_seed(config.run.seed)
        net = build_net(config, len(self.data.classes), self.data.shape)
        check_kind(config, self.data, net)
        answering(config, net)  # it refuses views of images with masks
        for fit_images in hooks(net.trunk, "fit_images"):
            fit_images(self.normalize(to_tensor(images_to_fit(config, self.data.train))))
        start = start_trunk(net, config, begun=bool(checkpoint.all_steps(run.checkpoints)))
        torch.manual_seed(1_000_003 * (config.run.seed + 1) + processes.rank)  # each process its own dropout
        self.config = config = settle_layers(config, net, self.data.shape, processes)
        batches = build_batches(config, self.data, self.normalize, processes)
        self.training = Training(config, net, batches, processes, run.folder)
        self.measuring = Measuring(run, self.data, self.normalize)
        facts = {"data": digest(self.data)} | ({} if start is None else {"start": start})
        self.checkpointing = Checkpointing(run, facts)

    def train(self, callbacks: Sequence[Callback] = ()) -> None:
        """Train to the end, or to the next signal."""
        self.checkpointing.restore(self.training)
        first = self.processes.first
        if first:
            self.prepare_folder()
        with self.divergence_recorded(), StopOnSignal() as stop, closing(TensorBoard(self.run.folder)) as events:
            files: list[Callback] = [MetricsFile(self.run)] if first else []
            files += [events] if first and self.config.run.tensorboard else []
            if first and self.config.run.snapshots:
                files.append(Snapshots(self.run, self.config.run.snapshots, self.config.total_epochs))
            # an epoch is measured, then recorded, then saved: a crash in between is repaired when the run is resumed
            self.training.train([self.measuring, *files, *callbacks, self.checkpointing, stop])
        if self.training.stop_requested:
            stop.answer()
        self.finish()

    def prepare_folder(self) -> None:
        """Make the run folder, or bring it in line with the checkpoint that was restored."""
        environment = environment_now() | {
            "cpu": torch.backends.cpu.get_cpu_capability(),
            "threads": torch.get_num_threads(),
            "processes": self.processes.world,
            "precision": precision_of(self.config),
        }
        self.warn_of_slowness()
        record_change(self.run, self.config, self.training.epoch, self.training.iteration)
        record_surroundings(self.run, environment, self.training.epoch, self.training.iteration)
        self.run.create(self.config, environment)
        self.run.forget_divergence()
        if self.split is not None:
            self.run.write_json("split.json", self.split.to_dict())

    def warn_of_slowness(self) -> None:
        """Say if this run's precision is slow on this machine: a run that was begun elsewhere keeps its own."""
        here = bfloat16_on(device_of(self.config).type)
        if self.config.run.amp == "on" and not here.fast:
            logger.warning("%s trains in bfloat16, which is slow here: %s; --amp off trains a new run in float32",
                           self.run.folder, here.why)  # fmt: skip

    @contextmanager
    def divergence_recorded(self) -> Iterator[None]:
        """Leave a record of a divergence in the run, and say how to continue."""
        try:
            yield
        except DivergedError as error:
            self.run.write_json("diverged.json", {
                "failed": str(error), "config": self.config.to_dict(), "seconds": round(self.checkpointing.seconds, 3),
            })  # fmt: skip
            raise DivergedError(f"{error}; {self.remedy()}") from error

    def remedy(self) -> str:
        """Return what to do after a divergence."""
        if self.config.run.phases:
            return "the rates are those of the phases: lower them and start again in another folder (--out)"
        saved = checkpoint.all_steps(self.run.checkpoints)
        where = f"goes on from step {int(saved[-1].stem.split('-')[1])}" if saved else "starts it again"
        return f"deepsup train --out {self.run.folder} --resume --lr {self.config.optimizer.lr / 10:g} {where}"

    def finish(self) -> None:
        """Read the test set, once, and write the model and the result."""
        training, measuring = self.training, self.measuring
        if self.config.run.select == "best" and training.best_epoch >= 0:  # otherwise no epoch was judged
            training.trained.load_state_dict(checkpoint.load(self.run.checkpoints / "best.pt")["net"])
        measured = (
            measuring.measure(training, self.data.test) if self.config.run.test and self.processes.first else None
        )
        error, companions = measuring.share(training, measured) if self.config.run.test else (None, {})
        validation = self.data.validation
        validation_error = measuring.errors(training, validation)[0] if validation is not None else None
        if self.processes.first:
            model, data = self.run.model, self.data
            save_model(model, training.trained, self.normalize, data.classes, data.shape, self.config)
            if isinstance(measured, Measurement):
                write_insight(self.run, measured, data.test.images, data.classes)
            errors = {"error": error, "validation_error": validation_error, "companions": companions}
            if isinstance(measured, DenseMeasurement):
                errors |= write_scenes(self.run, measured, data.test.images, data.classes)
            self.run.write_json("result.json", errors | self.counts())
        self.processes.any(False)  # the others wait: nobody reads the result before it is written

    def counts(self) -> dict[str, Any]:
        """Return what ``result.json`` says besides the errors."""
        training = self.training
        return {
            "epochs": self.run.epochs,
            "steps": training.iteration,
            "limited": training.epoch < self.config.total_epochs,
            "seconds": round(self.checkpointing.seconds, 3),
            "train_images": len(self.data.train),
            "test_images": len(self.data.test),
            "tta": self.config.run.tta,
            "measured_in": measured_in(self.config),
            "best_epoch": training.best_epoch if training.best_epoch >= 0 else None,
        } | {key: value for key, value in self.checkpointing.facts.items() if key == "start"}


def check_kind(config: Config, data: Dataset, net: DeeplySupervised) -> None:
    """Refuse masks for a network that classifies images, and labels for one that scores every pixel."""
    if data.train.dense == net.dense:
        return
    labels = "a mask per image" if data.train.dense else "one label per image"
    gives = "scores of every pixel" if net.dense else "one set of scores per image"
    remedy = "--network unet-small" if data.train.dense else "--data digits-scenes, or a folder of images and masks"
    raise ConfigError(
        f"{data.name} has {labels}, but {config.network.name} gives {gives}; expected both of one kind; give {remedy}"
    )
