"""The paper's objective F of a supervised net's output and the labels, with its parts.

    F = P + Q
    P = |w_out|^2 + C L(scores, y)
    Q = sum_m alpha_m(t) [ |w_m|^2 + C l(scores_m, y) - gamma_m ]_+

B batch, K classes, m a companion. L and l are means over the batch, of a dense model over all positions; the gate [.]_+
acts on that mean. With ``average`` every alpha_m is divided by the number of companions, and all terms by 1 + their
sum: F is then a weighted mean.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed, nn

from deepsup.errors import ObjectiveError, nearest
from deepsup.objective._alpha_rules import check_rule, draw, spread
from deepsup.objective._answers import Answering, Answers
from deepsup.objective._balance import balance_of
from deepsup.objective._checks import (
    at_least_0,
    check_mean,
    check_output,
    require_bool,
    require_count,
    require_label,
    require_shift,
)
from deepsup.objective._dense_checks import as_class_weights
from deepsup.objective._dense_means import dense_mean, weighted_mean
from deepsup.objective._dense_targets import TARGET_MODES, DenseTargets, TargetMode
from deepsup.objective._distillation import Distillation
from deepsup.objective._losses import DENSE_LOSSES, LOSSES, LossFunction, find_loss
from deepsup.objective._net_settings import by_resolution, default_alpha, per_tap, supervised
from deepsup.objective._presets import monai, nnunet
from deepsup.objective._schedules import Number, Schedule, factor_at, find_schedule, name_of
from deepsup.objective._token_samples import ignored_label, token_samples
from deepsup.objective._untrained import UntrainedCompanions
from deepsup.supervision import DeepOutput

HALF = (torch.float16, torch.bfloat16)
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

    The defaults are the paper's sum with softmax, alpha 0.5 that decays to 0, and no |w|^2 terms. With default
    companions they suit the learning rate that the model already uses: see ``Companion``. ``Objective.paper(net)`` has
    the objective as the paper prints it and ``Objective.caffe(net)`` that of its authors' code.

    net: what ``supervise`` returned (also inside ``DistributedDataParallel`` or ``torch.compile``).
    loss: ``squared_hinge`` or ``hinge`` (multiclass, the paper's), ``squared_hinge_ovr`` or ``hinge_ovr``
        (one-vs-rest), ``softmax`` (cross-entropy); for dense models also ``focal``, ``dice``, ``dice_ce`` (Dice plus
        softmax) and ``balanced_bce`` (HED's); or any callable on scores [B,K] and labels [B, ...] that returns [B] or
        the mean.
    companion_loss: the same for the companions, one for all or a mapping from tap names; default: ``loss``.
    alpha, gamma: one number for all companions, one per tap in their order, or a mapping from tap names. By default
        alpha is 0.5, and 0.1 at layers that return sequences (a transformer's tokens), which gain less. Alpha may also
        be ``"linear"`` (rising with the depth), ``"equal"``, ``"last-2"`` (the last two only) or ``"random"`` (a single
        companion per step, drawn from the progress, at as many times its weight as there are companions). A companion
        whose term is at or below its gamma adds exactly 0. Gamma is in units of |w_m|^2 + C l, where l is a mean over
        the batch.
    balance: the paper's C, in front of every loss; or ``softmax``: each loss gets the C with which its gradient at
        zero scores is as long as that of softmax, so that one learning rate suits all losses: 1 / 2K for the squared
        hinge, sqrt(K - 1) / 2K for the one-vs-rest one, twice these for the plain hinges, 1 for softmax. The number is
        ``objective.balance``.
    schedule: how alpha changes with the progress of training: ``constant``, ``paper``, ``linear``, ``cut:0.25``, or a
        callable of the progress.
    norms: whether the |w|^2 terms (biases included, as the paper absorbs them) are part of the objective; ``False``
        leaves weight decay to the optimizer, as the authors' code does.
    average: take the weighted mean of the output's term and of the mean of the companions' terms: with one alpha,
        (P + alpha mean Q_m) / (1 + alpha). ``False`` sums, as the paper does: P + alpha sum Q_m.
    ignore_index: samples, or positions of a dense model, with this label are ignored: means are over the others. For
        the tokens of a language model it is -100 by default.
    shift: the scores of a token are compared with the label so many tokens later: 1 for causal language models whose
        labels are their inputs.
    output_loss: a callable on all that the model returned and the labels: the model's own loss, in place of ``loss`` at
        the output, for example ``lambda raw, labels: raw.loss``. It returns the mean, or one number per sample.
    distill: the share of every companion's loss that is taken from the output's softmax instead of the labels, within
        0 and 1: the soft cross-entropy at ``distill_temperature``, times its square. The output is detached.
    targets: how labels of every position meet companions of a coarser resolution: ``probability`` (the shares of the
        classes in each cell), ``nearest`` (the label of its middle pixel), ``upsample`` (the scores are interpolated).
    class_weights: [K], the weight of a sample or position by its class; of Dice, the weight of each class.
    steps: how many training steps there will be, so that ``progress`` may be left out: each call in training mode that
        needs gradients is a step. ``objective.step`` is the count; set it to go on with a training.
    """

    def __init__(
        self,
        net: nn.Module,
        loss: str | LossFunction = "softmax",
        *,
        companion_loss: str | LossFunction | Mapping[str, str | LossFunction] | None = None,
        alpha: str | float | Sequence[float] | Mapping[str, float] | None = None,
        gamma: float | Sequence[float] | Mapping[str, float] = 0.0,
        balance: float | str = 1.0,
        schedule: str | Schedule = "linear",
        norms: bool = False,
        average: bool = False,
        ignore_index: int | None = None,
        distill: float = 0.0,
        distill_temperature: float = 2.0,
        targets: TargetMode = "probability",
        class_weights: Any = None,
        steps: int | None = None,
        shift: int = 0,
        output_loss: Callable[[Any, Any], Tensor] | None = None,
    ) -> None:
        self.net = supervised(net)
        taps = self.net.outputs
        self.loss = find_loss(loss)
        given = per_tap("companion_loss", loss if companion_loss is None else companion_loss, taps)
        self.companion_loss = {name: find_loss(each) for name, each in given.items()}
        self._alpha_rule = check_rule(alpha) if isinstance(alpha, str) else None
        alphas = {} if alpha is None or isinstance(alpha, str) else per_tap("alpha", alpha, taps)
        self._alpha = {name: at_least_0(f"alpha of {name!r}", a) for name, a in alphas.items()}
        self.gamma = {name: at_least_0(f"gamma of {name!r}", g) for name, g in per_tap("gamma", gamma, taps).items()}
        self.balance = balance_of(balance, self.loss, self.net.num_classes)
        self.companion_balance = {
            name: balance_of(balance, each, self.net.num_classes) for name, each in self.companion_loss.items()
        }
        self.schedule = find_schedule(schedule)
        self.norms = require_bool("norms", norms)
        self.average = require_bool("average", average)
        self.ignore_index = require_label("ignore_index", ignore_index)
        self.distill, self.distill_temperature = distill, distill_temperature
        self._distillation = Distillation(distill, distill_temperature)
        if targets not in TARGET_MODES:
            raise ObjectiveError(f"targets={targets!r}; {nearest(str(targets), TARGET_MODES)}")
        self.targets = targets
        self.class_weights = as_class_weights(class_weights, self.net.num_classes)
        self.steps, self.step = require_count("steps", steps), 0
        self.shift = require_shift(shift)
        self.output_loss = output_loss
        if output_loss is not None and not callable(output_loss):
            raise ObjectiveError(
                f"output_loss={output_loss!r}; expected a callable on the model's output and the labels"
            )
        self.net.keeps_raw |= output_loss is not None
        self.net.loss_weights = dict(self.alpha if self.net.shapes else self._alpha)
        used = (*([self.loss] if output_loss is None else []), *self.companion_loss.values())
        self.named = tuple(
            name for name, each in (LOSSES | DENSE_LOSSES).items() if any(each is other for other in used)
        )
        self.check_classes()
        self._means: list[LossFunction] = []  # scalar losses that are known to be means
        self._watch = UntrainedCompanions(self.net)

    @property
    def alpha(self) -> dict[str, float]:
        """The weight of each companion; by default it depends on the layers, which are known once the net has run."""
        if self._alpha_rule is not None:
            return spread(self._alpha_rule, default_alpha(self.net), self.net.order)
        return self._alpha or default_alpha(self.net)

    @classmethod
    def paper(cls, net: nn.Module, **settings: Any) -> "Objective":
        """Return the objective as the paper writes it, with its decay of alpha; ``settings`` override."""
        return cls(net, **(PAPER | settings))

    @classmethod
    def caffe(cls, net: nn.Module, **settings: Any) -> "Objective":
        """Return the objective of the authors' Caffe code (companions cut off, no gamma); ``settings`` override."""
        return cls(net, **(CAFFE | settings))

    @classmethod
    def nnunet(cls, net: nn.Module, **settings: Any) -> "Objective":
        """Return nnU-Net's weights: halved from resolution to resolution, the lowest 0, normalized; and its targets."""
        alpha = by_resolution(net, nnunet)
        given: dict[str, Any] = {
            "loss": "dice_ce",
            "alpha": {name: len(alpha) * each for name, each in alpha.items()},
            "average": True,
        }
        return cls(net, **(given | {"schedule": "constant", "targets": "nearest"} | settings))

    @classmethod
    def monai(cls, net: nn.Module, mode: str = "exp", **settings: Any) -> "Objective":
        """Return the sum that MONAI's ``DeepSupervisionLoss`` computes; mode: ``exp``, ``same`` or ``two``."""
        given: dict[str, Any] = {"loss": "dice", "alpha": by_resolution(net, monai(mode)), "average": False}
        return cls(net, **(given | {"schedule": "constant", "targets": "nearest"} | settings))

    def __call__(
        self, output: DeepOutput, labels: Tensor, *, progress: Number | None = None, weights: Tensor | None = None
    ) -> Loss:
        """Return F of one batch and its parts.

        labels: [B], integers in 0 to K-1; with ``softmax`` also class probabilities [B,K]; with your own loss,
            anything it takes. For dense scores [B,K,P]: class numbers [B,P] or [B,1,P], or class probabilities [B,K,P];
            for those of tokens [B,L,K]: class numbers [B,L], or class probabilities [B,L,K].
        progress: 0 at the start of training, 1 at its end; not needed with ``steps`` or by the schedule ``constant``.
        weights: [B], the weight of each sample in the means; for dense scores also [B,P], that of each position.
        """
        check_output(output)
        own = self.own_loss(output, labels)
        output, answers = self.answers(output, labels, weights)
        self.check_taps(output)
        count = len(output.scores) if answers.weights is None else answers.weights.sum()
        progress = self.next_progress() if progress is None else progress
        factor = factor_at(self.schedule, progress)
        output_loss = self.mean_loss(self.loss, output.scores, answers) if own is None else own
        losses = {
            name: self.mix_distillation(
                self.mean_loss(self.companion_loss[name], scores, answers), scores, output, answers
            )
            for name, scores in output.companions.items()
        }
        if not torch.compiler.is_compiling():
            self._watch.look(losses)
        p = self.margin_and_loss(self.net.output_layer if self.norms else None, output_loss, self.balance)
        brackets = {
            name: self.margin_and_loss(self.net.classifier(name), loss, self.companion_balance[name]) - self.gamma[name]
            for name, loss in losses.items()
        }
        above = dict(zip(brackets, above_0(list(brackets.values()), count), strict=True))
        parts = len(brackets) if self.average else 1
        alpha = {name: each / parts * as_like(factor, p) for name, each in self.alpha.items()}
        if self._alpha_rule == "random":
            alpha = {name: alpha[name] * one.to(p) for name, one in draw(progress, list(brackets)).items()}
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

    def __repr__(self) -> str:
        """Name the loss, the weights of the companions and how they decay."""
        names = {id(each): name for name, each in (LOSSES | DENSE_LOSSES).items()}
        loss = names.get(id(self.loss), getattr(self.loss, "__name__", type(self.loss).__name__))
        alphas = " or ".join(sorted({f"{each:g}" for each in self.alpha.values()})) or "none"
        many = len(self.net.outputs)
        words = [
            loss,
            f"{many} companion{'' if many == 1 else 's'}",
            f"alpha {alphas}",
            name_of(self.schedule).strip("'"),
        ]
        balances = sorted({f"{each:.4g}" for each in (self.balance, *self.companion_balance.values())})
        words += [] if balances == ["1"] else [f"balance {' or '.join(balances)}"]
        words += [] if self.steps is None else [f"step {self.step} of {self.steps}"]
        return f"Objective({', '.join(words)})"

    def next_progress(self) -> float | None:
        """Return the progress of training by the count of steps, and count this one if it trains."""
        if self.steps is None:
            return None
        progress = min(1.0, self.step / self.steps)
        if torch.is_grad_enabled() and self.net.training:
            self.step += 1
        return progress

    def mix_distillation(
        self, loss: Tensor, scores: Tensor, output: DeepOutput, answers: Answers | DenseTargets
    ) -> Tensor:
        """Return a companion's loss, mixed with that from the output's scores if there is distillation."""
        if not self.distill:
            return loss
        if isinstance(answers, DenseTargets):
            raise ObjectiveError(
                f"distill={self.distill:g} with scores at every position; expected one vector of scores per sample; "
                "use distill=0"
            )
        teacher = output.scores.float() if output.scores.dtype in HALF else output.scores
        return self._distillation.mixed(
            loss, self.mean_loss(self._distillation, scores, Answers(teacher, answers.weights))
        )

    def answers(
        self, output: DeepOutput, labels: Tensor, weights: Tensor | None
    ) -> tuple[DeepOutput, Answers | DenseTargets]:
        """Return the scores, those of tokens as samples, and what the losses compare them with."""
        ignore_index = self.ignore_index
        if self.net.tokens:
            ignore_index = ignored_label(ignore_index, labels, self.named)
            output, labels, weights = token_samples(output, labels, weights, self.shift, ignore_index)
        elif self.shift:
            raise ObjectiveError(
                f"shift={self.shift} with scores {list(output.scores.shape)}; expected those of tokens, [B,L,K]; leave "
                f"shift= out"
            )
        answering = Answering(self.named, ignore_index, self.class_weights, self.targets)
        if output.scores.ndim > 2:
            return output, answering.dense(labels, output, weights, self.net.full_size)
        self.check_classes()
        return output, answering.answers(labels, output.scores, weights)

    def own_loss(self, output: DeepOutput, labels: Any) -> Tensor | None:
        """Return the mean of ``output_loss`` on all that the model returned; None without one."""
        if self.output_loss is None:
            return None
        if output.raw is None:
            raise ObjectiveError(
                "output_loss gets what the model returned, and this output has not kept it; expected an output that "
                "the net gave after the objective was made; call the net again"
            )
        each = self.output_loss(output.raw, labels)
        if not isinstance(each, Tensor) or each.ndim > 1:
            shape = f"shape {list(each.shape)}" if isinstance(each, Tensor) else f"a {type(each).__name__}"
            raise ObjectiveError(f"output_loss returns {shape}; expected the mean, or one number per sample")
        if not each.is_floating_point():
            raise ObjectiveError(f"output_loss returns {each.dtype}; expected floating-point numbers, as a loss has")
        return each.mean()

    def mean_loss(self, loss: LossFunction, scores: Tensor, answers: Answers | DenseTargets) -> Tensor:
        """Return the (weighted) mean over the batch, in at least single precision; 0 if all samples are ignored."""
        scores = scores.float() if scores.dtype in HALF else scores
        if isinstance(answers, DenseTargets):
            return dense_mean(loss, scores, answers, self.class_weights, self.check_scalar)
        labels, weights = answers
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
        return weighted_mean(each, weights)

    def check_scalar(self, loss: LossFunction, scores: Tensor, labels: Tensor, once: Tensor) -> None:
        """Raise an error for a loss that sums over the batch; checked once per loss, never inside a compiled step."""
        if torch.compiler.is_compiling() or any(loss is each for each in self._means):
            return
        if check_mean(loss, scores, labels, once):
            self._means.append(loss)

    def margin_and_loss(self, classifier: Any, loss: Tensor, balance: float) -> Tensor:
        """Return |w|^2 + C l, or only C l without the |w|^2 terms."""
        weighed = balance * loss
        if not self.norms or classifier is None:
            return weighed
        # by name: under a parametrization, parameters() returns other tensors
        weights: list[Tensor] = [classifier.weight] + ([] if classifier.bias is None else [classifier.bias])
        return sum((w.square().sum() for w in weights), weighed)

    def check_classes(self) -> None:
        """Raise an error for a net with one score per sample if a loss compares classes."""
        if self.net.num_classes == 1 and self.named and (self.net.tokens or not self.net.dense):
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


def above_0(brackets: list[Tensor], count: float | Tensor) -> list[Tensor]:
    """Whether each bracket of the batch is above zero; in distributed training the batch is that of all processes.

    ``count`` is the weight of this process's share of the batch.
    """
    if not brackets:
        return []
    value = torch.stack([bracket.detach() for bracket in brackets]) * count
    if torch.is_grad_enabled() and distributed.is_available() and distributed.is_initialized():
        distributed.all_reduce(value)  # the sign of the sum is the sign of the mean
    return list((value > 0).unbind())
