"""A supervised net <-> plain settings and tensors, so that it can be saved and comes back bit for bit.

K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.nn.parameter import is_lazy

from deepsup.errors import DeepsupError, RunError, SupervisionError
from deepsup.io import faults_named
from deepsup.supervision._companions import Companion
from deepsup.supervision._pretrained import SETTINGS, card_of, sizes_of
from deepsup.supervision._taps import place_of

if TYPE_CHECKING:
    from deepsup.supervision._attach import DeeplySupervised

REMEDY = "expected a folder that DeeplySupervised.save_pretrained made (of a run: Run.from_pretrained)"
LARGEST = 2**14  # positions along a side of a grid
_TEXT = (str, type(None))
SHAPE: dict[str, Any] = {
    "model": str,
    "network": (dict, type(None)),
    "num_classes": int,
    "taps": [
        {
            "name": str,
            "companion": {"pool": (str, int), "hidden": [int], "length": (float, type(None)), "init": str,
                          "rate": float, "join": str,
                          "select": (int, str, type(None)), "layout": str},
            "layout": _TEXT, "grid": (list, type(None)), "clone": bool,
        }
    ],
    "output_layer": _TEXT,
    "channels_last": bool,
}  # fmt: skip
"""What the settings hold; see ``io.check``."""


def packed(net: DeeplySupervised) -> tuple[dict[str, Any], dict[str, Tensor], str]:
    """Return the settings, the tensors and the model card of a supervised net."""
    state = net.state_dict()
    if not net._sized or any(is_lazy(tensor) for tensor in state.values()):
        raise SupervisionError(
            "the net has not run yet, so its companions have no size; expected a net that ran once; give supervise an "
            "example=, or call it on a batch"
        )
    if net.dense:
        raise SupervisionError(
            "the net scores every position, which save_pretrained does not know yet; save its state_dict(), or the "
            "stripped model's"
        )
    others = [name for name in net.taps if place_of(name).call or not is_plain(net.head(name).companion)]
    if others:
        raise SupervisionError(
            f"the companion at {others[0]!r} is on one call of several, or has head=, detach= or shared=, which "
            f"save_pretrained does not know; save the stripped model and net.save_companions(...)"
        )
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise SupervisionError(f"the state {name!r} is a {type(value).__name__}; expected tensors only")
    kind = type(net.trunk).__name__
    settings = {
        "model": kind,
        "network": getattr(net.trunk, "creation", None),
        "num_classes": net.num_classes,
        "taps": [tap_settings(net, name) for name in net.taps],
        "output_layer": net._output_layer,
        "channels_last": lies_channels_last(net),
    }
    given = "" if settings["network"] else f", model={kind}()"
    code = f'from deepsup import DeeplySupervised\n\nnet = DeeplySupervised.from_pretrained("FOLDER OR NAME"{given})'
    lines = [f"{net.num_classes} classes", f"companions at {', '.join(net.taps) or 'no layer'}"]
    return settings, state, card_of(f"{kind} with deep supervision", lines, code)


def is_plain(companion: Companion) -> bool:
    """Whether a companion is a linear one with a classifier of its own."""
    return companion.head in ("auto", "linear") and not companion.detach and not companion.shared


def tap_settings(net: DeeplySupervised, name: str) -> dict[str, Any]:
    """Return what is needed to make a companion again."""
    head = net.head(name)
    companion = {name: each for name, each in asdict(head.companion).items() if name in SHAPE["taps"][0]["companion"]}
    companion["hidden"] = list(head.companion.hidden)
    grid = None if head.grid is None else list(head.grid)
    return {
        "name": name, "companion": companion, "layout": head.layout, "grid": grid, "clone": net._taps[name].clone,
    }  # fmt: skip


def lies_channels_last(net: nn.Module) -> bool:
    """Whether convolutions are stored channels last: kernels differ in their rounding by the order in memory."""
    maps = [weight for weight in net.parameters() if weight.ndim == 4 and weight.shape[2:].numel() > 1]
    return any(weight.stride(1) == 1 for weight in maps)


def unpacked(
    settings: Mapping[str, Any], tensors: Mapping[str, Tensor], model: nn.Module | Callable[[], nn.Module] | None
) -> tuple[nn.Module, dict[str, Companion]]:
    """Return the trunk, without its weights, and its companions.

    model: the caller's own, or what makes one; None for a network of deepsup. What the settings name is never imported.
    """
    weights = {name.removeprefix("trunk."): each for name, each in tensors.items() if name.startswith("trunk.")}
    trunk = own_trunk(model) if model is not None else registered_trunk(settings, weights)
    check_fits(sizes_of(trunk.state_dict()), sizes_of(weights), f"the model {type(trunk).__name__}")
    companions = {each["name"]: companion_of(each, tensors, settings["num_classes"]) for each in settings["taps"]}
    match_precision(trunk, weights)
    return trunk, companions


def restored(net: DeeplySupervised, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> DeeplySupervised:
    """Give a net its sizes and weights; return it in evaluation mode."""
    try:
        restore_sizes(net, settings, tensors)
        check_fits(sizes_of(net.state_dict()), sizes_of(tensors), "the net")  # before the first weight is overwritten
        net.load_state_dict(dict(tensors))
    except (AttributeError, RuntimeError, DeepsupError) as error:
        net.strip()
        raise RunError(
            f"the settings and weights do not fit ({' '.join(str(error).split())[:200]}); {REMEDY}"
        ) from error
    if settings["channels_last"]:
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload] # torch's stubs do not know it
    return net.eval()


def own_trunk(model: Any) -> nn.Module:
    """Return the caller's model: itself, or what its class or factory gives."""
    trunk = model() if callable(model) and not isinstance(model, nn.Module) else model
    if not isinstance(trunk, nn.Module):
        raise SupervisionError(
            f"model is a {type(trunk).__name__}; expected an nn.Module, or a callable that gives one"
        )
    return trunk


