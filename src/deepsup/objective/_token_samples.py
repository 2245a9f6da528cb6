"""Scores and labels of every token -> those of as many samples: [B,L,K] and [B,L] -> [N,K] and [N].

Then everything else, the losses, ignored labels, weights and distillation, is as for a classifier.

B batch, L tokens, K classes, N = B L.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from deepsup.errors import ObjectiveError
from deepsup.supervision import DeepOutput

IGNORED = -100
"""The label that language models leave out, as torch's cross-entropy does."""


class Samples(NamedTuple):
    """Output, labels and weights of N samples."""

    output: DeepOutput
    labels: Tensor
    weights: Tensor | None


def token_samples(
    output: DeepOutput, labels: Tensor, weights: Tensor | None, shift: int, ignore_index: int | None
) -> Samples:
    """Return every token as a sample. With ``shift`` the scores of a token meet the label so many tokens later.

    Whole numbers are shifted by padding them with an ignored label, so that the scores, which are large, are not
    copied; anything else by cutting the ends off.
    """
    check_tokens(output, labels, weights)
    if weights is not None and weights.ndim == 1:
        weights = weights[:, None].expand(labels.shape[:2])
    length = labels.shape[1]
    if shift >= length and shift:
        raise ObjectiveError(f"shift={shift} with sequences of {length} tokens; expected fewer; give longer sequences")
    if shift and ignore_index is not None and labels.ndim == 2:
        labels = F.pad(labels[:, shift:].long(), (0, shift), value=ignore_index)
        weights = weights if weights is None else F.pad(weights[:, shift:], (0, shift))
    elif shift:
        output = DeepOutput(
            output.scores[:, :-shift], {name: each[:, :-shift] for name, each in output.companions.items()}, output.raw
        )
        labels, weights = labels[:, shift:], None if weights is None else weights[:, shift:]
    companions = {name: each.flatten(0, 1) for name, each in output.companions.items()}
    flat = DeepOutput(output.scores.flatten(0, 1), companions, output.raw)
    return Samples(flat, labels.flatten(0, 1), None if weights is None else weights.flatten())


def check_tokens(output: DeepOutput, labels: Tensor, weights: Tensor | None) -> None:
    """Raise an error unless there is one label, and one weight, per token."""
    wanted = output.scores.shape[:2]
    if not isinstance(labels, Tensor):
        raise ObjectiveError(
            f"labels are {type(labels).__name__}; expected a tensor; convert with torch.tensor(labels)"
        )
    if labels.ndim < 2 or labels.shape[:2] != wanted:
        raise ObjectiveError(
            f"labels have shape {list(labels.shape)}, scores {list(output.scores.shape)}; expected one label per "
            f"token: {list(wanted)}; label what has none with {IGNORED}"
        )
    if labels.ndim == 3 and labels.shape[2] == 1 != output.scores.shape[2]:
        raise ObjectiveError(
            f"labels have shape {list(labels.shape)}, scores {list(output.scores.shape)}; expected one label per "
            f"token: {list(wanted)}; use labels.squeeze(-1)"
        )
    if weights is not None and (not isinstance(weights, Tensor) or weights.shape not in (wanted, wanted[:1])):
        shape = list(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
        raise ObjectiveError(
            f"weights are {shape}; expected one number per sample, {list(wanted[:1])}, or per token, {list(wanted)}"
        )
    for name, scores in output.companions.items():
        if scores.shape[:2] != wanted:
            raise ObjectiveError(
                f"the companion at {name!r} scores {list(scores.shape)}, the model {list(output.scores.shape)}; "
                f"expected scores of the same tokens"
            )


def ignored_label(given: int | None, labels: Tensor, named: tuple[str, ...]) -> int | None:
    """Return the label to leave out: the one that was given, or -100 where a built-in loss gets class numbers."""
    whole = isinstance(labels, Tensor) and labels.ndim == 2 and not labels.is_floating_point()
    return IGNORED if given is None and named and whole and labels.dtype != torch.bool else given
