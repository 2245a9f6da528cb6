"""A supervised net and thresholds in; out, a classifier whose samples leave at the first companion that is sure.

B batch, K classes, E exits: the companions that are switched on, in the order in which they run, then the output.
"""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from numbers import Real
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from deepsup.errors import SupervisionError, nearest
from deepsup.exits._chains import shape_example, simplify
from deepsup.exits._lean_head import LeanHead
from deepsup.exits._stages import Stage, compacted, cut
from deepsup.supervision import DeeplySupervised, Head, describe, scores_of

OUTPUT = "output"
Module = TypeVar("Module", bound=nn.Module)
Thresholds = Sequence[float | None] | Mapping[str, float | None]


class EarlyOutput:
    """What an ``EarlyExit`` returns. ``labels, confidences, exits = early(images)`` works too."""

    def __init__(self, scores: Tensor, exits: Tensor, names: tuple[str, ...], temperatures: Tensor) -> None:
        self.scores = scores
        """[B,K], those of the exit at which each sample left."""
        self.exits = exits
        """[B], the number of that exit: an index into ``names``."""
        self.names = names
        """The exits in the order in which they run; the last is ``"output"``."""
        self._temperatures = temperatures

    @cached_property
    def labels(self) -> Tensor:
        """The predicted classes, [B]."""
        return self.scores.argmax(1)

    @cached_property
    def confidences(self) -> Tensor:
        """The softmax of the predicted class at the exit's temperature, [B]."""
        return (self.scores / self._temperatures[self.exits, None]).softmax(1).amax(1)

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.labels, self.confidences, self.exits))


