"""Choose the layers to tap from a traced forward pass (``at="auto"``)."""

from collections import Counter
from math import ceil, prod

from torch import Tensor, nn

from deepsup.errors import SupervisionError
from deepsup.supervision.layout import image_of, readings
from deepsup.supervision.trace import Call, Trace, shares_memory


def choose_taps(model: nn.Module, seen: Trace) -> list[str]:
    """Return the last layer of each spatial resolution, except the last resolution, which is the output's.

    Of a dense model, these are the stages of its decoder.

    A net with a single resolution (a ViT, a mixer, an MLP) has no such layers. There, the layers that end the first and
    the second third of the most repeated kind of block are tapped.
    """
    counts = Counter(call.layer for call in seen.calls)
    batch = seen.scores.shape[0]
    calls = [call for call in seen.hidden_calls if counts[call.layer] == 1 and is_feature(call.output, batch)]
    ends = stage_ends(calls, seen)
    taps = decoder_stages(calls, ends, seen) if seen.dense else list(ends.values())[:-1] or block_thirds(model, calls)
    if not taps:
        raise SupervisionError(
            f"at='auto' finds no hidden layer in {type(model).__name__} that runs once and returns one tensor; "
            f"expected a net with hidden layers; name them yourself, at=[...]"
        )
    return taps


def is_feature(output: object, batch: int) -> bool:
    """Whether an output can feed a companion: a floating-point tensor with the batch first."""
    return isinstance(output, Tensor) and output.is_floating_point() and output.ndim >= 2 and output.shape[0] == batch


def decoder_stages(calls: list[Call], ends: dict[tuple[int, ...], str], seen: Trace) -> list[str]:
    """Return the last layer of each resolution after the coarsest map, except the output's resolution.

    A model without a decoder (an FCN) has no such layers; there, the stages before the coarsest one are tapped.
    """
    areas = {call.name: prod(size) for call in calls if (size := resolution(call.output, seen))}
    order = list(areas)
    coarsest = max((order.index(name) for name in order if areas[name] == min(areas.values())), default=0)
    names = [name for size, name in ends.items() if size != tuple(seen.scores.shape[2:])]
    return [name for name in names if order.index(name) > coarsest] or names[:-1] or names


def stage_ends(calls: list[Call], seen: Trace) -> dict[tuple[int, ...], str]:
    """Return resolution -> its last layer, in the order of these layers."""
    sizes = {call.name: resolution(call.output, seen) for call in seen.calls}
    within = sizes_within(calls, sizes)
    ends: dict[tuple[int, ...], str] = {}
    last: dict[tuple[int, ...], Call] = {}
    for call in calls:
        size = sizes[call.name]
        blocks = (block for block in enclosing(call.name) if block in within and not is_list(seen.layers[block]))
        if size and not any(sizes.get(block) != size and len(within[block]) < 3 for block in blocks):
            if seen.dense and size in last and hands_on(call, last[size]):
                continue
            ends.pop(size, None)  # a later layer at this resolution moves it to the end
            ends[size], last[size] = call.name, call
    return ends


def hands_on(call: Call, before: Call) -> bool:
    """Whether a module that is not around another one returns that one's output as it is (MONAI's skip layers)."""
    return call.name not in enclosing(before.name) and shares_memory(call.output, before.output)


def sizes_within(calls: list[Call], sizes: dict[str, tuple[int, ...] | None]) -> dict[str, set[tuple[int, ...]]]:
    """Return, for every module with layers inside, the resolutions of these layers.

    A block with one or two resolutions may end at another resolution than a layer inside it (a strided residual block,
    an attention). That layer is then on a branch or in the middle of a step, and the whole block is the better tap.
    """
    within: dict[str, set[tuple[int, ...]]] = {}
    for call in calls:
        for block in enclosing(call.name):
            within.setdefault(block, set()).update({size} if (size := sizes[call.name]) else ())
    return within


def enclosing(name: str) -> list[str]:
    """Return the names of the modules around a layer.

    >>> enclosing("layer1.0.conv1")
    ['layer1', 'layer1.0']
    """
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def is_list(layer: nn.Module) -> bool:
    """Whether a module is only a container of layers, not a block of its own type."""
    return type(layer) in (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def resolution(output: object, seen: Trace) -> tuple[int, ...] | None:
    """Return the height and width of a map [B,C,H,W] or [B,H,W,C], found by the aspect ratio of the input; else None.

    Maps inside a block (ConvNeXt) or in whole stages (Swin) may be [B,H,W,C]. Of both layouts, the right one has the
    aspect ratio of the input and is not larger. Volumes that match neither are read as [B,C,D,H,W].
    """
    if isinstance(output, Tensor) and seen.dense and output.ndim == seen.scores.ndim == 3:
        return tuple(output.shape[2:])  # a signal has no aspect ratio
    if not isinstance(output, Tensor) or (image := image_of(seen, output.ndim)) is None:
        return None
    if max(output.shape[2:]) == 1:  # a vector in the shape of a map
        return None
    fitting = readings(output.shape, image).values()
    smaller = (size for size in fitting if all(a <= b for a, b in zip(size, image.shape[2:], strict=True)))
    return next(smaller, tuple(output.shape[2:]) if output.ndim == 5 else None)


def block_thirds(model: nn.Module, calls: list[Call]) -> list[str]:
    """Return the layers that end the first and the second third of the most repeated kind of layer in one module."""
    called = {call.layer: index for index, call in enumerate(calls)}
    groups: list[list[nn.Module]] = []
    for parent in model.modules():
        kinds: dict[type, list[nn.Module]] = {}
        for child in parent.children():
            if child in called:
                kinds.setdefault(type(child), []).append(child)
        groups += kinds.values()
    if not groups:
        return []
    blocks = max(groups, key=lambda group: (len(group), max(called[layer] for layer in group)))
    blocks.sort(key=lambda layer: called[layer])
    ends = sorted({ceil(len(blocks) * third / 3) - 1 for third in (1, 2)})
    return [calls[called[blocks[end]]].name for end in ends]
