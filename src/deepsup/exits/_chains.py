"""Find the layers that only run their children one after the other, by one forward pass; and make them do just that.

Such a layer can be cut between any two of its children whatever else its forward contains, such as checks of its input.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from deepsup.supervision import undisturbed


def in_order(self: Any, features: Any) -> Any:
    """Run the children one after the other; the forward of a layer that ``simplify`` has changed."""
    for name in self.chain_of_children:
        features = getattr(self, name)(features)
    return features


def simplify(model: nn.Module, around: Iterable[str], example: Sequence[Tensor]) -> None:
    """Give those layers of a model that only run their children in order a forward that shows it, in place.

    around: the layers of interest; only the layers that contain one of them are changed.
    """
    names = {
        "",
        *(".".join(parts[:end]) for parts in (name.split(".") for name in around) for end in range(len(parts))),
    }
    for name in names:
        layer = model.get_submodule(name)
        if type(layer) is nn.Sequential:
            continue
        children = chain(model, layer, example)
        if children:
            layer.chain_of_children = children  # type: ignore[assignment] # of a module: plain data
            layer.__class__ = type(type(layer).__name__, (type(layer),), {"forward": in_order})


def chain(model: nn.Module, layer: nn.Module, example: Sequence[Tensor]) -> tuple[str, ...]:
    """Return the children that make up a layer's forward, each on the output of the one before, or ()."""
    calls: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = []
    alive: list[Any] = []  # an object that is gone could leave its id to another

    def record(name: str) -> Any:
        def note(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            alive.extend((*args, output))
            calls.append((name, marks(args, kwargs), marks((output,), {})))

        return note

    def entered(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        alive.extend(args)
        calls.append(("", (), marks(args, kwargs)))

    handles = [layer.register_forward_pre_hook(entered, with_kwargs=True)]
    handles += [child.register_forward_hook(record(name), with_kwargs=True) for name, child in layer.named_children()]
    handles += [layer.register_forward_hook(record(""), with_kwargs=True)]
    try:
        with undisturbed(model):
            model(*example)
    except Exception:  # an example that does not fit is no chain; torch.fx then says what is wrong
        return ()
    finally:
        for handle in handles:
            handle.remove()
    return children_of(calls)


def children_of(calls: Sequence[tuple[str, tuple[int, ...], tuple[int, ...]]]) -> tuple[str, ...]:
    """Return the names of a chain of calls: entered, children, left."""
    names = tuple(name for name, _, _ in calls[1:-1])
    if not names or "" in names or len(set(names)) != len(names) or calls[0][0] or calls[-1][0]:
        return ()
    passed = calls[0][2]
    for _, given, returned in calls[1:-1]:
        if len(given) != 2 or given != passed:
            return ()
        passed = returned
    return names if calls[-1][2] == passed else ()


def marks(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
    """Return what identifies a call's arguments: each object, and how often it was changed in place."""
    if kwargs:
        return ()
    return tuple(mark for arg in args for mark in (id(arg), arg._version if isinstance(arg, Tensor) else 0))


def shape_example(inputs: Sequence[tuple[Sequence[int], torch.dtype]], like: nn.Module) -> list[Tensor]:
    """Return zeros of the shapes that a net was sized with, on the device of a model."""
    device = next((parameter.device for parameter in like.parameters()), torch.device("cpu"))
    return [torch.zeros(tuple(shape), dtype=dtype, device=device) for shape, dtype in inputs]
