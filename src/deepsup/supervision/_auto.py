"""Choose the layers to tap from a traced forward pass (``at="auto"``)."""

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import replace
from itertools import combinations, pairwise
from math import ceil, prod

import torch
from torch import Tensor, nn

from deepsup.errors import SupervisionError
from deepsup.supervision._companions import Companion
from deepsup.supervision._inspection import norm_layers
from deepsup.supervision._layout import image_of, layout_of, positions, readings
from deepsup.supervision._scores import shares_memory
from deepsup.supervision._taps import describe
from deepsup.supervision._trace import Call, Trace

EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
SEQUENCE_FIRST = (nn.RNNBase, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)  # unless batch_first=True
NORMS = ("torch.nn.modules.batchnorm", "torch.nn.modules.instancenorm", "torch.nn.modules.normalization")
DROPOUTS = "torch.nn.modules.dropout"
STRETCH = 3
"""So many layers with weights may follow one another without a companion, if nothing else keeps their gradient up."""


def choose_companions(model: nn.Module, seen: Trace, companion: Companion) -> dict[str, Companion]:
    """Return tap -> companion for ``choose_taps``; where a layer returns a tuple, it gets the first part."""
    outputs = {call.name: call.output for call in seen.calls}
    first = replace(companion, select=0) if companion.select is None else companion
    return {name: companion if isinstance(outputs[name], Tensor) else first for name in choose_taps(model, seen)}


def choose_taps(model: nn.Module, seen: Trace) -> list[str]:
    """Return the names of the layers to tap.

    1. Of a dense model: the stages of its decoder, which are the last layers of each resolution after the coarsest.
    2. Of a net with maps: the last layer of each resolution, except the last resolution, which is the output's. Without
       norm layers and skip connections also layers in between, one after at most three convolutions.
    3. Of a net with one resolution or none (a transformer, an LSTM, an MLP), or with a few convolutions before a
       larger stack of layers on sequences: its main blocks (``main_blocks``), at the ends of the first and the second
       third, or, if they shorten the sequence, the last block of each length; of a deep MLP without norm layers one
       after at most three layers. Never the last block, which comes right
       before the output, unless it is the only one. After a single linear layer or convolution, its activation.

    Raise an error if there is nothing like this, or if the main blocks cannot be tapped.
    """
    counts = Counter(call.layer for call in seen.calls)
    tappable = [call for call in seen.hidden_calls if counts[call.layer] == 1 and is_feature(call, seen)]
    calls = [call for call in tappable if isinstance(call.output, Tensor)]
    ends = stage_ends(calls, seen)
    if seen.dense:
        taps = decoder_stages(calls, ends, seen)
    else:
        blocks = main_blocks(model, seen)
        stages = map_stages(blocks, ends)
        own = block_ends(blocks, calls, seen) if all(call in tappable for call in blocks) else []
        taps = own if not stages or (own and follow(blocks, stages, seen)) else between(stages, ends, calls, seen)
        taps = on_the_stream(taps, blocks, calls, seen)
    if not taps:
        raise SupervisionError(nothing_found(model, tappable, seen))
    return taps


def nothing_found(model: nn.Module, tappable: list[Call], seen: Trace) -> str:
    """Return the message for a model in which no layer is a sensible tap."""
    names = [call.name if isinstance(call.output, Tensor) else f"{call.name} (select=0)" for call in tappable]
    blocks = [] if seen.dense else main_blocks(model, seen)
    why = ""
    if blocks:
        runs = sum(call.layer is blocks[0].layer for call in seen.calls)
        shown = f"runs {runs} times" if runs > 1 else f"returns {describe(blocks[0].output)}, the batch not first"
        why = f": of its main blocks, {blocks[0].name!r} {shown}"
        why += f" (at={blocks[0].name!r} gives each of them a companion)" if runs > 1 else ""
    return (
        f"at='auto' finds no hidden layer in {type(model).__name__} that is a sensible tap{why}; expected blocks that "
        f"run once and return [B, ...]; name the layers yourself, at=[...]: {', '.join(names) or 'none'} can be tapped"
    )