class EarlyExit:
    """A classifier that answers early: a sample leaves at the first companion whose confidence is above its threshold.

    The trunk is cut into stages at its taps. After each stage the samples that are sure leave, the others are gathered
    into a smaller batch and go on. A sample that reaches the end has run exactly the operations of the plain net.

    net: what ``supervise`` returned, trained. Its weights are shared, not copied; the net itself stays as it is.
    thresholds: the confidence, within 0 and 1, above which samples leave (0: all, 1: none): one per tap in the order of
        ``net.taps``, or a mapping from tap names. ``None``, or a tap that a mapping leaves out, switches the exit off.
    temperatures: what the scores of an exit are divided by before the softmax: a number for all, or a mapping from tap
        names and ``"output"``. ``calibrate`` finds thresholds and temperatures.

    >>> net = supervise(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), ["1"], num_classes=3,
    ...                 example=torch.zeros(1, 4))
    >>> EarlyExit(net, [0.9])(torch.zeros(2, 4)).exits  # all scores of an untrained companion are 0: none is sure
    tensor([1, 1])
    """

    def __init__(
        self, net: DeeplySupervised, thresholds: Thresholds, temperatures: float | Mapping[str, float] = 1.0
    ) -> None:
        check_net(net)
        self.thresholds = require_thresholds(net, thresholds)
        self.temperatures = require_temperatures(net, temperatures)
        self.calibration: dict[str, Any] = {}
        """What ``calibrate`` measured; empty without it."""
        alone = sharing_copy(net).eval()
        heads = {tap: alone.head(tap) for tap in net.taps}
        self.model = alone.strip()
        """The plain net, in evaluation mode."""
        self.stages = [Stage(self.model, None)]
        if self.active:
            twin, selects = sharing_copy(self.model), {tap: heads[tap].companion.select for tap in self.active}
            simplify(twin, selects, shape_example(net.inputs, twin))
            self.stages = cut(twin, selects)
        taps = [stage.tap for stage in self.stages if stage.tap is not None]
        self.names = (*taps, OUTPUT)
        """The exits that are switched on, in the order in which they run; the last is ``"output"``."""
        self.heads = [LeanHead(head) if isinstance(head := heads[tap], Head) else head for tap in taps]
        self._limits = [(self.thresholds[tap] or 0.0, 1 / self.temperatures[tap]) for tap in taps]
        device = next((parameter.device for parameter in net.parameters()), torch.device("cpu"))
        self.exit_temperatures = torch.tensor([self.temperatures[name] for name in self.names], device=device)
        self._numbers = torch.arange(len(self.names), device=device)[:, None]
        self._num_classes = net.num_classes
        self._verified = not taps

    @property
    def active(self) -> tuple[str, ...]:
        """The taps whose exit is switched on."""
        return tuple(tap for tap, threshold in self.thresholds.items() if threshold is not None)

    def __call__(self, *inputs: Tensor) -> EarlyOutput:
        """Classify a batch; each sample leaves at the first exit that is sure of it."""
        if not torch.is_inference_mode_enabled():
            with torch.inference_mode():
                return self(*inputs)
        batch = check_batch(inputs)
        if not self._verified:
            self._verify(inputs)
        return self._one(inputs) if batch == 1 else self._many(inputs, batch)

    def _one(self, inputs: Sequence[Any]) -> EarlyOutput:
        """Classify one sample: nothing has to be gathered."""
        values: Sequence[Any] = inputs
        for number, (threshold, sharpness) in enumerate(self._limits):
            features, *values = self.stages[number].module(*values)
            scores = self.heads[number](features)
            if torch.softmax(scores * sharpness, 1).amax().item() > threshold:
                return EarlyOutput(scores, self._numbers[number], self.names, self.exit_temperatures)
        scores = self.scores(self.stages[-1].module(*values))
        return EarlyOutput(scores, self._numbers[-1], self.names, self.exit_temperatures)

    def _many(self, inputs: Sequence[Any], batch: int) -> EarlyOutput:
        """Classify a batch: samples that are sure leave, the others are gathered and go on."""
        values: Sequence[Any] = inputs
        rows: Tensor | None = None  # where the samples that are still here were in the batch
        left: list[tuple[int, Tensor, Tensor]] = []
        for number in range(len(self.heads)):
            features, *values = self.stages[number].module(*values)
            scores, leaving, keep, values = self.decide(number, features, values)
            if leaving is None:
                continue
            rows = torch.arange(batch, device=scores.device) if rows is None else rows
            left.append((number, rows[leaving], scores[leaving]))
            rows = rows[keep]
            if len(rows) == 0:
                return self._gathered(left, batch)
        scores, last = self.scores(self.stages[-1].module(*values)), len(self.heads)
        if rows is None:
            return EarlyOutput(scores, self._numbers[last].expand(batch), self.names, self.exit_temperatures)
        return self._gathered([*left, (last, rows, scores)], batch)

    def decide(
        self, number: int, features: Tensor, values: Sequence[Any]
    ) -> tuple[Tensor, Tensor | None, Tensor, Sequence[Any]]:
        """Return the scores of an exit, the rows that leave (None: no row), those that stay, and their values."""
        threshold, sharpness = self._limits[number]
        scores = self.heads[number](features)
        sure = torch.softmax(scores * sharpness, 1).amax(1) > threshold
        keep = (~sure).nonzero().squeeze(1)
        if len(keep) == len(sure):
            return scores, None, keep, values
        leaving = sure.nonzero().squeeze(1)
        if len(keep) == 0:
            return scores, leaving, keep, ()
        return scores, leaving, keep, compacted(values, keep, self.names[number], len(sure))

    def _gathered(self, left: list[tuple[int, Tensor, Tensor]], batch: int) -> EarlyOutput:
        """Return the scores of all exits in the order of the batch."""
        scores = left[0][2].new_empty(batch, self._num_classes)
        exits = torch.empty(batch, dtype=torch.long, device=scores.device)
        for number, rows, each in left:
            scores[rows] = each.to(scores.dtype)
            exits[rows] = number
        return EarlyOutput(scores, exits, self.names, self.exit_temperatures)

    def scores(self, output: Any) -> Tensor:
        """Return the scores [B,K] in what the model or the last stage returns."""
        return output if isinstance(output, Tensor) else scores_of(output, self.model, self._num_classes)

    def _verify(self, inputs: Sequence[Tensor]) -> None:
        """Compare the stages with the plain net once: bit for bit, and with one sample less per cut up to rounding."""
        rows = torch.arange(len(self.stages) + 1, device=inputs[0].device) % len(inputs[0])
        given, whole, fewer = ([each[rows] for each in inputs] for _ in range(3))
        plain = self.scores(self.model(*given))
        for stage, tap in zip(self.stages, self.names[:-1], strict=False):
            _, *whole = stage.module(*whole)
            _, *fewer = stage.module(*fewer)
            here = len(rows)
            rows = rows[1:]
            fewer = compacted(fewer, torch.arange(1, here, device=rows.device), tap, here)
        last = self.stages[-1].module
        same, rest = equal(self.scores(last(*whole)), plain), self.scores(last(*fewer))
        close = rest.shape == plain[-2:].shape and torch.allclose(rest, plain[-2:], 1e-3, 1e-4, equal_nan=True)
        if not same or not close:
            where = ", ".join(self.names[:-1])
            raise SupervisionError(
                f"{type(self.model).__name__} cut into stages at {where} gives other scores than the model itself: "
                f"its forward depends on more than its input tensors, or mixes the samples of a batch; expected a "
                f"model that treats every sample alike; tap other layers, or use it without exits"
            )
        self._verified = True


