"""The paper's objective F of a supervised net's output and the labels, with its parts.

    F = P + Q
    P = |w_out|^2 + C L(scores, y)
    Q = sum_m alpha_m(t) [ |w_m|^2 + C l(scores_m, y) - gamma_m ]_+

B batch, K classes, m a companion. L and l are means over the batch; the gate [.]_+ acts on that mean. With ``average``
every alpha_m is divided by the number of companions, and all terms by 1 + their sum: F is then a weighted mean.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed, nn

from deepsup.errors import ObjectiveError, nearest
from deepsup.objective.checks import (
    a_bool,
    a_label,
    are_class_numbers,
    at_least_0,
    check_labels,
    check_mean,
    check_output,
    check_weights,
)
from deepsup.objective.losses import LOSSES, LossFunction, find_loss
from deepsup.objective.schedules import Number, Schedule, factor_at, find_schedule
from deepsup.objective.untrained import UntrainedCompanions
from deepsup.supervision import DeeplySupervised, DeepOutput

# The paper and its authors' code differ (docs/supervision.md has the full table).
PAPER: dict[str, Any] = {"loss": "squared_hinge", "alpha": 1.0, "norms": True, "schedule": "paper", "average": False}
CAFFE: dict[str, Any] = {
    "loss": "squared_hinge_ovr", "alpha": 1.0, "norms": False, "schedule": "cut:0.25", "average": False,
}  # fmt: skip


class Loss(NamedTuple):
    """The objective of one batch and its parts: ``total == output + sum(companions.values())``."""

    total: Tensor
    """F, to call ``backward`` on."""
    output: Tensor
    """P: |w_out|^2 + C L; with ``average`` divided like the total."""
    companions: dict[str, Tensor]
    """The terms of Q: alpha_m(t) [|w_m|^2 + C l - gamma_m]_+, divided likewise; exactly 0 if not active."""
    active: dict[str, Tensor]
    """Whether each companion contributes: its term is above gamma and its alpha above 0."""
    output_loss: Tensor
    """L alone, detached: no |w|^2, no C."""
    companion_losses: dict[str, Tensor]
    """l of each companion alone, detached: no |w|^2, C, gamma or alpha."""

    def __getattr__(self, name: str) -> Any:
        """Explain the most likely mistake, ``loss.backward()``."""
        raise AttributeError(f"a Loss has no {name!r}; its scalar is loss.total, e.g. loss.total.backward()")


class Objective:
    """The paper's objective for a supervised net. Call it with the net's output and the labels; it returns a ``Loss``.

    The defaults (softmax, alpha 0.3 that decays to 0, the weighted mean of all losses, no |w|^2 terms) are made for the
    learning rate that the model already uses. ``Objective.paper(net)`` has the paper's settings and
    ``Objective.caffe(net)`` those of its authors' code.

    net: what ``supervise`` returned (also inside ``DistributedDataParallel`` or ``torch.compile``).
    loss: ``squared_hinge`` or ``hinge`` (multiclass, the paper's), ``squared_hinge_ovr`` or ``hinge_ovr``
        (one-vs-rest), ``softmax``, or any callable on scores [B,K] and labels [B, ...] that returns [B] or the mean.
    companion_loss: the same for the companions, one for all or a mapping from tap names; default: ``loss``.
    alpha, gamma: one number for all companions, one per tap in their order, or a mapping from tap names. A companion
        whose term is at or below its gamma adds exactly 0. Gamma is in units of |w_m|^2 + C l, where l is a
        mean over the batch.
    balance: the paper's C, in front of every loss.
    schedule: how alpha changes with the progress of training: ``constant``, ``paper``, ``linear``, ``cut:0.25``, or a
        callable.
    norms: whether the |w|^2 terms (biases included, as the paper absorbs them) are part of the objective; ``False``
        leaves weight decay to the optimizer, as the authors' code does.
    average: take the weighted mean of the output's term and of the mean of the companions' terms: with one alpha,
        (P + alpha mean Q_m) / (1 + alpha). The total is then as steep as one loss, however many companions there are,
        so the learning rate of the model fits as it does without them. ``False`` sums, as the paper does: P + alpha
        sum Q_m.
    ignore_index: samples with this label are ignored: means are over the others.
    """

    def __init__(
        self,
        net: nn.Module,
        loss: str | LossFunction = "softmax",
        *,
        companion_loss: str | LossFunction | Mapping[str, str | LossFunction] | None = None,
        alpha: float | Sequence[float] | Mapping[str, float] = 0.3,
        gamma: float | Sequence[float] | Mapping[str, float] = 0.0,
        balance: float = 1.0,
        schedule: str | Schedule = "linear",
        norms: bool = False,
        average: bool = True,
        ignore_index: int | None = None,
    ) -> None:
        self.net = supervised(net)
        taps = self.net.taps
        self.loss = find_loss(loss)
        given = per_tap("companion_loss", loss if companion_loss is None else companion_loss, taps)
        self.companion_loss = {name: find_loss(each) for name, each in given.items()}
        self.alpha = {name: at_least_0(f"alpha of {name!r}", a) for name, a in per_tap("alpha", alpha, taps).items()}
        self.gamma = {name: at_least_0(f"gamma of {name!r}", g) for name, g in per_tap("gamma", gamma, taps).items()}
        self.balance = at_least_0("balance", balance)
        self.schedule = find_schedule(schedule)
        self.norms = a_bool("norms", norms)
        self.average = a_bool("average", average)
        self.ignore_index = a_label("ignore_index", ignore_index)
        used = (self.loss, *self.companion_loss.values())
        self.named = tuple(name for name, each in LOSSES.items() if any(each is other for other in used))
        self.check_classes()
        self._means: list[LossFunction] = []  # scalar losses that are known to be means
        self._watch = UntrainedCompanions(self.net)

    @classmethod
    def paper(cls, net: nn.Module, **settings: Any) -> "Objective":
        """Return the objective as the paper writes it, with its decay of alpha; ``settings`` override."""
        return cls(net, **(PAPER | settings))

    @classmethod
    def caffe(cls, net: nn.Module, **settings: Any) -> "Objective":
        """Return the objective of the authors' Caffe code (companions cut off, no gamma); ``settings`` override."""
        return cls(net, **(CAFFE | settings))

    def __call__(
        self, output: DeepOutput, labels: Tensor, *, progress: Number | None = None, weights: Tensor | None = None
    ) -> Loss:
        """Return F of one batch and its parts.

        labels: [B], integers in 0 to K-1; with ``softmax`` also class probabilities [B,K]; with your own loss,
            anything it takes.
        progress: 0 at the start of training, 1 at its end; not needed by the schedule ``constant``.
        weights: [B], the weight of each sample in the means.
        """
        check_output(output)
        labels, weights = self.targets(output.scores, labels, weights)
        self.check_taps(output)
        factor = factor_at(self.schedule, progress)
        output_loss = self.mean_loss(self.loss, output.scores, labels, weights)
        losses = {
            name: self.mean_loss(self.companion_loss[name], scores, labels, weights)
            for name, scores in output.companions.items()
        }
        if not torch.compiler.is_compiling():
            self._watch.look(losses)
        p = self.margin_and_loss(self.net.output_layer if self.norms else None, output_loss)
        count = torch.as_tensor(len(output.scores), device=p.device) if weights is None else weights.sum()
        brackets = {
            name: self.margin_and_loss(self.net.head(name).classifier, loss) - self.gamma[name]
            for name, loss in losses.items()
        }
        above = dict(zip(brackets, above_0(list(brackets.values()), count), strict=True))
        parts = len(brackets) if self.average else 1
        alpha = {name: self.alpha[name] / parts * as_like(factor, p) for name in brackets}
        active = {name: alpha[name] * above[name] > 0 for name in brackets}
        share = 1 / (1 + sum(alpha.values())) if self.average else 1.0
        # put to zero, never skipped: every parameter keeps a gradient (of 0), as DDP demands
        q = {
            name: share * alpha[name] * torch.where(active[name], b, torch.zeros_like(b))
            for name, b in brackets.items()
        }
        p = share * p
        return Loss(
            total=p + sum(q.values()),
            output=p,
            companions=q,
            active=active,
            output_loss=output_loss.detach(),
            companion_losses={name: loss.detach() for name, loss in losses.items()},
        )

    def targets(self, scores: Tensor, labels: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return labels and weights for the losses, both checked; an ignored sample has the weight 0."""
        check_labels(labels, scores, self.named, self.ignore_index)
        if weights is not None:
            check_weights(weights, scores)
        if are_class_numbers(labels):
            labels = labels.long()
        if self.ignore_index is None:
            return labels, weights
        kept = labels != self.ignore_index
        return torch.where(kept, labels, 0), kept * (1.0 if weights is None else weights)

    def mean_loss(self, loss: LossFunction, scores: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
        """Return the (weighted) mean over the batch, in at least single precision; 0 if all samples are ignored."""
        scores = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
        each = loss(scores, labels)
        if isinstance(each, Tensor) and each.ndim == 0 and weights is None:
            self.check_scalar(loss, scores, labels, each)
            return each
        if not isinstance(each, Tensor) or each.shape != scores.shape[:1]:
            shape = f"shape {list(each.shape)}" if isinstance(each, Tensor) else f"a {type(each).__name__}"
            raise ObjectiveError(
                f"the loss returns {shape} for {len(scores)} samples; expected [B], one loss per sample (their mean "
                f"will do without sample weights and ignore_index); use reduction='none' and average each sample"
            )
        if weights is None:
            return each.mean()
        counted, total = torch.where(weights > 0, weights * each, 0.0), weights.sum()
        return counted.sum() / torch.where(total > 0, total, 1.0)

    def check_scalar(self, loss: LossFunction, scores: Tensor, labels: Tensor, once: Tensor) -> None:
        """Raise an error for a loss that sums over the batch; checked once per loss, never inside a compiled step."""
        if torch.compiler.is_compiling() or any(loss is each for each in self._means):
            return
        if check_mean(loss, scores, labels, once):
            self._means.append(loss)

    def margin_and_loss(self, classifier: Any, loss: Tensor) -> Tensor:
        """Return |w|^2 + C l, or only C l without the |w|^2 terms."""
        weighed = self.balance * loss
        if not self.norms or classifier is None:
            return weighed
        # by name: under a parametrization, parameters() returns other tensors
        weights: list[Tensor] = [classifier.weight] + ([] if classifier.bias is None else [classifier.bias])
        return sum((w.square().sum() for w in weights), weighed)

    def check_classes(self) -> None:
        """Raise an error for a net with one score per sample if a loss compares classes."""
        if self.net.num_classes == 1 and self.named:
            raise ObjectiveError(
                f"the loss {self.named[0]} with num_classes=1; expected at least two classes; build the model with "
                f"two, or give a callable such as torch.nn.functional.binary_cross_entropy_with_logits"
            )

    def check_taps(self, output: DeepOutput) -> None:
        """Raise an error for the output of another net, or of a stripped one."""
        if output.companions.keys() != self.alpha.keys():
            raise ObjectiveError(
                f"the output has companions at {list(output.companions)}, the objective is for {list(self.alpha)}; "
                f"expected the output of the same net; make an Objective for each net"
            )


def as_like(factor: Number, like: Tensor) -> Number:
    """Return a factor in the precision of the loss, so that the loss keeps it."""
    return factor.to(like) if isinstance(factor, Tensor) else factor


def above_0(brackets: list[Tensor], count: Tensor) -> list[Tensor]:
    """Whether each bracket of the batch is above zero; in distributed training the batch is that of all processes.

    ``count`` is the weight of this process's share of the batch.
    """
    if not brackets:
        return []
    value = torch.stack([bracket.detach() for bracket in brackets]) * count
    if torch.is_grad_enabled() and distributed.is_available() and distributed.is_initialized():
        distributed.all_reduce(value)  # the sign of the sum is the sign of the mean
    return list((value > 0).unbind())


def supervised(net: nn.Module) -> DeeplySupervised:
    """Return the supervised net inside the wrappers of DDP and torch.compile."""
    inner: Any = net
    while not isinstance(inner, DeeplySupervised):
        inner = getattr(inner, "module", None) or getattr(inner, "_orig_mod", None)
        if inner is None:
            raise ObjectiveError(
                f"net is a {type(net).__name__} without companions; expected what supervise(model, ...) returns"
            )
    return inner


def per_tap(what: str, given: Any, taps: tuple[str, ...]) -> dict[str, Any]:
    """Return tap name -> setting: one for all, one per tap in their order, or a mapping that names each tap."""
    if isinstance(given, list | tuple):
        if len(given) != len(taps):
            raise ObjectiveError(f"{what} has {len(given)} values for {len(taps)} taps ({', '.join(taps)})")
        return dict(zip(taps, given, strict=True))
    if not isinstance(given, Mapping):
        return dict.fromkeys(taps, given)
    for name in given:
        if name not in taps:
            raise ObjectiveError(f"{what} names {name!r}, which is not tapped; {nearest(str(name), taps)}")
    missing = [name for name in taps if name not in given]
    if missing:
        raise ObjectiveError(f"{what} has no value for {', '.join(missing)}; expected one for each tap, or one number")
    return dict(given)
