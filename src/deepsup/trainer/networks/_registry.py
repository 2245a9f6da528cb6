"""Create, list and describe networks by name."""

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from deepsup.errors import NetworkError, nearest
from deepsup.trainer.networks._numbers import count
from deepsup.trainer.networks._rows import MapVanishedError, Network, Rows
from deepsup.trainer.networks._specs import SPECS, Spec


@dataclass(frozen=True)
class NetworkDescription:
    """The description of a network; ``dataclasses.asdict`` of it is JSON."""

    name: str
    source: str
    parameters: int
    multiply_adds: int
    """Of the convolutions and linear layers, for one image in evaluation mode."""
    taps: tuple[str, ...]
    num_classes: int
    in_channels: int
    image_size: int
    minimum_image_size: int
    options: dict[str, object]
    note: str
    """A remark for readers of a table: which sizes are our choice, which published errors are those of ensembles."""


def list_networks() -> list[str]:
    """Return the names of all networks, sorted."""
    return sorted(SPECS)


def create_network(
    name: str,
    num_classes: int | None = None,
    in_channels: int | None = None,
    image_size: int | None = None,
    **options: Any,
) -> Network:
    """Build the network called ``name`` for square images; the defaults are those of the network's paper.

    >>> network = create_network("nin-cifar10", num_classes=100)
    >>> network.taps
    ('conv1', 'conv2', 'conv3')

    ``describe(name).options`` lists the options of a network with their defaults.
    """
    spec = _spec(name)
    options = {**spec.options, **_known(spec, options)}
    classes = spec.num_classes if num_classes is None else count("num_classes", num_classes)
    channels = spec.in_channels if in_channels is None else count("in_channels", in_channels)
    size = spec.image_size if image_size is None else count("image_size (one side of a square image)", image_size)
    minimum = _minimum(spec, options)
    if size < minimum:
        raise NetworkError(
            f"image_size {size} is too small for {name}: its convolutions and poolings need at least {minimum}; "
            f"enlarge or pad the images to {minimum}x{minimum}"
        )
    table = Rows(channels, size)
    taps = spec.build(table, classes, **options)
    network = spec.network(name, table, taps, minimum, spec.any_size)
    network.creation = {"name": name, "num_classes": classes, "in_channels": channels, "image_size": size, **options}
    return network


def describe(name: str, **sizes_and_options: Any) -> NetworkDescription:
    """Return parameters, multiply-adds, taps and defaults of a network, without allocating its weights."""
    spec = _spec(name)
    with torch.device("meta"):
        network = create_network(name, **sizes_and_options).eval()
        images = torch.empty(1, network.in_channels, network.image_size, network.image_size)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            network(images)
    return NetworkDescription(
        name=name,
        source=spec.source,
        parameters=sum(parameter.numel() for parameter in network.parameters()),
        multiply_adds=counter.get_total_flops() // 2,  # torch counts a multiplication and an addition as two
        taps=network.taps,
        num_classes=network.num_classes,
        in_channels=network.in_channels,
        image_size=network.image_size,
        minimum_image_size=network.minimum_image_size,
        options={**spec.options, **{key: sizes_and_options[key] for key in spec.options if key in sizes_and_options}},
        note=spec.note,
    )


def _spec(name: str) -> Spec:
    if not isinstance(name, str) or name not in SPECS:
        near = nearest(str(name).lower().replace("_", "-"), list_networks(), most=len(SPECS))
        raise NetworkError(f"no network is called {name!r}; {near}")
    return SPECS[name]


def _known(spec: Spec, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options; raise an error if the network lacks one."""
    known = [*spec.options, "num_classes", "in_channels", "image_size"]
    for option in options:
        if option not in known:
            raise NetworkError(f"{spec.name} has no option {option!r}; {nearest(option, known)}")
    return options


def _minimum(spec: Spec, options: dict[str, Any]) -> int:
    """Return the smallest image size, found by trying to build the rows without allocating memory."""
    enough = 1
    while not _fits(spec, options, enough):
        enough *= 2
    sizes = range(enough // 2 + 1, enough + 1)
    return sizes[bisect_left(sizes, True, key=lambda size: _fits(spec, options, size))]


def _fits(spec: Spec, options: dict[str, Any], size: int) -> bool:
    try:
        with torch.device("meta"):
            spec.build(Rows(spec.in_channels, size), spec.num_classes, **options)
    except MapVanishedError:
        return False
    return True
