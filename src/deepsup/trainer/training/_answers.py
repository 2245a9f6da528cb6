"""A config and a trained net -> what answers images when errors are measured: in which precision, from which views.

B batch, C channels, H height, W width.
"""

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F

from deepsup.errors import ConfigError
from deepsup.supervision import DeeplySupervised, DeepOutput
from deepsup.trainer.config import Config
from deepsup.trainer.training._precision import precision, precision_of

View = Callable[[Tensor], Tensor]


def flipped(images: Tensor) -> Tensor:
    """Mirror [B,C,H,W] left to right."""
    return images.flip(3)


def moved(images: Tensor, pixels: int) -> Tensor:
    """Move [B,C,H,W] right and down by 1 pixel, or left and up by -1; the border is repeated."""
    height, width = images.shape[2:]
    start = 1 - pixels
    return F.pad(images, (1, 1, 1, 1), "replicate")[:, :, start : start + height, start : start + width]


SHIFTS: tuple[tuple[float, View], ...] = (
    (0.5, lambda images: images),
    (0.25, lambda images: moved(images, 1)),
    (0.25, lambda images: moved(images, -1)),
)
"""The views of --tta shift and their weights, as in cifar10-airbench."""


def views_of(tta: str) -> list[tuple[float, View]]:
    """Return the views of ``--tta`` and their weights, whose sum is 1."""
    views = list(SHIFTS) if "shift" in tta else [(1.0, SHIFTS[0][1])]
    if "flip" not in tta:
        return views
    sides: tuple[View, ...] = (SHIFTS[0][1], flipped)
    return [(weight / 2, one_after(side, view)) for weight, view in views for side in sides]


def one_after(first: View, second: View) -> View:
    """Return a view of a view."""
    return lambda images: second(first(images))


def measured_in(config: Config) -> str:
    """Return the precision in which errors are measured."""
    return precision_of(config) if config.run.amp_test else "float32"


def answering(config: Config, net: DeeplySupervised) -> Callable[[Tensor], DeepOutput]:
    """Return what computes a net's output of normalized images [B,C,H,W] as ``--amp-test`` and ``--tta`` have it.

    The scores of several views are averaged, of companions too.
    """
    chosen = config if config.run.amp_test else config.replace(amp="off")
    views = views_of(config.run.tta)
    if net.dense and len(views) > 1:
        raise ConfigError(
            f"tta={config.run.tta} for a net that scores every pixel; expected tta=none: its views are not put back "
            f"in place"
        )

    def answer(images: Tensor) -> DeepOutput:
        with precision(chosen, net):
            outputs = [net(view(images)) for _, view in views]
        return outputs[0] if len(views) == 1 else mean_of([weight for weight, _ in views], outputs)

    return answer


def mean_of(weights: list[float], outputs: list[DeepOutput]) -> DeepOutput:
    """Return the weighted mean of the scores."""

    def mean(parts: list[Tensor]) -> Tensor:
        return sum(
            (weight * part.float() for weight, part in zip(weights, parts, strict=True)), start=parts[0].new_zeros(())
        )

    companions = {tap: mean([each.companions[tap] for each in outputs]) for tap in outputs[0].companions}
    return DeepOutput(mean([each.scores for each in outputs]), companions)
