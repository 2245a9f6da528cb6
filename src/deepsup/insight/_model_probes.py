"""A trained model and samples -> linear probes of its hidden layers; the model itself is never changed.

N samples, D features, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from deepsup.errors import DataError, SupervisionError, nearest
from deepsup.insight._measure import Measurement, error_percent
from deepsup.insight._probe_data import ProbeData, read_data, split_data
from deepsup.insight._probe_result import ProbeResult, label_facts, output_facts
from deepsup.insight._probes import IMAGES, VALUES, Probe, fit_probe
from deepsup.sampling import stratified
from deepsup.supervision import (
    Companion,
    DeeplySupervised,
    Trace,
    check_model,
    choose_companions,
    describe,
    named_companions,
    supervise,
    trace,
    undisturbed,
)

STEPS = 300
"""Of L-BFGS, at most: pooled features are few, so that the probes can be fitted to the end."""
TARGETS = {"label": ("label",), "output": ("output",), "both": ("label", "output")}


def probe(
    model: nn.Module,
    at: str | Iterable[str] | Mapping[str, Companion] = "auto",
    data: Any = None,
    *,
    test: Any = 0.25,
    target: Literal["label", "output", "both"] = "both",
    pool: Literal["none", "avg", "max"] | int = 4,
    classes: Sequence[str] | None = None,
    batch_size: int = 250,
) -> ProbeResult:
    """Fit linear probes to hidden layers of a trained model, and test them on samples that they were not fitted on.

    model: any ``nn.Module`` that returns scores [B,K]. Its weights, buffers, modes and hooks stay as they are.
    at: names of layers; ``"auto"``, the last layer of each resolution; or a mapping from names to companions, of which
        ``pool``, ``select`` and ``layout`` are used.
    data: (images, labels) as tensors or arrays, preprocessed as the model expects; or a ``DataLoader``. Images that the
        model was not trained on give its honest error.
    test: the fraction of the data that the probes are tested on, stratified by class; or (images, labels) of its own.
    target: what the probes predict: ``"label"``; ``"output"``, the scores of the model itself, by their KL divergence
        (a tuned lens); or ``"both"``, two probes per layer.
    pool: how a map becomes features, as in ``Companion``; ``"none"`` flattens it.
    classes: the names of the classes, for the report.
    """
    if target not in TARGETS:
        raise DataError(f"target={target!r}; {nearest(str(target), TARGETS)}")
    if isinstance(model, DeeplySupervised):
        at = model.taps if isinstance(at, str) and at == "auto" else at
        model = model.trunk
    check_model(model, 1)
    fit, held_out = split_data(read_data(data), test)
    with undisturbed(model):
        layers = LayerFeatures(model, at, pool, fit, batch_size)
        try:
            check_classes(layers.net.num_classes, (fit, held_out), classes)
            return probed(layers, fit, held_out, TARGETS[target], classes)
        finally:
            layers.net.strip()


class LayerFeatures:
    """Runs a model and catches the features [N,D] that a linear companion of each tapped layer would get."""

    def __init__(
        self, model: nn.Module, at: Any, pool: Literal["none", "avg", "max"] | int, data: ProbeData, batch_size: int
    ) -> None:
        self.like = next((each for each in model.parameters() if each.is_floating_point()), torch.empty(0))
        self.batch_size = batch_size
        args, kwargs = next(data.batches(2, self.like))
        classes = number_of_classes(model, args, kwargs)
        taps = in_order(model, at, Companion(pool=pool), trace(model, args, kwargs, classes))
        self.net = supervise(model, taps, num_classes=classes, example=args or kwargs)
        self._caught: dict[str, Tensor] = {}
        for name in self.net.taps:
            self.net.head(name).classifier.register_forward_pre_hook(self._catch(name))

    def _catch(self, name: str) -> Callable[[nn.Module, Any], None]:
        return lambda _layer, given: self._caught.__setitem__(name, given[0].flatten(1).float().cpu())

    def batches(self, data: ProbeData) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
        """Yield the scores [B,K] and layer -> features [B,D] of each batch."""
        for args, kwargs in data.batches(self.batch_size, self.like):
            scores = self.net(*args, **kwargs).scores.float().cpu()
            if not scores.isfinite().all():
                raise DataError("the scores of the model are not finite on data; check the inputs, and its weights")
            yield scores, dict(self._caught)

    def collect(self, data: ProbeData) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the scores [N,K] and layer -> features [N,D] of all samples."""
        batches = list(self.batches(data))
        features = {name: torch.cat([each[name] for _, each in batches]) for name in self.net.taps}
        return torch.cat([scores for scores, _ in batches]), features

    @property
    def wide(self) -> int:
        """The features per sample, of all layers together."""
        return sum(self.net.head(name).first.in_features for name in self.net.taps)


