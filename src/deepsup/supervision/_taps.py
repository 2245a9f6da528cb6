"""Capture the output of one layer during a forward pass, unchanged and with its gradient."""

import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from deepsup.errors import SupervisionError
from deepsup.supervision._gradient import Join, Shares, joined


class Place(NamedTuple):
    """A tap's name in its parts: the layer, and which of its calls or time steps, counted from 1; 0 for the only."""

    layer: str
    call: int = 0


def place_of(name: str) -> Place:
    """Return the parts of a tap's name.

    >>> place_of("h.0"), place_of("block#2")
    (Place(layer='h.0', call=0), Place(layer='block', call=2))
    """
    layer, mark, call = name.rpartition("#")
    return Place(layer, int(call)) if mark and call.isdecimal() and int(call) else Place(name)


Captures = list[tuple[Any, object, bool]]
"""What a layer returned, call by call: with its version, and whether it had a gradient at that time."""


class ThreadCaptures(threading.local):
    """What a tap has captured in the current thread; None while it does not listen there."""

    def __init__(self) -> None:  # per thread; a class attribute as the default would make torch.compile recompile
        self.caught: Captures | None = None


class Tap:
    """A forward hook that captures the output of one layer while the supervised net runs, and only then.

    It is an object, not a closure, so that ``copy.deepcopy`` and pickling give a copied net its own taps. Each thread
    has its own captures, so that one net may run in several threads at once.

    call: which call of the layer it captures, counted from 1; 0 for the only one. calls: how many there are.
    step: which time step of a recurrent layer it captures, counted from 1; 0 for the whole output.
    """

    def __init__(self, name: str, select: int | str | None = None, bounded: bool = False, call: int = 0) -> None:
        self.name = name
        self.select = select
        self.bounded = bounded  # the companion's gradient joins the layer's with a bounded length
        self.call, self.calls = call, 1
        self.step, self.batch_at = 0, 0  # the time step, and the dimension of the batch: 1 of [T,B,D]
        self.shares: Shares | None = None  # takes note of the gradients of a step
        self.clone = False  # the layer's output is changed in place later: capture a copy
        self._captures = ThreadCaptures()

    def __call__(self, _layer: nn.Module, _args: Any, output: Any) -> Any:
        """Capture ``output`` or its selected part; torch calls this after the layer's forward.

        Return the output for the layers above, if it is another one: the same values, joined with the companion's.
        """
        caught = self._captures.caught
        if caught is None:
            return None
        if self.call and len(caught) != self.call - 1:
            caught.append((None, 0, False))
            return None
        part = part_of(self.name, output, self.select)
        graded = isinstance(part, Tensor) and part.requires_grad and torch.is_grad_enabled()
        if graded and (self.bounded or self.shares is not None):
            above, part = joined(part, Join(self.name, self.bounded, self.clone, self.shares))
            caught.append((part, version_of(part), graded))
            return with_part(output, self.select, above)
        caught.append((part.clone() if self.clone and isinstance(part, Tensor) else part, version_of(part), graded))
        return None

    def listen(self) -> Captures | None:
        """Start listening in this thread; return the state that ``stop`` restores, for nested calls."""
        before, self._captures.caught = self._captures.caught, []
        return before

    def stop(self, before: Captures | None) -> Captures:
        """Stop listening, release the captures and return them."""
        caught, self._captures.caught = self._captures.caught or [], before
        return caught

    def check(self, caught: Captures, batch: int) -> Tensor:
        """Return the one captured feature tensor [B, ...]; raise an error if there is none."""
        if self.call:
            if len(caught) != self.calls:
                raise SupervisionError(
                    f"layer {place_of(self.name).layer!r} ran {times(len(caught))}; expected {self.calls}, as on the "
                    f"first batch, whose calls have the companions; keep the number of calls, or supervise the model "
                    f"again"
                )
            caught = [caught[self.call - 1]]
        features = self.at_step(one_tensor(self.name, [part for part, *_ in caught], batch, self.batch_at))
        if not self.clone and version_of(caught[0][0]) != caught[0][1]:
            raise SupervisionError(
                f"the output of layer {self.name!r} is changed in place after the tap (an in-place ReLU, dropout or "
                f"addition), so its companion would see other values than the layer returned; expected an output "
                f"that stays unchanged: tap the layer that changes it, or build the model with inplace=False"
            )
        return features

    def joins_late(self, caught: Captures) -> bool:
        """Whether the layer ran without a gradient, so that the companion's cannot be bounded where the two meet."""
        return self.bounded and not caught[max(self.call - 1, 0)][2]

    def at_step(self, features: Tensor) -> Tensor:
        """Return the tap's time step of a recurrent layer's outputs, [B,T,D] or [T,B,D] -> [B,D]; else all of it."""
        if not self.step:
            return features
        time = 1 - self.batch_at
        if features.shape[time] < self.step:
            raise SupervisionError(
                f"the sequence has {features.shape[time]} time steps, the tap is {self.name!r}; expected at least "
                f"{self.step}; pad the batch, or tap earlier steps"
            )
        return features.select(time, self.step - 1)

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value for name, value in self.__dict__.items() if name != "_captures"
        }  # activations are not copied

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _captures=ThreadCaptures())


