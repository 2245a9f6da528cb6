"""Companions: map the output of a layer to class scores, one set per sample or, for a dense model, per position.

B batch, C channels, H W height and width, N tokens, D features, K classes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parameter import is_lazy

from deepsup.errors import SupervisionError, nearest
from deepsup.supervision._layer_layouts import Layout
from deepsup.supervision._slow_linear import LazyFlatLinear, SlowLinear

GRID = 4
MOST_CLASSES = 4096  # with more classes, companions are the model's own last layers
SHARE, SMALL = 4, 500_000  # companions have at most a quarter of the model's parameters, or so many
POOLS = ("auto", "none", "avg", "max")
INITS = ("torch", "caffe", "zero")
JOINS = ("bounded", "sum")
LAYOUTS = ("auto", "channels_first", "channels_last")
HEADS = ("auto", "linear", "output")


@dataclass(frozen=True)
class Companion:
    """How the output of a hidden layer becomes class scores, and how the companion's gradient joins the layer's.

    A companion pools, flattens and scales the output, then applies hidden layers and a linear classifier. The defaults
    teach the model from its first step, at the learning rate that it has without companions. The classifier has torch's
    weights and moves slowly; its gradient joins the model's without making it longer. ``Companion.paper()`` is the
    paper's companion, which flattens and classifies. In a dense model, which scores every position (segmentation), a
    companion does too, with 1x1 convolutions and no pooling.

    pool: ``"auto"`` chooses by the model. With norm layers, a map is averaged to 4x4 and a sequence to 4 tokens;
        without, nothing is averaged. Both shrink further until all companions together have at most a quarter of the
        model's parameters (or 500,000, if that is more). A number s averages to at most s x s; ``"none"`` keeps every
        value; ``"avg"`` and ``"max"`` leave one value per channel (of [B,C,H,W]) or feature (of [B,N,D], over the
        tokens). Vectors [B,D] are never pooled, and neither are the maps of a dense model.
    hidden: widths of ReLU layers between the features and the classifier.
    length: the features of each sample are scaled to this length (L2 norm), so that the companion's loss is not
        steeper for a wide layer than for a narrow one; ``None`` leaves them unscaled. In a dense model it is the root
        mean square over the positions.
    init: ``"torch"`` is torch's initialization; ``"caffe"`` is that of the authors' code: weights uniform within
        sqrt(3 / (K * features)), biases 0; ``"zero"`` initializes the classifier to 0.
    rate: how far every optimizer moves the companion's own weights, as a multiple of what it does without. The
        parameters are v, the weights in use w = rate v, and v gets the gradient of w unchanged; so ``net.parameters()``
        in one group is right for SGD, Adam and Muon. A slow classifier makes the layer adapt to it.
    join: how the companion's gradient joins that of the layers above, at the tapped output: ``"bounded"`` adds them
        and shortens the sum to the longer of the two; ``"sum"`` adds them, the exact gradient of the objective.
    select: the part of the layer's output that the companion gets, if that is a tuple, a list or a mapping: an index
        or a key.
    layout: the position of the channels, for pooling: ``"channels_first"`` ([B,C,H,W], [B,C,L]), ``"channels_last"``
        ([B,H,W,C], tokens [B,N,D]), or ``"auto"``: found from a forward pass of the model.
    head: ``"linear"`` is the classifier described above; ``"output"`` the model's own last layers, such as the final
        norm and the unembedding, with no weights of its own; a list of layer names, those layers of the model; a
        callable makes a module of your own: it gets the shape of one sample's features and the number of classes.
        ``"auto"`` is linear up to 4,096 classes and ``"output"`` above. ``pool``, ``hidden``, ``length``, ``init`` and
        ``rate`` are for the linear one.
    detach: the companion only watches: its loss does not reach the layer (a linear probe that trains along).
    shared: all calls of a layer that runs several times have one companion; by default each call has its own.
    """

    pool: Literal["auto", "none", "avg", "max"] | int = "auto"
    hidden: tuple[int, ...] = ()
    length: float | None = None
    init: Literal["torch", "caffe", "zero"] = "torch"
    rate: float = 1 / 8
    join: Literal["bounded", "sum"] = "bounded"
    select: int | str | None = None
    layout: Literal["auto", "channels_first", "channels_last"] = "auto"
    head: str | Sequence[str] | Callable[[tuple[int, ...], int], nn.Module] = "auto"
    detach: bool = False
    shared: bool = False

    def __post_init__(self) -> None:
        whole = isinstance(self.pool, Integral) and not isinstance(self.pool, bool)
        if self.pool not in POOLS and not (whole and int(self.pool) > 0):
            raise SupervisionError(
                f"pool={self.pool!r} is not a way to pool; expected 'auto', 'none', 'avg', 'max' or a size such as 4"
            )
        try:
            object.__setattr__(self, "hidden", tuple(self.hidden))
        except TypeError:
            raise SupervisionError(f"hidden={self.hidden!r}; expected a tuple of widths such as (128,)") from None
        if not all(isinstance(width, Integral) and width > 0 and width is not True for width in self.hidden):
            raise SupervisionError(f"hidden={self.hidden!r}; expected widths of at least 1 such as (128,)")
        if self.length is not None and not (
            isinstance(self.length, Real) and self.length is not True and 0 < self.length < math.inf
        ):
            raise SupervisionError(f"length={self.length!r}; expected a number above 0, or None for no scaling")
        if isinstance(self.rate, bool) or not isinstance(self.rate, Real) or not 0 < self.rate < math.inf:
            raise SupervisionError(f"rate={self.rate!r}; expected a number above 0, such as 1/8")
        if self.join not in JOINS:
            raise SupervisionError(f"join={self.join!r}; {nearest(str(self.join), JOINS)}")
        if self.init not in INITS:
            raise SupervisionError(f"init={self.init!r}; {nearest(str(self.init), INITS)}")
        if self.layout not in LAYOUTS:
            raise SupervisionError(f"layout={self.layout!r}; {nearest(str(self.layout), LAYOUTS)}")
        if self.select is not None and (isinstance(self.select, bool) or not isinstance(self.select, Integral | str)):
            raise SupervisionError(
                f"select={self.select!r}; expected the index or the key of a part, such as 0 or 'last_hidden_state'"
            )
        self.check_head()

    def check_head(self) -> None:
        """Raise an error for settings of the kind of head that do not exist."""
        if isinstance(self.head, list | tuple) and self.head and all(isinstance(name, str) for name in self.head):
            object.__setattr__(self, "head", tuple(self.head))
        elif isinstance(self.head, nn.Module):
            raise SupervisionError(
                f"head is a {type(self.head).__name__}; expected a callable that makes one: "
                f"head=lambda shape, classes: ..."
            )
        elif self.head not in HEADS and not callable(self.head):
            raise SupervisionError(
                f"head={self.head!r} is no callable and no list of the model's layers; {nearest(str(self.head), HEADS)}"
            )
        for name in ("detach", "shared"):
            if not isinstance(getattr(self, name), bool):
                raise SupervisionError(f"{name}={getattr(self, name)!r}; expected True or False")

    def kind_of_head(self, num_classes: int) -> str:
        """Return ``linear``, ``output`` or ``own``."""
        if isinstance(self.head, str) and self.head != "auto":
            return self.head
        if isinstance(self.head, tuple):
            return "output"
        return "own" if callable(self.head) else "output" if num_classes > MOST_CLASSES else "linear"

    @classmethod
    def paper(cls) -> "Companion":
        """Return the paper's companion, for taps after the activation and pooling of a layer."""
        return cls(pool="none", rate=1.0, join="sum")

    @classmethod
    def caffe(cls) -> "Companion":
        """Return the companion of the authors' Caffe code, for taps on raw convolution outputs."""
        return cls(pool="none", init="caffe", rate=0.001, join="sum")