def features_of(call: Call) -> Tensor | None:
    """Return the tensor that a layer returns, alone or as the first part of a tuple (an LSTM's output sequence)."""
    output = call.output[0] if isinstance(call.output, list | tuple) and call.output else call.output
    return output if isinstance(output, Tensor) else None


def is_feature(call: Call, seen: Trace) -> bool:
    """Whether a layer's output can feed a companion: a floating-point tensor with the batch first."""
    features, batch = features_of(call), seen.scores.shape[0]
    if isinstance(call.layer, SEQUENCE_FIRST) and not getattr(call.layer, "self_attn", call.layer).batch_first:
        return False  # also where the sequence happens to be as long as the batch
    if features is None or not features.is_floating_point() or features.ndim < 2 or len(features) != batch:
        return False
    return not seen.tokens or (features.ndim == 3 and features.shape[:2] == seen.scores.shape[:2])


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
    """Return resolution -> its last layer, in the order of these layers.

    A few pixels less, as after a convolution without padding, are no new resolution of a classifier.
    """
    sizes = {call.name: resolution(call.output, seen) for call in seen.calls}
    within = sizes_within(calls, sizes)
    ends: dict[tuple[int, ...], Call] = {}
    stage: tuple[int, ...] = ()
    latest: tuple[int, ...] = ()
    for call in calls:
        size = sizes[call.name]
        blocks = (block for block in enclosing(call.name) if block in within and not is_list(seen.layers[block]))
        if size and not any(sizes.get(block) != size and len(within[block]) < 3 for block in blocks):
            stage = stage if size == latest or (not seen.dense and only_trimmed(latest, size)) else size
            latest = size
            if stage not in ends or not adds_nothing(call, ends[stage], seen):
                ends.pop(stage, None)  # a later layer at this resolution moves it to the end
                ends[stage] = call
    return {size: call.name for size, call in ends.items()}