def equal(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are the same to the bit; NaN, which bad inputs give in every net, equals NaN."""
    return one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())


def sharing_copy(module: Module) -> Module:
    """Return a copy of a module that shares its parameters and buffers."""
    return copy.deepcopy(module, {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())})


def check_net(net: object) -> None:
    """Raise an error for anything but a supervised net with companions that has run."""
    if not isinstance(net, DeeplySupervised):
        raise SupervisionError(
            f"net is a {type(net).__name__} without companions; expected what supervise(model, ...) returns"
        )
    if not net.taps:
        raise SupervisionError(
            "net has no companions: it was stripped or supervised at no layer; expected the net as it was trained; "
            "exits are its companions, so call EarlyExit before strip()"
        )
    if net.dense:
        raise SupervisionError(
            f"net scores every position ({type(net.trunk).__name__}), so no sample is done before all its positions "
            f"are; expected one set of scores per sample, [B,K]; strip(keep=...) makes a smaller dense model instead"
        )
    if net.num_classes == 1:
        raise SupervisionError(
            "net has one score per sample (num_classes=1), whose softmax is always sure; expected at least two "
            "classes; build the model with two"
        )
    if not net.inputs and any(net.head(tap).first.in_features == 0 for tap in net.taps):
        raise SupervisionError("net has not run yet, so its companions have no size; expected a trained net")


def check_batch(inputs: Sequence[Any]) -> int:
    """Return the number of samples; raise an error for an empty batch or anything but tensors."""
    if not inputs or not all(isinstance(each, Tensor) and each.ndim for each in inputs):
        given = ", ".join(map(describe, inputs)) or "nothing"
        raise SupervisionError(f"the input is {given}; expected a tensor with the batch first, e.g. images [B,C,H,W]")
    if len(inputs[0]) == 0:
        raise SupervisionError(
            f"the batch is empty ({describe(inputs[0])}); expected at least one sample; skip empty batches"
        )
    return len(inputs[0])


def require_thresholds(net: DeeplySupervised, given: Thresholds) -> dict[str, float | None]:
    """Return tap -> threshold, None where the exit is off."""
    if isinstance(given, str) or not isinstance(given, Sequence | Mapping):
        raise SupervisionError(
            f"thresholds={given!r}; expected one per tap ({', '.join(net.taps)}), or a mapping from tap names"
        )
    if isinstance(given, Mapping):
        for tap in given:
            if tap not in net.taps:
                raise SupervisionError(f"thresholds name {tap!r}, which is not tapped; {nearest(str(tap), net.taps)}")
        given = [given.get(tap) for tap in net.taps]
    if len(given) != len(net.taps):
        raise SupervisionError(
            f"{len(given)} thresholds for {len(net.taps)} taps ({', '.join(net.taps)}); expected one for each; None "
            f"switches an exit off"
        )
    for tap, threshold in zip(net.taps, given, strict=True):
        number = isinstance(threshold, Real) and not isinstance(threshold, bool)
        if threshold is not None and not (number and 0 <= threshold <= 1):
            raise SupervisionError(
                f"threshold of {tap!r} is {threshold!r}; expected a confidence within 0 and 1, or None to switch the "
                f"exit off"
            )
    return {tap: None if each is None else float(each) for tap, each in zip(net.taps, given, strict=True)}


def require_temperatures(net: DeeplySupervised, given: float | Mapping[str, float]) -> dict[str, float]:
    """Return exit -> temperature, also of the output; 1 where a mapping names none."""
    exits = (*net.taps, OUTPUT)
    if isinstance(given, Mapping):
        for name in given:
            if name not in exits:
                raise SupervisionError(f"temperatures name {name!r}, which is no exit; {nearest(str(name), exits)}")
        temperatures = {name: given.get(name, 1.0) for name in exits}
    else:
        temperatures = dict.fromkeys(exits, given)
    for name, value in temperatures.items():
        if not isinstance(value, Real) or isinstance(value, bool) or not 0 < value < math.inf:
            raise SupervisionError(f"temperature of {name!r} is {value!r}; expected a number above 0")
    return {name: float(value) for name, value in temperatures.items()}