def registered_trunk(settings: Mapping[str, Any], weights: Mapping[str, Tensor]) -> nn.Module:
    """Build a network of deepsup by its name; first without memory, to see that the weights are its own."""
    creation = settings["network"]
    if creation is None:
        raise RunError(
            f"the folder has a {settings['model']}, which is not a network of deepsup; loading runs no code from the "
            f"folder: give the model, from_pretrained(..., model={settings['model']}())"
        )
    if not isinstance(creation.get("name"), str) or ":" in creation["name"]:
        raise RunError(
            f"the folder names a network {creation.get('name')!r}, which is not part of deepsup; loading imports "
            f"nothing that a folder names: give the model, from_pretrained(..., model=...)"
        )
    from deepsup.trainer.networks import create_network  # the one reach upstairs of this room, when it is called

    with faults_named(SETTINGS, RunError, REMEDY), few_parameters(64 * (len(weights) + 16)):
        with torch.device("meta"):
            expected = sizes_of(create_network(**creation).state_dict())
        check_fits(expected, sizes_of(weights), f"the network {creation['name']}")
        return create_network(**creation)


@contextmanager
def few_parameters(most: int) -> Iterator[None]:
    """Refuse to build a net with many more layers than there are weights in its file."""
    made = 0

    def count(_module: nn.Module, _name: str, _parameter: nn.Parameter | None) -> None:
        nonlocal made
        made += 1
        if made > most:
            raise RunError(
                "the network has many more layers than the file has weights; expected the file of that network"
            )

    handle = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        handle.remove()


def check_fits(expected: Mapping[str, torch.Size], given: Mapping[str, torch.Size], what: str) -> None:
    """Raise an error that names the first tensor that is missing, unknown or of another shape."""
    for name in [*expected, *given]:
        if name not in given:
            raise RunError(f"the weights have no {name!r}, which is in {what}; expected the weights of the same model")
        if name not in expected:
            raise RunError(f"the weights have {name!r}, which is not in {what}; expected the weights of the same model")
        if expected[name] != given[name]:
            raise RunError(
                f"{name!r} is {list(given[name])} in the weights and {list(expected[name])} in {what}; expected the "
                f"weights of the same model"
            )


def companion_of(each: Mapping[str, Any], tensors: Mapping[str, Tensor], classes: int) -> Companion:
    """Return a companion; its widths must be those of its weights, before anything of their size is made."""
    companion = Companion(**each["companion"])
    prefix = f"heads.{each['name'].replace('.', '/')}"
    widths = [*companion.hidden, classes]
    names = [*(f"{prefix}.hidden.{place}.0.weight" for place in range(len(widths) - 1)), f"{prefix}.classifier.weight"]
    shapes = [tuple(tensors[name].shape) if name in tensors else () for name in names]
    fits = all(len(shape) == 2 and shape[0] == width for shape, width in zip(shapes, widths, strict=True))
    if not fits or any(after[1] != before[0] for before, after in pairwise(shapes)):
        raise RunError(
            f"the companion at {each['name']!r} has widths {widths}, its weights are {shapes}; save it again"
        )
    return companion


def match_precision(trunk: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Give every tensor of the trunk the type of its weights: a half-precision net comes back as one."""
    for name, tensor in trunk.state_dict(keep_vars=True).items():
        if tensor.dtype != weights[name].dtype:
            tensor.data = tensor.data.to(weights[name].dtype)


def restore_sizes(net: DeeplySupervised, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Set what a first forward pass has found, so that the net does not depend on its next one."""
    for each in settings["taps"]:
        head, grid = net.head(each["name"]), each["grid"]
        pool = head.companion.pool
        most = pool if isinstance(pool, int) else LARGEST if pool == "auto" else 0
        if each["layout"] not in (None, "channels_first", "channels_last"):
            raise RunError(f"layout {each['layout']!r}; expected channels_first or channels_last")
        if grid is not None and not (1 <= len(grid) <= 3 and all(type(n) is int and 1 <= n <= most for n in grid)):
            raise RunError(f"a grid of {grid}; expected up to three numbers of at most {most}")
        head.layout, head.grid = each["layout"], None if grid is None else tuple(grid)
        net._taps[each["name"]].clone = each["clone"]
        first = "hidden.0.0" if head.companion.hidden else "classifier"
        weight = tensors[f"heads.{each['name'].replace('.', '/')}.{first}.weight"]
        head.to(weight.dtype)
        head.first(torch.zeros(1, weight.shape[1], dtype=weight.dtype, device=head.first.weight.device))
        head.slow_down()
    output = settings["output_layer"]
    if output is not None and not isinstance(getattr(net.trunk.get_submodule(output), "weight", None), Tensor):
        raise RunError(f"the output layer {output!r} has no weight")
    net._output_layer, net._sized = output, True