def tap_on(name: str, trunk: nn.Module, select: int | str | None, bounded: bool) -> Tap:
    """Return a tap by its name: on a layer, on one of its calls, or on a time step of a recurrent layer."""
    place = place_of(name)
    layer = trunk.get_submodule(place.layer)
    if not place.call or not isinstance(layer, nn.RNNBase):
        return Tap(name, select, bounded, place.call)
    tap = Tap(name, 0 if select is None else select, bounded)
    tap.step, tap.batch_at = place.call, 0 if layer.batch_first else 1
    return tap


def part_of(name: str, output: Any, select: int | str | None) -> Any:
    """Return the part of a layer's output that a companion selects: by index, by key, or by attribute."""
    if select is None:
        return output
    if isinstance(output, Tensor):
        raise SupervisionError(
            f"layer {name!r} returns one tensor {list(output.shape)}, its companion selects the part {select!r}; "
            f"expected a tuple or a mapping; leave select= out"
        )
    try:
        by_field = isinstance(select, str) and not isinstance(output, Mapping)
        return getattr(output, str(select)) if by_field else output[select]
    except (LookupError, AttributeError, TypeError):
        raise SupervisionError(
            f"layer {name!r} returns {describe(output)}, which has no part {select!r}; expected the index or the key "
            f"of one; give it as Companion(select=...)"
        ) from None


def with_part(output: Any, select: int | str | None, part: Tensor) -> Any:
    """Return a layer's output with one part replaced: a tuple is made anew, anything else changed in place."""
    if select is None:
        return part
    if isinstance(output, tuple):
        parts = list(output)
        place = output._fields.index(select) if isinstance(select, str) else select  # type: ignore[attr-defined]
        parts[place] = part
        return type(output)(*parts) if hasattr(output, "_fields") else tuple(parts)
    if isinstance(select, str) and not isinstance(output, Mapping):
        setattr(output, select, part)
    else:
        output[select] = part
    return output


def version_of(output: Any) -> object:
    """Return autograd's count of in-place changes of a tensor (of each part), or 0 if there is none.

    There is none inside compiled code and in inference mode.
    """
    if torch.compiler.is_compiling():
        return 0
    if isinstance(output, list | tuple | Mapping):
        return tuple(version_of(part) for part in (output.values() if isinstance(output, Mapping) else output))
    return output._version if isinstance(output, Tensor) and not output.is_inference() else 0


def one_tensor(name: str, outputs: list[Any], batch: int, batch_at: int = 0) -> Tensor:
    """Return the only feature tensor [B, ...] of a layer in one forward pass; raise an error if it cannot be tapped.

    batch_at: the dimension of the batch.
    """
    if not outputs:
        raise SupervisionError(
            f"layer {name!r} is never called in the model's forward; expected a layer that runs once; tap another one"
        )
    if len(outputs) > 1:
        raise SupervisionError(
            f"layer {name!r} is called {len(outputs)} times in one forward, so it has no single output; expected a "
            f"layer that runs once, or one of its calls; give example=, or name the calls, at=['{name}#1', ...]"
        )
    (features,) = outputs
    if not isinstance(features, Tensor):
        raise SupervisionError(
            f"layer {name!r} returns {describe(features)}; expected one tensor; choose a part of it, "
            f"Companion(select={first_key(features)!r}), or tap a layer inside it or after it that returns a tensor"
        )
    if features.ndim < 2 or features.shape[batch_at] != batch or not features.is_floating_point():
        raise SupervisionError(
            f"layer {name!r} returns {describe(features)} for a batch of {batch}; expected a floating-point tensor "
            f"with the batch first: [B,C,H,W], [B,N,D] or [B,D]; tap a layer that keeps the batch"
        )
    return features


def times(count: int) -> str:
    """Return a number of calls in words.

    >>> times(1), times(3)
    ('once', '3 times')
    """
    return "once" if count == 1 else f"{count} times"


def describe(output: Any) -> str:
    """Describe briefly what a layer returned.

    >>> describe((torch.zeros(2, 3), None))
    'a tuple (Tensor [2, 3], NoneType)'
    """
    if isinstance(output, Tensor):
        kind = "" if output.is_floating_point() else f" of {output.dtype}"
        return f"Tensor {list(output.shape)}{kind}"
    if isinstance(output, list | tuple):
        return f"a {type(output).__name__} ({', '.join(describe(part) for part in output)})"
    if isinstance(output, Mapping):
        parts = ", ".join(f"{key!r}: {describe(part)}" for key, part in output.items())
        return f"a {type(output).__name__} {{{parts}}}"
    return type(output).__name__


def first_key(output: Any) -> Any:
    """Return the index or the key of an output's first tensor, or else of its first part."""
    parts = (
        list(output.items())
        if isinstance(output, Mapping)
        else list(enumerate(output if isinstance(output, list | tuple) else ()))
    )
    keys = [key for key, part in parts if isinstance(part, Tensor)] + [key for key, _ in parts]
    return keys[0] if keys else 0
