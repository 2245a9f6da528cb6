"""A net, an objective and batches -> a trained net; the same bits however often the training is resumed.

B batch, K classes.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from deepsup.errors import DeepsupError, DivergedError
from deepsup.insight import GradientStatistics
from deepsup.objective import DenseTargets, Loss
from deepsup.supervision import DeeplySupervised, DeepOutput, Shares
from deepsup.trainer.config import Config, Phase
from deepsup.trainer.data import IGNORED
from deepsup.trainer.training._batches import Batches
from deepsup.trainer.training._build import build_objective, build_optimizer
from deepsup.trainer.training._callbacks import Callback
from deepsup.trainer.training._distributed import Processes
from deepsup.trainer.training._hooks import hooks
from deepsup.trainer.training._precision import precision
from deepsup.trainer.training._rates import learning_rate, phase_at, set_rates


@dataclass(frozen=True)
class Epoch:
    """What one pass over the training images gave. Losses are means over images, errors percent, both in training."""

    epoch: int
    """From 0."""
    phase: int
    lr: float
    """At its last step."""
    loss: float
    """F, the whole objective."""
    output_loss: float
    error: float
    companion_losses: dict[str, float]
    companion_errors: dict[str, float]
    active: dict[str, float]
    """The fraction of steps at which each companion was above gamma and its alpha above 0."""
    gradient_means: dict[str, float]
    """Layer -> mean over the steps recorded; so are the next two. Defined in gradients.py."""
    gradient_variances: dict[str, float]
    gradient_norms: dict[str, float]
    companion_shares: dict[str, float]
    """Tap -> the share of the gradient at its output that comes from companions, mean over the same steps."""
    images_per_second: float
    seconds: float


@dataclass
class Training:
    """A training that can be stopped after any step and restored: ``state()`` is all of it."""

    config: Config
    net: DeeplySupervised
    batches: Batches
    processes: Processes = field(default_factory=Processes)
    folder: Path | None = None
    """The run folder, where there is one."""

    def __post_init__(self) -> None:
        self.optimizer = build_optimizer(self.config, self.net)
        ema: Any = get_ema_multi_avg_fn  # torch leaves it untyped
        decay = self.config.optimizer.ema
        self.average = AveragedModel(self.net, multi_avg_fn=ema(decay), use_buffers=True) if decay else None
        self.epoch = 0  # the epoch to go on with
        self.step = 0  # the step within it to go on with
        self.iteration = 0  # steps in all
        self.stop_requested = False  # a callback sets it to end the training after this step
        self.divisions = 0  # how often a stall has divided the rate
        self.best_error, self.best_epoch = float("inf"), -1
        self.sums = torch.zeros(4 + 3 * len(self.net.taps), dtype=torch.float64)
        self.gradients = GradientStatistics(self.net.trunk)
        self.shares = torch.zeros(len(self.net.taps), 2, dtype=torch.float64)  # steps, shares
        self.objective = build_objective(self.config, self.net)
        self._whole = [end - start for start, end in self.batches.bounds()]  # images of all processes, by step
        self._penalties = hooks(self.net.trunk, "training_penalty")
        self._after_step = hooks(self.net.trunk, "after_training_step")
        self._phase = -1
        self._forward: Callable[[Tensor], DeepOutput] = self.net

    @property
    def trained(self) -> DeeplySupervised:
        """The net to evaluate: the averaged one where there is one."""
        net = self.net if self.average is None else self.average.module
        assert isinstance(net, DeeplySupervised)
        return net

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do."""
        limit = self.config.run.limit_steps
        return self.epoch >= self.config.total_epochs or (limit is not None and self.iteration >= limit)

    @property
    def progress(self) -> float:
        """The share of training that is done, for the schedule of alpha: by step, or by epoch."""
        by_step = self.config.objective.decay_by == "step" and self.config.objective.schedule != "paper"
        done = self.epoch + (self.step / len(self.batches) if by_step else 0)
        return done / self.config.total_epochs

    def train(self, callbacks: Sequence[Callback] = ()) -> None:
        """Train to the end, or until a callback sets ``stop_requested``."""
        for callback in callbacks:
            callback.started(self)
        while not (self.finished or self.stop_requested):
            self.train_epoch(callbacks)
        for callback in callbacks:
            callback.ended(self)

    def train_epoch(self, callbacks: Sequence[Callback] = ()) -> None:
        """Train what is left of the current epoch."""
        index, phase, within = phase_at(self.config, self.epoch)
        self.enter(index, phase, new=within == 0 and self.step == 0)
        began, images = time.perf_counter(), 0
        for x, y in islice(self.batches.epoch(self.epoch), self.step, None):
            lr = self.train_step(phase, within, x, y)
            images += self._whole[self.step]
            self.step, self.iteration = self.step + 1, self.iteration + 1
            if self.step == len(self.batches) or self.finished:
                break
            for callback in callbacks:
                callback.step_ended(self)
            if self.stop_requested:
                return
        seconds = time.perf_counter() - began
        record = asdict(self.summary(index, lr, images / max(seconds, 1e-9), seconds))
        if self.step == len(self.batches):  # otherwise limit_steps cut the epoch short; a higher limit continues it
            self.epoch, self.step = self.epoch + 1, 0
            self.sums.zero_()
            self.gradients.sums.zero_()
            self.shares.zero_()
        for callback in callbacks:
            callback.epoch_ended(self, record)
        for callback in callbacks:
            callback.step_ended(self)

    def enter(self, index: int, phase: Phase, new: bool) -> None:
        """Make ready for a phase: who is trained, through which wrappers, and with what momentum."""
        if index == self._phase:
            return
        self._phase = index
        if new and phase.reset_momentum:
            self.optimizer.state.clear()
        for parameter in self.net.heads.parameters():
            parameter.requires_grad_(phase.companions)
        net = self.net if phase.companions else DeeplySupervised(self.net.trunk, {}, self.net.num_classes)
        self.objective = build_objective(self.config, net, phase.only)
        model: nn.Module = net
        if self.config.run.compile:
            model = torch.compile(model)  # type: ignore[assignment] # torch types it as a function
        if self.processes.world > 1:
            model = DistributedDataParallel(model, find_unused_parameters=phase.only is not None)
        self._forward = model

    def train_step(self, phase: Phase, within: int, x: Tensor, y: Tensor) -> float:
        """Take one step on this process's share of a batch; return the learning rate it was taken with."""
        config = self.config
        device = next(self.net.parameters()).device
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        done = (within + (self.step + 0.5) / len(self.batches)) / phase.epochs
        lr = learning_rate(config, phase, within, done, self.divisions)
        set_rates(self.optimizer, lr, self.iteration, config.optimizer.companion_lr_decay)
        self.net.train()
        measured = bool(config.run.gradient_every) and self.step % config.run.gradient_every == 0
        shares = self.net.note_shares(measured and not config.run.compile)
        with precision(config, self.net):
            output = self._forward(x)
        try:
            loss = self.objective(output, y, progress=self.progress)
        except DeepsupError as error:
            broken = not_finite(output)
            if broken is None:
                raise
            raise self.diverged(f"the scores of {broken} are not finite", lr) from error
        for penalty in (hook() for hook in self._penalties):
            loss = loss if penalty is None else loss._replace(total=loss.total + penalty)
        total = loss.total if phase.only is None else loss.companions[phase.only]
        if device.type == "cpu" and not total.isfinite():
            raise self.diverged(f"the loss is {total.item()}", lr)
        # a process whose share is larger than the others' counts for more: the average is that of the whole batch
        share = self.processes.world * len(y) / self._whole[self.step]
        self.optimizer.zero_grad()
        torch.autograd.backward(total * share)
        if measured:
            self.gradients.note()
            self.note_shares(shares)
        if config.optimizer.clip_norm:
            nn.utils.clip_grad_norm_(self.net.parameters(), config.optimizer.clip_norm)
        self.optimizer.step()
        for hook in self._after_step:
            hook()
        if self.average is not None:
            self.average.update_parameters(self.net)
        self.note(output, loss, y)
        return lr

    def note(self, output: DeepOutput, loss: Loss, y: Tensor) -> None:
        """Add this step to the sums of the epoch, without waiting for the device."""
        count = len(y)
        row = [torch.ones_like(loss.output_loss) * count, loss.total.detach() * count, loss.output_loss * count]
        row.append(wrong(output.scores, y))
        for tap in self.net.taps:
            if tap in output.companions:
                row.append(loss.companion_losses[tap] * count)
                row.append(wrong(output.companions[tap], y))
                row.append(loss.active[tap] * count)
            else:
                row += [torch.zeros_like(loss.output_loss)] * 3
        self.sums = self.sums.to(loss.total.device)
        self.sums += torch.stack([value.double() for value in row])

    def note_shares(self, shares: Shares) -> None:
        """Add the companions' shares of this step's gradient to the sums of the epoch."""
        for row, tap in enumerate(self.net.taps):
            if tap in shares.by_tap:
                self.shares = self.shares.to(shares.by_tap[tap].device)
                self.shares[row] += torch.stack([torch.ones_like(shares.by_tap[tap]), shares.by_tap[tap]]).double()

    def summary(self, phase: int, lr: float, images_per_second: float, seconds: float) -> Epoch:
        """Return the means over the epoch, over all processes."""
        count, total, output_loss, wrong, *companions = self.processes.sum(self.sums).tolist()
        taps = self.net.taps
        by_tap = {tap: companions[3 * i : 3 * i + 3] for i, tap in enumerate(taps)}
        return Epoch(
            epoch=self.epoch,
            phase=phase,
            lr=lr,
            loss=total / count,
            output_loss=output_loss / count,
            error=100 * wrong / count,
            companion_losses={tap: loss / count for tap, (loss, _, _) in by_tap.items()},
            companion_errors={tap: 100 * errors / count for tap, (_, errors, _) in by_tap.items()},
            active={tap: active / count for tap, (_, _, active) in by_tap.items()},
            **self.gradients.means(self.processes.sum(self.gradients.sums)),
            companion_shares={
                tap: share / steps
                for tap, (steps, share) in zip(taps, self.processes.sum(self.shares).tolist(), strict=True)
                if steps
            },
            images_per_second=images_per_second,
            seconds=seconds,
        )

    def judge(self, epoch: int, error: float) -> bool:
        """Take note of the validation error after an epoch; divide the rate after a stall. True if it is the best."""
        if error < self.best_error:
            self.best_error, self.best_epoch = error, epoch
            return True
        optimizer = self.config.optimizer
        if optimizer.anneal == "plateau" and (epoch - self.best_epoch) % optimizer.patience == 0:
            self.divisions += 1
        return False

    def diverged(self, what: str, lr: float) -> DivergedError:
        """Say at which step the training broke and what to lower."""
        alphas = dict.fromkeys(self.objective.alpha.values())
        alpha = f" or alpha ({' '.join(f'{each:g}' for each in alphas)})" if alphas else ""
        return DivergedError(
            f"training diverged at epoch {self.epoch}, step {self.step} ({self.iteration} steps in all): {what}; lower "
            f"lr (now {lr:.3g}){alpha}"
        )

    def state(self) -> dict[str, Any]:
        """Return all that going on needs, as plain types and tensors."""
        return {
            "config": self.config.to_dict(),
            "net": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "counters": [self.epoch, self.step, self.iteration, self.divisions, self.best_epoch],
            "best_error": self.best_error,
            "sums": self.processes.sum(self.sums).clone(),
            "gradients": self.processes.sum(self.gradients.sums).clone(),
            "shares": self.processes.sum(self.shares).clone(),
            "random": [each.clone() for each in self.processes.gather(torch.get_rng_state())],
            "random_cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
            "random_python": _plain(random.getstate()),
            "random_numpy": [_plain_array(each) for each in np.random.get_state(legacy=True)],  # noqa: NPY002
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to what ``state`` returned."""
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.epoch, self.step, self.iteration, self.divisions, self.best_epoch = state["counters"]
        self.best_error = state["best_error"]
        # the sums of all processes go on in the first one
        self.sums = state["sums"].clone() if self.processes.first else torch.zeros_like(state["sums"])
        if self.processes.first and "gradients" in state:  # older checkpoints have none
            self.gradients.sums = state["gradients"].clone()
            self.shares = state.get("shares", self.shares).clone()
        generators = state["random"]
        torch.set_rng_state(generators[self.processes.rank % len(generators)])
        if torch.cuda.is_available() and state["random_cuda"]:
            torch.cuda.set_rng_state_all(state["random_cuda"])
        random.setstate(_tuples(state["random_python"]))
        np.random.set_state(tuple(state["random_numpy"]))  # noqa: NPY002 - that of the user's own networks


def wrong(scores: Tensor, y: Tensor) -> Tensor:
    """Return how many samples are misclassified; of masks, the sum of their shares of wrong pixels.

    Coarser scores are compared with the nearest pixels of the mask.
    """
    if scores.ndim == 2:
        return (scores.argmax(1) != y).sum()
    met = DenseTargets(y, None, None, "nearest").meet(scores)
    counted = met.labels != IGNORED
    missed = (scores.argmax(1) != met.labels) & counted
    return missed.sum() * len(y) / counted.sum().clamp(min=1)


def not_finite(output: DeepOutput) -> str | None:
    """Return the name of the first scores that are NaN or infinite."""
    named = {"the output": output.scores, **{f"companion {tap!r}": each for tap, each in output.companions.items()}}
    return next((name for name, scores in named.items() if not scores.isfinite().all()), None)


def _plain(value: Any) -> Any:
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _plain_array(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(each) for each in value) if isinstance(value, list) else value
