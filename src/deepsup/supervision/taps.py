"""A module of any model -> the tensor it puts out during a forward pass, once, unchanged and with its gradient."""

from typing import Any

import torch
from torch import Tensor, nn

from deepsup.errors import SupervisionError


class Tap:
    """A forward hook that keeps what one layer puts out while the supervised net runs, and nothing at other times.

    An object, not a closure, so that ``copy.deepcopy`` and pickling of a net give the copy taps of its own.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.clone = False  # the layer's output is changed in place later on: keep a copy of it
        self._armed = False
        self._caught: list[Any] = []
        self._version = 0

    def __call__(self, _layer: nn.Module, _args: Any, output: Any) -> None:
        """Keep ``output``; torch calls this after the layer's forward."""
        if not self._armed:
            return
        self._caught.append(output.clone() if self.clone and isinstance(output, Tensor) else output)
        self._version = version_of(output)

    def arm(self) -> None:
        """Start to listen: what the layer puts out from now on is kept."""
        self._caught, self._armed = [], True

    def disarm(self) -> list[Any]:
        """Stop to listen, let go of everything, and return what was kept."""
        caught, self._caught, self._armed = self._caught, [], False
        return caught

    def check(self, caught: list[Any], batch: int) -> Tensor:
        """Return the one feature tensor [B, ...] among what was kept, or say why there is none."""
        features = one_tensor(self.name, caught, batch)
        if not self.clone and version_of(features) != self._version:
            raise SupervisionError(
                f"the output of layer {self.name!r} is changed in place after the tap (an in-place ReLU, dropout or "
                f"addition), so its companion would see other values than the layer gave; expected an output that "
                f"stays: tap the layer that changes it, or build the model with inplace=False"
            )
        return features

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_armed": False, "_caught": []}  # activations are never copied or pickled


def version_of(output: Any) -> int:
    """Return autograd's count of in-place changes of a tensor, or 0 where none is kept (compiled, inference mode)."""
    if torch.compiler.is_compiling() or not isinstance(output, Tensor) or output.is_inference():
        return 0
    return output._version


def one_tensor(name: str, outputs: list[Any], batch: int) -> Tensor:
    """Return the single feature tensor [B, ...] a layer gave in one forward pass, or say why it cannot be tapped."""
    if not outputs:
        raise SupervisionError(
            f"layer {name!r} is never called in the model's forward; expected a layer that runs once; tap another one"
        )
    if len(outputs) > 1:
        raise SupervisionError(
            f"layer {name!r} is called {len(outputs)} times in one forward, so it has no single output; expected a "
            f"layer that runs once; tap the block around one of the calls, or give each call a module of its own"
        )
    (features,) = outputs
    if not isinstance(features, Tensor):
        raise SupervisionError(
            f"layer {name!r} returns {describe(features)}; expected one tensor; tap a layer inside it or after it "
            f"that returns a tensor"
        )
    if features.ndim < 2 or features.shape[0] != batch or not features.is_floating_point():
        raise SupervisionError(
            f"layer {name!r} returns {describe(features)} for a batch of {batch}; expected a floating-point tensor "
            f"with the batch first: [B,C,H,W], [B,N,D] or [B,D]; tap a layer that keeps the batch"
        )
    return features


def describe(output: Any) -> str:
    """Say in a few words what a layer returned.

    >>> describe((torch.zeros(2, 3), None))
    'a tuple (Tensor [2, 3], NoneType)'
    """
    if isinstance(output, Tensor):
        kind = "" if output.is_floating_point() else f" of {output.dtype}"
        return f"Tensor {list(output.shape)}{kind}"
    if isinstance(output, list | tuple):
        return f"a {type(output).__name__} ({', '.join(describe(part) for part in output)})"
    return type(output).__name__