def probed(
    layers: LayerFeatures,
    fit: ProbeData,
    held_out: ProbeData,
    targets: tuple[str, ...],
    classes: Sequence[str] | None,
) -> ProbeResult:
    """Fit the probes of every layer on one part of the data and test them on the other."""
    count = layers.net.num_classes
    most = max(count, min(IMAGES, VALUES // max(1, layers.wide)))
    if len(fit) > most:
        fit = fit.take(torch.from_numpy(stratified(fit.labels.numpy(), most)))
    scores, features = layers.collect(fit)
    goals = {"label": fit.labels, "output": scores.softmax(1)}
    probes = {
        target: {name: fit_probe(name, features[name], goals[target], count, STEPS) for name in features}
        for target in targets
    }
    trained = {target: {name: each(features[name]) for name, each in probes[target].items()} for target in targets}
    del features
    tested, outputs = scores_on(layers, probes, held_out)
    names = tuple(map(str, range(count) if classes is None else classes))
    measured = Measurement(outputs, {}, held_out.labels)
    label = label_facts(trained.get("label", {}), fit.labels, tested.get("label", {}), held_out.labels)
    output = output_facts(trained.get("output", {}), scores, tested.get("output", {}), outputs, held_out.labels)
    return ProbeResult(
        model=type(layers.net.trunk).__name__, layers=layers.net.taps, label=label, output=output, probes=probes,
        classes=names, measured=measured, scores=tested, fitted_on=len(fit),
        fit_error=error_percent(scores, fit.labels), images=pictures_of(held_out),
    )  # fmt: skip


def scores_on(
    layers: LayerFeatures, probes: Mapping[str, Mapping[str, Probe]], data: ProbeData
) -> tuple[dict[str, dict[str, Tensor]], Tensor]:
    """Return target -> layer -> scores [N,K] of the probes, and the scores of the model; features are not kept."""
    outputs: list[Tensor] = []
    parts: dict[str, dict[str, list[Tensor]]] = {target: {name: [] for name in each} for target, each in probes.items()}
    for scores, features in layers.batches(data):
        outputs.append(scores)
        for target, each in probes.items():
            for name, fitted in each.items():
                parts[target][name].append(fitted(features[name]))
    joined = {target: {name: torch.cat(each) for name, each in by.items()} for target, by in parts.items()}
    return joined, torch.cat(outputs)


def in_order(model: nn.Module, at: Any, companion: Companion, seen: Trace) -> dict[str, Companion]:
    """Return the layers to probe, from the input to the output, each with a linear companion on unscaled features."""
    chosen = choose_companions(model, seen, companion) if isinstance(at, str) and at == "auto" else at
    depth = {call.name: place for place, call in reversed(list(enumerate(seen.calls)))}
    named = named_companions(model, chosen, companion)
    if not named:
        raise SupervisionError("at names no layer; expected at least one to probe; give names, or at='auto'")
    ordered = sorted(named, key=lambda name: depth.get(name, len(depth)))
    return {name: replace(named[name], hidden=(), length=None, init="zero") for name in ordered}


def number_of_classes(model: nn.Module, args: tuple[Tensor, ...], kwargs: Mapping[str, Tensor]) -> int:
    """Return K, from the scores of two samples."""
    try:
        output = model(*args, **kwargs)
    except Exception as error:
        given = ", ".join(map(describe, (*args, *kwargs.values())))
        raise DataError(
            f"{type(model).__name__} fails on data ({given}): {' '.join(str(error).split())}; expected inputs that the "
            f"model takes; preprocess them as in its training"
        ) from error
    scores = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)
    if not isinstance(scores, Tensor) or scores.ndim != 2:
        raise SupervisionError(
            f"{type(model).__name__} returns {describe(output)}; expected scores [B,K], or a mapping or an object with "
            f"them as 'logits'; wrap the model in a module whose forward returns the scores"
        )
    return scores.shape[1]


def check_classes(count: int, parts: Iterable[ProbeData], classes: Sequence[str] | None) -> None:
    """Refuse labels that are no classes of the model, and a wrong number of names."""
    for part in parts:
        if (high := int(part.labels.max())) >= count:
            raise DataError(f"a label is {high}, the model has {count} scores; expected 0 to {count - 1}")
    if classes is not None and len(classes) != count:
        raise DataError(f"{len(classes)} names of classes, the model has {count} scores; expected one for each")


def pictures_of(data: ProbeData) -> Tensor | None:
    """Return the inputs if they are images [N,C,H,W] that can be shown, grey or in colour."""
    first = data.args[0] if len(data.args) == 1 else None
    return first if first is not None and first.ndim == 4 and first.shape[1] in (1, 3) else None
