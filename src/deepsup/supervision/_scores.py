"""A model's output -> its scores: [B,K], of every position [B,K, ...], or of every token [B,L,K].

B batch, K classes, L tokens.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from torch import Tensor, nn

from deepsup.errors import SupervisionError
from deepsup.supervision._layer_layouts import layout_of_type
from deepsup.supervision._taps import describe

ScoreLayout = Literal["auto", "channels_first", "channels_last"]
SHAPES = {1: "[B,K]", 2: "[B,K]", 3: "[B,K,L], or [B,L,K] of tokens", 4: "[B,K,H,W] or the like"}
"""The scores that are expected in place of ones with so many dimensions."""
SCORE_LAYOUTS: tuple[ScoreLayout, ...] = ("auto", "channels_first", "channels_last")


def scores_and_kind(
    output: Any, model: nn.Module, num_classes: int, layout: ScoreLayout, made: Sequence[tuple[nn.Module, Any]]
) -> tuple[Tensor, bool]:
    """Return the scores of a model's output, and whether they are [B,L,K]: by their shape, or by what made them.

    made: the layers that ran, each with its output.
    """
    scores = tensor_of(output, model, num_classes)
    tokens = layout == "channels_last"
    if layout == "auto" and scores.ndim == 3:
        first, last = (extent == num_classes for extent in scores.shape[1:])
        tokens = last
        if first and last:
            makers = [layer for layer, part in made if is_same(part, scores)]
            layouts = {kind for layer in makers if (kind := layout_of_type(layer, scores.shape)) is not None}
            if len(layouts) != 1:
                raise SupervisionError(
                    f"{type(model).__name__} returns scores {list(scores.shape)} of {num_classes} classes, which may "
                    f"be [B,K,L] or [B,L,K]; expected a known layout; give supervise(..., layout='channels_last') for "
                    f"[B,L,K], or an example of another length"
                )
            tokens = layouts == {"channels_last"}
    return scores_of(output, model, num_classes, tokens), tokens


def scores_of(output: Any, model: nn.Module, num_classes: int, tokens: bool = False) -> Tensor:
    """Return the scores [B,K] or [B,K, ...] of a model's output, or of one that scores tokens [B,L,K].

    The output is the scores, a list of nothing else, or has them under the key or attribute ``logits`` or ``out``.
    """
    scores = tensor_of(output, model, num_classes)
    if tokens:
        if scores.ndim != 3 or scores.shape[2] != num_classes:
            raise SupervisionError(
                f"{type(model).__name__} returns scores of shape {list(scores.shape)}, num_classes is {num_classes}; "
                f"expected one set of scores per token, [B,L,{num_classes}]; "
                f"build the model with {num_classes} classes or pass its own number"
            )
        return scores
    if not 2 <= scores.ndim <= 5 or scores.shape[1] != num_classes or scores.shape[2:].numel() == 1 < scores.ndim - 1:
        raise SupervisionError(
            f"{type(model).__name__} returns scores of shape {list(scores.shape)}, num_classes is {num_classes}; "
            f"expected {SHAPES[min(scores.ndim, 4)].replace('K', str(num_classes))}; "
            f"{remedy_for_shape(scores, num_classes)}"
        )
    return scores


def tensor_of(output: Any, model: nn.Module, num_classes: int) -> Tensor:
    """Return the tensor with the scores of a model's output."""
    scores = output
    if isinstance(output, list | tuple) and len(output) == 1:
        scores = output[0]
    elif isinstance(output, Mapping):
        named = [key for key in ("logits", "out") if isinstance(output.get(key), Tensor)]
        if len(named) > 1:
            raise SupervisionError(
                f"{type(model).__name__} returns 'logits' and 'out', {describe(output)}, so which are its scores is "
                f"unknown; expected one of them; wrap the model in a module whose forward returns the scores"
            )
        scores = output[named[0]] if named else None
    elif not isinstance(output, Tensor):
        scores = getattr(output, "logits", None)
    if not isinstance(scores, Tensor):
        raise SupervisionError(
            f"{type(model).__name__} returns {describe(output)}; expected scores [B,{num_classes}], of every position "
            f"[B,{num_classes},H,W] or of every token [B,L,{num_classes}], or a mapping or an object with them as "
            f"'logits'; "
            f"{remedy_for_several(output)}"
        )
    return scores


def any_tensor(output: Any, model: nn.Module) -> Tensor:
    """Return the first tensor of a model's output."""
    parts = [output]
    while parts:
        part = parts.pop(0)
        if isinstance(part, Tensor):
            return part
        inside = part.values() if isinstance(part, Mapping) else part if isinstance(part, list | tuple) else ()
        parts = [*inside, *parts]
    raise SupervisionError(f"{type(model).__name__} returns {describe(output)}; expected a tensor, or a part that is")


def remedy_for_several(output: Any) -> str:
    """Return what to do about a model that returns something else than scores."""
    if isinstance(output, list | tuple) and sum(isinstance(part, Tensor) and part.ndim > 2 for part in output) > 1:
        return (
            "build the model without its own deep supervision, which companions replace, or wrap it in a module whose "
            "forward returns the scores"
        )
    return "wrap the model in a module whose forward returns the scores"


def remedy_for_shape(scores: Tensor, num_classes: int) -> str:
    """Return what to do about scores of the wrong shape."""
    if scores.ndim == 1:
        return "let it return scores[:, None]"
    if scores.ndim > 2 and scores.shape[1] == num_classes:
        return "let it return scores.flatten(1)"
    if num_classes in scores.shape[2:]:
        place = scores.shape.index(num_classes, 2)
        return f"let it return scores.movedim({place}, 1)" + (
            ", or build it without its own deep supervision" if scores.ndim > 3 else ""
        )
    return f"build the model with {num_classes} classes or pass its own number"


def is_same(output: Any, scores: Tensor) -> bool:
    """Whether a layer's output is the scores, with the same order of dimensions; not a transposed view."""
    return shares_memory(output, scores) and (output.shape, output.stride()) == (scores.shape, scores.stride())


def shares_memory(output: Any, scores: Tensor) -> bool:
    """Whether a layer's output is the scores themselves or a view of them."""
    return (
        isinstance(output, Tensor) and output.untyped_storage().data_ptr() == scores.untyped_storage().data_ptr() != 0
    )