class Head(nn.Module):
    """The companion of one tap: features [B, ...] -> scores [B,K] or [B,K, ...]. ``classifier`` holds the paper's w_m.

    Its first layer gets its input size from the first features, as ``nn.LazyLinear`` does, so an optimizer created
    before that already has its parameters.
    """

    def __init__(self, tap: str, companion: Companion, num_classes: int) -> None:
        super().__init__()
        self.tap = tap
        self.companion = companion
        self.layout: Layout | None = None if companion.layout == "auto" else companion.layout
        widths = [*companion.hidden, num_classes]
        layers: list[nn.Linear] = [LazyFlatLinear(widths[0])]
        layers += [SlowLinear(before, after) for before, after in pairwise(widths)]
        self.hidden = nn.Sequential(*(nn.Sequential(layer, nn.ReLU()) for layer in layers[:-1]))
        self.classifier = layers[-1]
        self.dense = False  # whether it scores every position, once it is known
        self.tokens = False  # whether these are the tokens of a sequence, [B,L,D] -> [B,L,K]
        self.grid: tuple[int, ...] | None = None  # the size of a pooled map, once it is known

    @property
    def first(self) -> nn.Linear:
        """The layer that gets the flattened features."""
        return next(module for module in self.modules() if isinstance(module, nn.Linear))

    def trained_parameters(self) -> list[nn.Parameter]:
        """Return the parameters of the classifier."""
        return list(self.classifier.parameters())

    def needs_layout(self, features: Tensor) -> bool:
        """Whether the layout matters and is still unknown."""
        return self.layout is None and (self.dense or self.companion.pool != "none") and features.ndim > 2

    @torch.no_grad()
    def size(self, features: Tensor, most: int = GRID) -> None:
        """Set the input size of the first layer from ``features`` and initialize the layers.

        most: the side of a grid, for ``pool="auto"``.
        """
        self.grid = self.grid_of(features, most)
        new = is_lazy(self.first.weight)  # not if a state_dict was loaded before the first forward pass
        features = features.to(self.first.weight.device, self.first.weight.dtype)
        self.classifier(self.hidden(self.maps(features).flatten(2)[:, :, 0])) if self.dense else self(features)
        if new and self.companion.init == "zero":
            nn.init.zeros_(self.classifier.weight)
            nn.init.zeros_(self.classifier.bias)
        if new and self.companion.init == "caffe":
            for layer in self.modules():
                if isinstance(layer, nn.Linear):
                    bound = math.sqrt(3 / (layer.out_features * layer.in_features))
                    nn.init.uniform_(layer.weight, -bound, bound)
                    nn.init.zeros_(layer.bias)
        self.slow_down()

    def slow_down(self) -> None:
        """Give all layers the companion's rate."""
        for layer in self.modules():
            if isinstance(layer, SlowLinear):
                layer.slow_down(self.companion.rate)

    def grid_of(self, features: Tensor, most: int) -> tuple[int, ...] | None:
        """Return the size that a map is pooled to, if it is pooled to a grid; ``most`` for ``pool="auto"``."""
        if self.dense or features.ndim == 2 or self.companion.pool in ("none", "avg", "max"):
            return None
        side = most if self.companion.pool == "auto" else int(self.companion.pool)
        positions = features.shape[1:-1] if self.layout == "channels_last" else features.shape[2:]
        return tuple(min(side, extent) for extent in positions)

    def parameters_with(self, features: Tensor, most: int) -> int:
        """Return the number of parameters that the companion has with a grid of so many cells per side."""
        channels = features.shape[-1 if self.layout == "channels_last" else 1]
        grid = self.grid_of(features, most)
        inputs = features.shape[1:].numel() if grid is None else channels * math.prod(grid)
        if self.dense or self.companion.pool in ("avg", "max"):
            inputs = channels
        widths = [inputs, *self.companion.hidden, self.classifier.out_features]
        return sum((before + 1) * after for before, after in pairwise(widths))

    def forward(self, features: Tensor) -> Tensor:
        """Features [B, ...] -> scores [B,K]; of a dense model [B,C, ...] -> [B,K, ...]; tokens [B,L,D] -> [B,L,K]."""
        if self.dense:
            scores = self.score_positions(self.maps(features))
            return scores.movedim(1, -1) if self.tokens else scores
        pooled = pool(features, self.companion.pool, self.layout, self.grid)
        expected, given = self.first.in_features, pooled.shape[1:].numel()
        if expected != 0 and expected != given:  # "in" fails on the sizes of a compiled net
            raise SupervisionError(
                f"layer {self.tap!r} gives {given} values per image ({list(features.shape)}), its companion "
                f"was built for {expected}; expected images of the same size as before; use a pooled companion, "
                f"Companion(pool='avg'), for changing sizes"
            )
        pooled = self.in_own_precision(pooled)
        if self.companion.length is not None:
            pooled = scaled(pooled, self.companion.length)
        return self.classifier(self.hidden(pooled))  # type: ignore[no-any-return] # a module's call is untyped

    def score_positions(self, maps: Tensor) -> Tensor:
        """Maps [B,C, ...] -> scores [B,K, ...]."""
        maps = self.in_own_precision(maps)
        first, *others = [*(block[0] for block in self.hidden), self.classifier]  # type: ignore[index] # a Sequential
        scores = at_positions(first, maps, self.companion.length)
        for layer in others:
            scores = at_positions(layer, scores.relu())
        return scores

    def maps(self, features: Tensor) -> Tensor:
        """Return features of a map as [B,C, ...]."""
        return features.movedim(-1, 1) if self.layout == "channels_last" else features

    def in_own_precision(self, features: Tensor) -> Tensor:
        """Return features in the companion's precision: a model may cast its activations."""
        autocast = torch.is_autocast_enabled(features.device.type)
        return features if autocast else features.to(self.first.weight.dtype)

    def extra_repr(self) -> str:
        """Show the pooling when the net is printed."""
        layout = f", layout={self.layout!r}" if self.layout else ""
        return ("dense" if self.dense else f"pool={self.companion.pool!r}") + layout


