"""Find the layout of a layer's output from a traced forward pass, so that pooling uses the right axes.

    channels_first   [B,C,H,W], [B,C,L]   the maps of convolutions
    channels_last    [B,H,W,C], [B,N,D]   Swin's maps, the tokens of a transformer

B batch, C channels, H W height and width, L length, N tokens, D features.
"""

from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from deepsup.errors import SupervisionError
from deepsup.supervision._layer_layouts import Layout, layout_of_type
from deepsup.supervision._trace import Call, Trace


def layout_of(call: Call, features: Tensor, seen: Trace) -> Layout:
    """Return the layout of a layer's output; raise an error if it is ambiguous.

    The type of the layer decides, if it implies a layout. Otherwise the layers inside it and the aspect ratio of the
    input image decide; otherwise the layers before it. If these disagree, the layout is ambiguous.
    """
    shape = features.shape
    own = layout_of_type(call.layer, shape)
    if own is not None:
        return own
    layouts = layouts_from([other for other in seen.calls if other.name.startswith(f"{call.name}.")], shape)
    image = image_of(seen, features.ndim)
    fitting = set(readings(shape, image)) if image is not None else set()
    if len(fitting) == 1:
        layouts |= fitting
    if not layouts:
        layouts = layouts_from(seen.calls[: seen.calls.index(call)], shape)
    if len(layouts) != 1:
        disagree = "the layers that made it and the input's shape disagree"
        reason = disagree if layouts else "no layer before it decides which"
        first, last = ("[B,C,L]", "[B,N,D]") if features.ndim == 3 else ("[B,C,...]", "[B,...,C]")
        raise SupervisionError(
            f"the output of layer {call.name!r}, {list(shape)}, may be {first} or {last}: {reason}; expected a "
            f"known layout to pool over; give Companion(layout='channels_first') or Companion(layout='channels_last')"
        )
    return layouts.pop()


def layouts_from(calls: list[Call], shape: torch.Size) -> set[Layout]:
    """Return the layouts of calls with an output of ``shape``, or else of those with as many positions (a maxout)."""
    parts = [(call.layer, part.shape) for call in calls for part in tensors_of(call.output)]
    outputs = [(layout_of_type(layer, given), given) for layer, given in parts]
    votes = [(layout, given) for layout, given in outputs if layout is not None and given[:1] == shape[:1]]
    same = {layout for layout, given in votes if given == shape}
    return same or {layout for layout, given in votes if positions(given, layout) == positions(shape, layout)}


def positions(shape: torch.Size, layout: Layout) -> torch.Size:
    """Return the height and width, or the length, of a map in a layout."""
    return shape[2:] if layout == "channels_first" else shape[1:-1]


def tensors_of(output: Any) -> list[Tensor]:
    """Return the tensors of an output: itself, or its parts."""
    return [part for part in (output if isinstance(output, list | tuple) else [output]) if isinstance(part, Tensor)]


def image_of(seen: Trace, ndim: int) -> Tensor | None:
    """Return the model's first image [B,C,H,W] or volume among its inputs, if it has ``ndim`` dimensions."""
    image = next((x for x in seen.inputs if isinstance(x, Tensor) and x.ndim >= 4), None)
    return image if image is not None and image.ndim == ndim else None


def readings(shape: torch.Size, image: Tensor) -> dict[Layout, tuple[int, ...]]:
    """Return layout -> size of the map, for each layout in which the map has the image's aspect ratio."""
    whole = tuple(image.shape[2:])
    both: dict[Layout, tuple[int, ...]] = {"channels_first": tuple(shape[2:]), "channels_last": tuple(shape[1:-1])}
    return {layout: size for layout, size in both.items() if has_aspect(size, whole)}


def has_aspect(size: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether a map has the aspect ratio of the whole image, up to padding and the rounding of poolings."""
    pairs = combinations(zip(size, whole, strict=True), 2)
    return all(abs(h * width - w * height) < height + width for (h, height), (w, width) in pairs)