def only_trimmed(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Whether a map has become smaller, but not to a half or so.

    >>> only_trimmed((12, 12), (10, 10)), only_trimmed((12, 12), (6, 6)), only_trimmed((13, 13), (7, 7))
    (True, False, False)
    """
    return len(before) == len(after) and all(
        max(0.6 * b, ceil(b / 2)) < a < b for b, a in zip(before, after, strict=True)
    )


def adds_nothing(call: Call, before: Call, seen: Trace) -> bool:
    """Whether a later layer is no better tap: one that begins the step after a block, or that hands its input on.

    The first is a norm or projection at the start of a down- or upsampling. The second is a module of a dense model,
    not around the other one, that returns its output as it is (MONAI's skip layers).
    """
    begins = is_block(before.layer) and not is_block(call.layer) and call.given is before.output
    same = call.name not in enclosing(before.name) and shares_memory(call.output, before.output)
    return (begins and not siblings(call, before)) or (seen.dense and same and call.version == before.version)


def is_block(layer: nn.Module) -> bool:
    """Whether a module has several others inside."""
    return len([*layer.modules()]) > 2


def siblings(a: Call, b: Call) -> bool:
    """Whether two layers are in the same module."""
    return a.name.rpartition(".")[0] == b.name.rpartition(".")[0]


def is_norm(layer: nn.Module) -> bool:
    """Whether a layer is one of torch's norms."""
    return any(each.__module__ in NORMS for each in type(layer).mro())


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


def main_blocks(model: nn.Module, seen: Trace) -> list[Call]:
    """Return the blocks of the net's main structure, in order: like modules in one parent, one after the other.

    Blocks on maps or sequences come before layers on vectors, then a repeated structure (several like modules, the only
    one of a list, a recurrent layer) before a single module, then the one with the most weights.
    """
    groups = structures(model, seen)
    if seen.tokens:  # not those of an encoder, whose tokens are others
        groups = (group for group in groups if all(is_feature(call, seen) for call in group))
    return max(groups, key=lambda group: rank(group, model, seen), default=[])


def rank(group: list[Call], model: nn.Module, seen: Trace) -> tuple[bool, bool, int]:
    """Return by what a structure is compared with others: on maps or sequences, repeated, number of weights."""
    first = group[0]
    features, parent = features_of(first), seen.layers.get(first.name.rpartition(".")[0], model)
    sequence = features is not None and features.ndim > 2
    part = isinstance(first.layer, nn.Linear) and sequence and parent is not model  # of an attention or the like
    alone = is_list(parent) and len([*parent.children()]) == 1
    repeated = not part and (len(group) > 1 or alone or isinstance(first.layer, nn.RNNBase))
    return sequence, repeated, sum(weights(call.layer) for call in group)


def structures(model: nn.Module, seen: Trace) -> Iterator[list[Call]]:
    """Yield the like modules with weights in every module, in the order of their calls; not if they run in parallel."""
    order = {call.layer: index for index, call in reversed(list(enumerate(seen.hidden_calls)))}
    for parent in model.modules():
        kinds: dict[Hashable, list[Call]] = {}
        for child in sorted((each for each in elements(parent) if each in order), key=order.__getitem__):
            if weights(child):
                kinds.setdefault(kind(child), []).append(seen.hidden_calls[order[child]])
        for group in kinds.values():
            if not any(a.given is b.given is not None for a, b in combinations(group, 2)):
                yield group


def elements(parent: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules in a module, and those of the lists of lists in it (a transformer's blocks by stages)."""
    for child in parent.children():
        yield child
        if type(parent) is type(child) is nn.ModuleList:
            yield from elements(child)


def weights(layer: nn.Module) -> int:
    """Return the number of weights of a layer and those inside it, without embeddings, norms and biases."""
    own = (p for each in layer.modules() if not isinstance(each, EMBEDDINGS) for p in each.parameters(recurse=False))
    return sum(p.numel() for p in own if p.ndim > 1)


def kind(layer: nn.Module) -> Hashable:
    """Return what like modules have in common: their type, of a list of layers also the kinds in it."""
    inside = frozenset(map(kind, layer.children())) if is_list(layer) else None
    return type(layer), inside


def map_stages(blocks: list[Call], ends: dict[tuple[int, ...], str]) -> list[str]:
    """Return the ends of all resolutions but the last; of all, if another main block without a map comes after it."""
    names = list(ends.values())
    more = any(call.name == names[-1] for call in blocks[:-1]) if names else False
    return names if more else names[:-1]


def between(stages: list[str], ends: dict[tuple[int, ...], str], calls: list[Call], seen: Trace) -> list[str]:
    """Return the ends of the stages, and layers within long plain stages if the model has no norm layers."""
    if norm_layers(seen):
        return stages
    order = {call.name: index for index, call in enumerate(seen.calls)}
    starts = [-1, *(order[name] for name in ends.values())]
    taps = set(stages)
    for start, end in pairwise(starts):
        layers = [call for call in calls if start < order[call.name] <= end and not is_block(call.layer)]
        layers = [call for call in layers if weights(call.layer) and resolution(call.output, seen)]
        if all(leads_to(a, b, seen) for a, b in pairwise(layers)):
            taps.update(after_activation(layers[cut - 1], calls, seen) for cut in cuts(len(layers), 1))
    return sorted(taps, key=order.__getitem__)


def cuts(layers: int, least: int) -> list[int]:
    """Return after which layers to cut a stack into equal parts of at most ``STRETCH`` layers, ``least`` or more parts.

    >>> cuts(3, 1), cuts(4, 1), cuts(7, 1), cuts(6, 3)
    ([], [2], [2, 5], [2, 4])
    """
    parts = max(ceil(layers / STRETCH), least)
    return [round(layers * part / parts) for part in range(1, parts)]


def leads_to(a: Call, b: Call, seen: Trace) -> bool:
    """Whether b gets the output of a, through nothing but layers without weights and ReLU: no skip, no branch."""
    makers = {id(call.output): call for call in seen.calls if call.given is not call.output}
    given = b.given
    while given is not a.output:
        if isinstance(given, Tensor) and given.shape == a.output.shape and torch.equal(given, a.output.relu()):
            return True
        maker = makers.get(id(given))
        if maker is None or weights(maker.layer):
            return False
        given = maker.given
    return True


def on_the_stream(taps: list[str], blocks: list[Call], calls: list[Call], seen: Trace) -> list[str]:
    """Return the taps that are no residual branches; if all are, the layer whose output the first branch gets.

    Where the model's own forward adds a block to the stream, x + 0.3 block(x), the block returns the branch alone, and
    a companion there pulls at a signal that the model has made small (dev/LOG.md).
    """
    branches = {call.name for call in calls if is_branch(call, seen)}
    if not branches:
        return taps
    like = {call.name for call in blocks} if branches & {call.name for call in blocks} else set()
    kept = [name for name in taps if name not in branches | like]
    first = next(call for call in seen.calls if call.name in branches)
    makers = [call.name for call in calls if call.output is first.given and not is_branch(call, seen)]
    return kept or makers[:1]


def is_branch(call: Call, seen: Trace) -> bool:
    """Whether a later layer gets the sum of this layer's input and a multiple of its output."""
    given, output = call.given, call.output
    if not isinstance(given, Tensor) or not isinstance(output, Tensor) or given.shape != output.shape:
        return False
    if given is output or not given.is_floating_point():
        return False
    later = [other.given for other in seen.calls[seen.calls.index(call) + 1 :] if isinstance(other.given, Tensor)]
    alike = [x for x in later if x.shape == output.shape and x is not output and x is not given][:3]
    return any(multiple(x - given, output) and not multiple(x, output) for x in alike)


def multiple(a: Tensor, b: Tensor) -> bool:
    """Whether a is b times a number that is not 0.

    >>> multiple(torch.tensor([1.0, 2.0]), torch.tensor([2.0, 4.0])), multiple(torch.ones(2), torch.tensor([1.0, 2.0]))
    (True, False)
    """
    length, square = torch.linalg.vector_norm(a), b.square().sum()
    if not length > 0 or not square > 0:
        return False
    return bool(torch.linalg.vector_norm(a - (a * b).sum() / square * b) <= 1e-4 * length)


def follow(blocks: list[Call], stages: list[str], seen: Trace) -> bool:
    """Whether the blocks return sequences (not maps or vectors) and end after all these layers."""
    names = [call.name for call in seen.calls]
    sequences = all((x := features_of(call)) is not None and x.ndim == 3 for call in blocks)
    return sequences and names.index(blocks[-1].name) > max(map(names.index, stages))


def block_ends(blocks: list[Call], calls: list[Call], seen: Trace) -> list[str]:
    """Return the last block of each length except the last one; with one length only, those that end a third."""
    ends = list({length(call, seen): call for call in blocks}.values())[:-1]
    if not ends:
        ends = [blocks[end] for end in ends_of_parts(blocks, seen) if 0 <= end < max(len(blocks) - 1, 1)]
    return [after_activation(call, calls, seen) for call in ends]


def ends_of_parts(blocks: list[Call], seen: Trace) -> list[int]:
    """Return the places of the blocks that end a third; of a deep stack of layers without norms, a shorter part."""
    bare = not norm_layers(seen) and not any(is_block(call.layer) for call in blocks)
    if bare and len(blocks) > 3 * STRETCH and all(leads_to(a, b, seen) for a, b in pairwise(blocks)):
        return [cut - 1 for cut in cuts(len(blocks), 3)]
    return sorted({ceil(len(blocks) * third / 3) - 1 for third in (1, 2)})


def length(call: Call, seen: Trace) -> tuple[int, ...]:
    """Return the number of positions of a block's output, () for a vector or if it is unknown."""
    features = features_of(call)
    if features is None or features.ndim < 3:
        return ()
    try:
        return tuple(positions(features.shape, layout_of(call, features, seen)))
    except SupervisionError:
        return ()


def after_activation(call: Call, calls: list[Call], seen: Trace) -> str:
    """Return the last of the norms and activations that directly follow a single layer in its parent, or the block."""
    if is_block(call.layer):
        return call.name
    for after in seen.calls[seen.calls.index(call) + 1 :]:
        if after not in calls or not siblings(call, after) or not is_activation(after, call):
            break
        call = after
    return call.name


def is_activation(call: Call, before: Call) -> bool:
    """Whether a layer is a norm or keeps the shape without parameters, and is no dropout."""
    plain = not any(True for _ in call.layer.parameters()) and type(call.layer).__module__ != DROPOUTS
    return (plain or is_norm(call.layer)) and call.output.shape == getattr(before.output, "shape", None)
