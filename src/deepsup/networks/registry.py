"""A name, and sizes -> the network of that name, or what there is to say about it."""

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from deepsup.errors import NetworkError, nearest
from deepsup.networks.numbers import count
from deepsup.networks.rows import MapVanishedError, Network, Rows
from deepsup.networks.specs import SPECS, Spec


@dataclass(frozen=True)
class NetworkDescription:
    """What a listing says of a network; ``dataclasses.asdict`` of it is JSON."""

    name: str
    source: str
    parameters: int
    multiply_adds: int
    """Of one image through convolutions and linear maps in evaluation."""
    taps: tuple[str, ...]
    num_classes: int
    in_channels: int
    image_size: int
    minimum_image_size: int
    options: dict[str, object]
    note: str
    """What a reader of a table should know: sizes that were chosen, figures that are votes."""


def list_networks() -> list[str]:
    """Return the names that ``create_network`` knows, sorted."""
    return sorted(SPECS)


def create_network(
    name: str,
    num_classes: int | None = None,
    in_channels: int | None = None,
    image_size: int | None = None,
    **options: Any,
) -> Network:
    """Build the network called ``name`` for square images; what is not given is as in the network's own paper.

    >>> network = create_network("nin-cifar10", num_classes=100)
    >>> network.taps
    ('conv1', 'conv2', 'conv3')

    ``options`` are the network's own: ``describe(name).options`` lists them with their defaults.
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
    return Network(name, table, taps, minimum, spec.any_size)


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
    """Return the options if the network has them all."""
    known = [*spec.options, "num_classes", "in_channels", "image_size"]
    for option in options:
        if option not in known:
            raise NetworkError(f"{spec.name} has no option {option!r}; {nearest(option, known)}")
    return options


def _minimum(spec: Spec, options: dict[str, Any]) -> int:
    """The smallest image the rows can be built for. Tried, on no memory, rather than derived: one truth, the table."""
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