def largest_grid(heads: Sequence[tuple[Head, Tensor]], trunk: int, normalized: bool) -> int:
    """Return the side of the grids with which all heads stay small beside the trunk's number of parameters.

    normalized: whether the model has norm layers; then it is at most 4.
    """
    extents = [max(maps.shape[1:]) for _, maps in heads if maps.ndim > 2]
    sides = range(GRID if normalized else max(extents, default=1), 1, -1)
    bound = max(trunk // SHARE, SMALL)
    return next((s for s in sides if sum(head.parameters_with(maps, s) for head, maps in heads) <= bound), 1)


def at_positions(layer: nn.Linear, maps: Tensor, length: float | None = None) -> Tensor:
    """Apply a linear layer at every position, [B,C, ...] -> [B,D, ...]: a 1x1 convolution.

    length: the root mean square, over the positions of a sample, of the length to which its features are scaled. The
        layer's output is scaled instead, since it is smaller.
    """
    if maps.stride(1) == 1:  # the channels of a position lie together in memory: neither way copies the maps
        scores = F.linear(maps.movedim(1, -1), layer.weight).movedim(-1, 1)
    else:
        size = (maps.shape[0], len(layer.weight), *maps.shape[2:])  # len(maps) would fix the batch of an export
        scores = (layer.weight @ maps.flatten(2)).reshape(size)
    if length is not None:
        scores = (scores * factor_to(maps, length * maps.shape[2:].numel() ** 0.5)).to(scores.dtype)
    return scores + layer.bias.reshape(-1, *[1] * (maps.ndim - 2))


def scaled(features: Tensor, length: float) -> Tensor:
    """Scale the features [B, ...] of each sample to the same L2 norm; zeros have no direction and stay 0.

    The gradient sees half of the scaling. With all of it, the companion could turn the features but never lengthen
    them, and a model on a plateau stays there longer than without companions; with none of it, steps at high learning
    rates diverge sooner (dev/LOG.md).
    """
    return (features * factor_to(features, length)).to(features.dtype)


def factor_to(features: Tensor, length: float) -> Tensor:
    """Return the factor [B,1, ...] that scales the features of each sample to a length, with half of its gradient."""
    dims = tuple(range(1, features.ndim))
    exact = torch.promote_types(features.dtype, torch.float32)  # in half precision squares and factors could overflow
    norm: Tensor = torch.linalg.vector_norm(features, dim=dims, keepdim=True, dtype=exact)
    bounded = norm.clamp(min=1e-6)
    halved = (bounded * bounded.detach()).sqrt()  # the norm, with half of its gradient
    return torch.where(norm > 0, length / halved, 0.0)


def pool(
    features: Tensor,
    how: Literal["auto", "none", "avg", "max"] | int,
    layout: Layout | None,
    grid: tuple[int, ...] | None,
) -> Tensor:
    """Pool a map or a sequence over its positions, [B,C,...] or, channels last, [B,...,C]; vectors stay unchanged.

    grid: the pooled size if ``how`` is ``"auto"`` or a number; the same for maps of every size.
    """
    if how == "none" or features.ndim == 2:
        return features
    maps = features.movedim(-1, 1) if layout == "channels_last" else features  # [B,C,H,W]
    positions = tuple(range(2, maps.ndim))
    if how == "avg":  # in memory order, so that the gradient has the same order: adding two orders is slow
        last = maps.stride(1) == 1
        return maps.movedim(1, -1).mean(tuple(p - 1 for p in positions)) if last else maps.mean(positions)
    if how == "max":
        return maps.amax(positions)
    assert grid is not None, "a head is sized before it runs"
    if len(grid) != len(positions):
        raise SupervisionError(
            f"the layer gives {list(features.shape)}, its companion was built for a map of {len(grid)} dimensions; "
            f"expected features of the same kind as before"
        )
    if maps.shape[2:] == grid:  # the average would copy the map, slowly
        return maps
    average: Any = {3: F.adaptive_avg_pool1d, 4: F.adaptive_avg_pool2d, 5: F.adaptive_avg_pool3d}[maps.ndim]
    pooled: Tensor = average(maps, grid)
    return pooled
