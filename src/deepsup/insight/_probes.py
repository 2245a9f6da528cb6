"""Linear probes: fit linear classifiers to the outputs of layers of a frozen net.

They compare a net trained without companions with one that has them, layer by layer.
N images, D features, K classes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from deepsup.insight._layer_errors import layer_facts
from deepsup.insight._measure import error_percent
from deepsup.sampling import stratified

DECAY = 1e-3
"""The probe's objective is the mean cross-entropy + DECAY / 2 * |W|^2, on features of unit mean square."""
VALUES = 50_000_000
"""Maximum number of feature values in memory; wide layers are fitted on fewer images."""
IMAGES = 5000
STEPS = 60


@dataclass(frozen=True, eq=False)
class Probe:
    """A linear classifier of one layer."""

    layer: str
    weight: Tensor
    """[K,D]"""
    bias: Tensor
    """[K]"""
    scale: float
    """The factor on the features."""
    train_error: float
    """Percent, on the images of the fit."""
    images: int
    """The number of images of the fit."""

    def __call__(self, features: Tensor) -> Tensor:
        """Return the scores [N,K] of features [N,D]."""
        return functional.linear(features * self.scale, self.weight, self.bias)


def layer_outputs(
    model: nn.Module, layers: Sequence[str], images: Tensor, normalize: Callable[[Tensor], Tensor] | None = None
) -> dict[str, Tensor]:
    """Return layer -> its output for images [N,C,H,W], in evaluation mode; restore the model afterwards."""
    caught: dict[str, Tensor] = {}

    def catch(name: str) -> Callable[[nn.Module, object, Tensor], None]:
        # cloned: a later layer may change it in place
        return lambda _layer, _args, output: caught.__setitem__(name, output.detach().float().cpu().clone())

    handles = [model.get_submodule(name).register_forward_hook(catch(name)) for name in layers]
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            model((images if normalize is None else normalize(images)).to(next(model.parameters()).device))
    finally:
        model.train(training)
        for handle in handles:
            handle.remove()
    return caught


def features_of(
    model: nn.Module, layer: str, images: Tensor, normalize: Callable[[Tensor], Tensor] | None, batch_size: int = 250
) -> Tensor:
    """Return [N,D]: the flattened output of one layer."""
    parts = [
        layer_outputs(model, [layer], images[start : start + batch_size], normalize)[layer].flatten(1)
        for start in range(0, len(images), batch_size)
    ]
    return torch.cat(parts)


def sample(part: tuple[Tensor, Tensor], most: int) -> tuple[Tensor, Tensor]:
    """Return at most ``most`` images, stratified by class, always the same ones; a folder is sorted by class."""
    if len(part[1]) <= most:
        return part
    places = torch.from_numpy(stratified(part[1].numpy(), most))
    return part[0][places], part[1][places]


def fit_probe(layer: str, features: Tensor, labels: Tensor, classes: int, steps: int = STEPS) -> Probe:
    """Fit a linear classifier on features [N,D] by L-BFGS. It is deterministic and reads no test image.

    labels: [N]; or probabilities [N,K], such as those of the net itself, whose KL divergence is then minimized.
    """
    scale = 1 / max(float(features.square().mean().sqrt()), 1e-12)
    scaled = features * scale
    weight = torch.zeros(classes, features.shape[1], requires_grad=True)
    bias = torch.zeros(classes, requires_grad=True)
    optimizer: Any = torch.optim.LBFGS([weight, bias], max_iter=steps, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        scores = functional.linear(scaled, weight, bias)
        loss: Tensor = functional.cross_entropy(scores, labels) + DECAY / 2 * weight.square().sum()
        torch.autograd.backward(loss)
        return loss

    optimizer.step(closure)
    weight, bias = weight.detach(), bias.detach()
    right = labels if labels.ndim == 1 else labels.argmax(1)
    error = error_percent(functional.linear(scaled, weight, bias), right)
    return Probe(layer, weight, bias, scale, error, len(labels))


def probe_layer(
    model: nn.Module,
    layer: str,
    train: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
    classes: int,
    normalize: Callable[[Tensor], Tensor] | None = None,
) -> tuple[dict[str, object], Tensor]:
    """Fit a probe at one layer; return its errors and its scores [N,K] on the test images.

    train, test: images [N,C,H,W] and labels [N].
    """
    wide = layer_outputs(model, [layer], train[0][:1], normalize)[layer].numel()
    images, labels = sample(train, max(classes, min(IMAGES, VALUES // wide)))
    probe = fit_probe(layer, features_of(model, layer, images, normalize), labels, classes)
    scores = torch.cat(
        [
            probe(features_of(model, layer, test[0][start : start + 500], normalize))
            for start in range(0, len(test[0]), 500)
        ]
    )
    facts = layer_facts(scores, test[1]) | {"train_error": probe.train_error, "train_images": probe.images}
    return facts, scores
