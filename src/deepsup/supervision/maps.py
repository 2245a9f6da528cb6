"""A map and a linear layer on it -> scores, and a map's average, without moving the map in memory.

Flattening a channels_last map copies it, and its gradient comes back in the other order and is copied twice more. Here
the weights are brought into the map's order instead. And memory as large as a map, asked of the system anew at every
step, costs more than the numbers written to it: the gradient goes into memory that is kept.

B batch, C channels, H W height and width, F = C*H*W features, K classes.
"""

import sys
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

LARGE = (
    12_000  # values an image: below it records made by flattening stay repeatable; what it would gain is not measured
)
ROWS = 8  # images at a time: a product of more leaves the cache and takes twice as long


class Scratch:
    """Memory for the gradient of one map, handed out again once nobody holds the tensor made of it before."""

    def __init__(self) -> None:
        self._memory: np.ndarray[Any, Any] = np.empty(0)
        self._lock = Lock()

    def like(self, features: Tensor) -> Tensor:
        """Return a tensor with the shape, type and memory order of ``features``; its values are anything."""
        ordered = in_memory_order(features)
        kind = torch.empty(0, dtype=features.dtype).numpy().dtype
        with self._lock:
            if (
                (self._memory.shape, self._memory.dtype) != (tuple(ordered.shape), kind)
                or sys.getrefcount(self._memory) > 2  # its own and that of the call
            ):
                self._memory = np.empty(tuple(ordered.shape), kind)
            # a new tensor over the old memory, no view of another one: so autograd adds the trunk's gradient in place
            return torch.from_numpy(self._memory if ordered is features else self._memory.transpose(0, 3, 1, 2))

    def __deepcopy__(self, _seen: dict[int, Any]) -> "Scratch":
        return Scratch()

    def __reduce__(self) -> tuple[type["Scratch"], tuple[()]]:
        return Scratch, ()


def in_memory_order(features: Tensor) -> Tensor:
    """Return the features as they lie in memory: as they are, or [B,C,H,W] in channels_last as [B,H,W,C]."""
    return features if features.is_contiguous() else features.permute(0, 2, 3, 1)


def stays_in_place(features: Tensor) -> bool:
    """Whether the functions below can do it and pay: a large map, eager, on a CPU, in one piece, no other transform."""
    return (
        type(features) in (Tensor, nn.Parameter)
        and features.device.type == "cpu"
        and features.dtype in (torch.float32, torch.float64)
        and features.ndim > 2  # a vector needs none of this
        and features.shape[1:].numel() >= LARGE
        and (features.is_contiguous() or is_channels_last(features))
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._are_functorch_transforms_active()
        and forward_ad._current_level < 0
    )


def is_channels_last(features: Tensor) -> bool:
    """Whether a map [B,C,H,W] lies in memory as [B,H,W,C]."""
    return features.ndim == 4 and features.is_contiguous(memory_format=torch.channels_last)


def is_bare(layer: nn.Linear) -> bool:
    """Whether a layer is the plain product of its own weights: no hooks, no parametrization."""
    return type(layer) is nn.Linear and not (
        layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks
    )


def linear_on_map(features: Tensor, layer: nn.Linear, scratch: Scratch) -> Tensor:
    """Return ``layer(features.flatten(1))``, [B, ...] -> [B,K], to rounding: the sums run in the map's own order."""
    scores: Tensor = _LinearOnMap.apply(features, layer.weight, layer.bias, scratch)  # type: ignore[no-untyped-call]
    return scores


def mean_of_map(features: Tensor, scratch: Scratch) -> Tensor:
    """Return ``features.mean((2, 3))``, [B,C,H,W] -> [B,C]."""
    means: Tensor = _MeanOfMap.apply(features, scratch)  # type: ignore[no-untyped-call]
    return means


class _LinearOnMap(torch.autograd.Function):
    """[B, ...], [K,F], [K] -> [B,K]."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, scratch: Scratch) -> Tensor:
        moved = not features.is_contiguous()
        shaped = weight.reshape(-1, *features.shape[1:])  # [K,C,H,W]
        ordered = (shaped.permute(0, 2, 3, 1) if moved else shaped).flatten(1)  # [K,F] in the order of the map
        ctx.save_for_backward(features, weight, ordered)
        ctx.scratch, ctx.with_bias = scratch, bias is not None
        rows = in_memory_order(features).flatten(1)  # [B,F], a view
        scores = torch.mm(ordered, rows.t()).t().contiguous()  # this way round the product is quicker
        return scores if bias is None else scores.add_(bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        features, weight, ordered = ctx.saved_tensors
        if torch.is_grad_enabled():  # a gradient of the gradient is wanted: the slow, differentiable way
            to_map = (gradient @ weight).view_as(features) if ctx.needs_input_grad[0] else None
            to_weight = gradient.t() @ features.flatten(1)
        else:
            to_map = map_gradient(gradient, ordered, ctx.scratch.like(features)) if ctx.needs_input_grad[0] else None
            to_weight = weight_gradient(gradient, features) if ctx.needs_input_grad[1] else None
        return to_map, to_weight, gradient.sum(0) if ctx.with_bias else None, None


def map_gradient(gradient: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """Write gradient [B,K] times weight [K,F] (in the order of the map) into ``out``; a gated companion's is 0."""
    if not gradient.any():
        return out.zero_()
    rows = in_memory_order(out).flatten(1)
    for start in range(0, len(rows), ROWS):
        torch.mm(gradient[start : start + ROWS], weight, out=rows[start : start + ROWS])
    return out


def weight_gradient(gradient: Tensor, features: Tensor) -> Tensor:
    """Return the gradient of the weights [K,F] in their own order; a gated companion's is 0."""
    classes, shape = gradient.shape[1], features.shape[1:]
    if not gradient.any():
        return features.new_zeros(classes, shape.numel())
    product = torch.mm(gradient.t(), in_memory_order(features).flatten(1))
    if features.is_contiguous():
        return product
    channels, height, width = shape
    return product.view(classes, height, width, channels).permute(0, 3, 1, 2).reshape(classes, -1)


class _MeanOfMap(torch.autograd.Function):
    """[B,C,H,W] -> [B,C]."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, scratch: Scratch) -> Tensor:
        ctx.save_for_backward(features)  # for its shape and order; the trunk holds it anyway
        ctx.scratch = scratch
        return features.mean((2, 3))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (features,) = ctx.saved_tensors
        each = (gradient / features.shape[2:].numel())[:, :, None, None]
        if torch.is_grad_enabled():
            return each.expand_as(features), None
        return ctx.scratch.like(features).copy_(each), None
