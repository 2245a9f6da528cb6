"""The scores and errors of a net's output and of its companions on images.

N images, K classes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from deepsup.supervision import DeepOutput

MOST_VALUES = 2**24
"""Of the images of a batch: 500 of 3 x 105 x 105 pixels, or four of the largest that a model of a stranger may take."""


@dataclass(frozen=True, eq=False)
class Measurement:
    """The scores of a net on N images. Errors are in percent."""

    scores: Tensor
    """[N,K], on the CPU."""
    companions: dict[str, Tensor]
    """Tap -> [N,K]."""
    labels: Tensor
    """[N]."""

    @property
    def error(self) -> float:
        """The error of the output."""
        return error_percent(self.scores, self.labels)

    @property
    def companion_errors(self) -> dict[str, float]:
        return {tap: error_percent(scores, self.labels) for tap, scores in self.companions.items()}


def error_percent(scores: Tensor, labels: Tensor) -> float:
    """Return the percentage of images with a wrong label."""
    return 100 * int((scores.argmax(1) != labels).sum()) / len(labels)


def measure(
    net: nn.Module,
    images: Tensor,
    labels: Tensor,
    normalize: Callable[[Tensor], Tensor] | None = None,
    batch_size: int = 500,
    forward: Callable[[Tensor], DeepOutput] | None = None,
) -> Measurement:
    """Return the scores of a supervised net on images [N,C,H,W], in evaluation mode; restore its mode afterwards.

    ``normalize`` is applied to every batch; ``None`` for images that are already normalized. Large images go through
    the net in smaller batches. ``forward`` computes the net's output; ``None``: the net itself.
    """
    batch_size = max(1, min(batch_size, MOST_VALUES // max(1, images[:1].numel())))
    device = next(net.parameters()).device
    training = net.training
    answer = net if forward is None else forward
    net.eval()
    outputs = []
    try:
        with torch.no_grad():
            for start in range(0, len(images), batch_size):
                batch = images[start : start + batch_size]
                out = answer((batch if normalize is None else normalize(batch)).to(device))
                outputs.append((out.scores.float().cpu(), {t: s.float().cpu() for t, s in out.companions.items()}))
    finally:
        net.train(training)
    taps = outputs[0][1]
    return Measurement(
        scores=torch.cat([scores for scores, _ in outputs]),
        companions={tap: torch.cat([companions[tap] for _, companions in outputs]) for tap in taps},
        labels=labels.cpu(),
    )
