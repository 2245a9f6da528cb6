"""Linear layers that an optimizer moves at a rate of their own, also on whole maps.

B batch, C channels, D features, K classes.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepsup.supervision._gradient import slowed

LARGE = 12_000  # values per image


class SlowLinear(nn.Linear):
    """A linear layer whose weights w are ``rate`` times its parameters v: see ``Slowed``.

    ``layer.weight`` and ``layer.bias`` are w, and so is what a state_dict holds; an optimizer has v. A rate that is a
    power of 2 makes both ways exact.
    """

    rate = 1.0

    @torch.no_grad()
    def slow_down(self, rate: float) -> None:
        """Set the rate; the weights stay as they are."""
        for v in self.parameters():
            v.mul_(self.rate / rate)
        self.rate = rate

    @property
    def weight(self) -> Tensor:  # type: ignore[override] # a parameter in nn.Linear
        """The classifier's w, [K,D]."""
        return self._slowed("weight")

    @property
    def bias(self) -> Tensor:  # type: ignore[override] # a parameter in nn.Linear
        """The bias, [K]."""
        return self._slowed("bias")

    def _slowed(self, name: str) -> Tensor:
        v = self._parameters.get(name)
        if v is None:  # while nn.Linear makes its parameters
            raise AttributeError(name)
        if is_sharded(v):  # outside the forward pass of FSDP, which looks for the parameter itself
            return v
        return slowed(v, self.rate)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.rate != 1:
            own = {name: v for name, v in self._parameters.items() if v is not None}
            destination.update({f"{prefix}{name}": v.detach() * self.rate for name, v in own.items()})

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        given = {key: state_dict[key] for name in self._parameters if (key := f"{prefix}{name}") in state_dict}
        state_dict.update({key: w if self.rate == 1 else w / self.rate for key, w in given.items()})
        super()._load_from_state_dict(state_dict, prefix, *args)
        state_dict.update(given)


def is_sharded(v: Tensor) -> bool:
    """Whether a parameter is a shard of FSDP's, a DTensor."""
    return hasattr(v, "placements")


class FlatLinear(SlowLinear):
    """A linear layer on flattened features, [B, ...] -> [B,K]: ``nn.Linear`` on ``features.flatten(1)``.

    Flattening a map whose memory is channels last would copy it, and its gradient would come back in the other order
    and be copied twice more. Here the weights, which are fewer, are permuted instead. Results agree up to rounding.
    """

    def forward(self, features: Tensor) -> Tensor:
        """Features [B, ...] -> [B,K]."""
        weight = self.weight
        if channels_lie_last(features):
            weight = weight.reshape(-1, *features.shape[1:]).movedim(1, -1).flatten(1)
            features = features.movedim(1, -1)
        return F.linear(features.flatten(1), weight, self.bias)


class LazyFlatLinear(nn.LazyLinear, SlowLinear):
    """A ``FlatLinear`` that gets its input size from the first features."""

    cls_to_become = FlatLinear
    forward = FlatLinear.forward  # type: ignore[assignment] # of the first call: torch takes it before it changes class

    def initialize_parameters(self, features: Tensor) -> None:
        """Set the input size to that of the flattened features."""
        super().initialize_parameters(features.flatten(1))


def channels_lie_last(features: Tensor) -> bool:
    """Whether features [B,C, ...] are large and stored as [B, ...,C]; by the stride, which all transforms keep.

    A small map is flattened as it is, so that older records can be repeated to the digit.
    """
    return features.ndim > 2 and features.stride(1) == 1 and features.shape[1:].numel() >= LARGE
