"""A name, and sizes -> the network of that name, or what there is to say about it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count as counting
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from deepsup.errors import NetworkError, nearest
from deepsup.networks import conventional, dropconnect, fast, maxout, nin, stochastic_pooling
from deepsup.networks.checks import count
from deepsup.networks.table import MapVanishedError, Network, Table


@dataclass(frozen=True)
class Spec:
    """One line of the registry: who builds a network, and the sizes its paper had."""

    name: str
    build: Callable[..., tuple[str, ...]]
    in_channels: int
    image_size: int
    source: str
    num_classes: int = 10
    options: Mapping[str, object] = field(default_factory=dict)
    any_size: bool = False


_NIN = "Lin et al. 2014"
_MAXOUT = "Goodfellow et al. 2013"
_POOLING = "Zeiler & Fergus 2013"
_DROPCONNECT = "Wan et al. 2013"
_TREE = "Srivastava & Salakhutdinov 2013"
_LENET = "LeNet, Caffe's sizes"
_FAST = "after Page 2018, cifar10-airbench"

_SPECS = {
    spec.name: spec
    for spec in (
        Spec("cnn", conventional.cnn, 1, 28, _LENET, options=conventional.CNN_OPTIONS),
        Spec("dropconnect-cifar10", dropconnect.dropconnect_cifar, 3, 24, _DROPCONNECT, options=dropconnect.OPTIONS),
        Spec("dropconnect-svhn", dropconnect.dropconnect_svhn, 3, 28, _DROPCONNECT, options=dropconnect.OPTIONS),
        Spec("fast", fast.fast, 3, 32, _FAST, options=fast.OPTIONS, any_size=True),
        Spec("maxout-cifar10", maxout.maxout_cifar, 3, 32, _MAXOUT),
        Spec("maxout-mnist", maxout.maxout_mnist, 1, 28, _MAXOUT),
        Spec("maxout-svhn", maxout.maxout_svhn, 3, 32, _MAXOUT),
        Spec("nin-cifar10", nin.nin_cifar, 3, 32, _NIN, options=nin.OPTIONS, any_size=True),
        Spec("nin-cifar100", nin.nin_cifar, 3, 32, _NIN, num_classes=100, options=nin.OPTIONS, any_size=True),
        Spec("nin-mnist", nin.nin_mnist, 1, 28, _NIN, options=nin.OPTIONS, any_size=True),
        Spec("nin-svhn", nin.nin_svhn, 3, 32, _NIN, options=nin.OPTIONS, any_size=True),
        Spec("stochastic-pooling-cifar10", stochastic_pooling.stochastic_pooling, 3, 32, _POOLING),
        Spec("stochastic-pooling-mnist", stochastic_pooling.stochastic_pooling, 1, 28, _POOLING),
        Spec("stochastic-pooling-svhn", stochastic_pooling.stochastic_pooling_svhn, 3, 32, _POOLING),
        Spec("tree-cifar100", conventional.tree_cifar100, 3, 32, _TREE, num_classes=100),
    )
}


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


def list_networks() -> list[str]:
    """Return the names that ``create_network`` knows, sorted."""
    return sorted(_SPECS)


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
    table = Table(channels, size)
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
    )


def _spec(name: str) -> Spec:
    if name not in _SPECS:
        raise NetworkError(f"no network is called {name!r}; {nearest(str(name), list_networks(), most=len(_SPECS))}")
    return _SPECS[name]


def _known(spec: Spec, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options if the network has them all."""
    known = [*spec.options, "num_classes", "in_channels", "image_size"]
    for option in options:
        if option not in known:
            raise NetworkError(f"{spec.name} has no option {option!r}; {nearest(option, known)}")
    return options


def _minimum(spec: Spec, options: dict[str, Any]) -> int:
    """The smallest image the rows can be built for. Tried, on no memory, rather than derived: one truth, the table."""
    with torch.device("meta"):
        for size in counting(1):
            try:
                spec.build(Table(spec.in_channels, size), spec.num_classes, **options)
            except MapVanishedError:
                continue
            return size
    raise AssertionError("unreachable")
