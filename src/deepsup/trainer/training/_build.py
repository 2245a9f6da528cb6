"""A config -> what a training is made of: network, supervised net, batches, objective, optimizer. All builders.

C channels, H height, W width.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.module import register_module_parameter_registration_hook

from deepsup.errors import ConfigError, DeepsupError, TrainingError, nearest
from deepsup.objective import LossFunction, Objective, find_loss
from deepsup.supervision import Companion, DeeplySupervised, supervise
from deepsup.trainer.config import Config
from deepsup.trainer.data import IGNORED, Dataset
from deepsup.trainer.networks import Factory, Network, create_network, list_networks, own_network
from deepsup.trainer.networks import _zoo as zoo
from deepsup.trainer.preprocess import AUGMENTATIONS, Normalizer, to_tensor
from deepsup.trainer.training._batches import Batches, scaled
from deepsup.trainer.training._distributed import Processes
from deepsup.trainer.training._muon import Muon

MOST_SIDE = 2**10
"""Pixels: images are scaled to it in batches."""


def build_net(
    config: Config,
    classes: int,
    shape: Sequence[int],
    factory: Factory | None = None,
    most_bytes: int | None = None,
) -> DeeplySupervised:
    """Return the supervised net for images [C,H,W]; what is random in it comes from torch's own generator.

    factory: what makes a network of the user's own; by default what ``config.network`` names is imported.
    most_bytes: what its weights may take; by default the memory of this machine.
    """
    with weights_within(memory_here() if most_bytes is None else most_bytes):
        return _built(config, classes, shape, factory)


def _built(config: Config, classes: int, shape: Sequence[int], factory: Factory | None) -> DeeplySupervised:
    network = build_network(config, classes, shape, factory).to(device_of(config))
    for part in network.modules():
        if isinstance(part, Network):
            part.capped = config.optimizer.cap_norms
    example = torch.zeros(2, *shape, device=device_of(config))
    given = config.supervision
    companion = Companion(
        pool=int(given.pool) if given.pool.isdigit() else given.pool,  # type: ignore[arg-type] # it checks itself
        hidden=given.hidden,
        length=given.companion_length or None,
        init=given.companion_init,
        rate=1.0,  # the optimizer's groups have the companions' learning rate, companion_lr
        join=given.join,
    )
    net = supervise(network, at=taps_of(config, network), num_classes=classes, example=example, companion=companion)
    if config.network.output_init == "zero":
        start_at_zero(net, example)
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload] # torch's stubs do not know it
    check_sides(config, net, example)
    return net


def start_at_zero(net: DeeplySupervised, example: Tensor) -> None:
    """Set the last layer's weights to 0, so that all scores start at 0; refuse a net that would not learn from there.

    A ReLU behind the last layer passes no gradient at 0.
    """
    name = type(net.trunk).__name__
    try:
        layer = net.output_layer
    except DeepsupError as error:
        raise ConfigError(
            f"output_init=zero for {name}, whose last layer is not known ({error}); use output_init=own"
        ) from error
    weights = [each for each in layer.parameters() if each.requires_grad]
    with torch.no_grad():
        for each in weights:
            each.zero_()
    training = net.training
    with torch.random.fork_rng(devices=[]):
        scores = net.eval()(torch.randn(example.shape).to(example)).scores
        gradients = torch.autograd.grad(scores.sum(), weights, allow_unused=True)
    net.train(training)
    if scores.any() or not any(each is not None and each.any() for each in gradients):
        raise ConfigError(
            f"output_init=zero for {name}: its scores then are "
            f"{'not 0' if scores.any() else '0 for good, since what follows the last layer passes no gradient at 0'}; "
            f"expected a net that ends in a linear layer or a convolution, without a ReLU behind it "
            f"(nin: --network-options final_relu=False); use output_init=own"
        )


@contextmanager
def weights_within(most_bytes: int) -> Iterator[None]:
    """Refuse a net whose weights take more memory, before the first of them is written."""
    taken = 0
    refused = TrainingError(
        f"the weights of the net take more than {most_bytes / 2**30:,.1f} GiB; expected them to fit into memory; "
        "choose a smaller network or smaller companions (--network-options, --hidden)"
    )

    def count(_module: nn.Module, _name: str, parameter: nn.Parameter | None) -> None:
        nonlocal taken
        if parameter is not None and parameter.device.type != "meta":
            taken += parameter.nbytes
        if taken > most_bytes:
            raise refused

    handle = register_module_parameter_registration_hook(count)
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError) or "allocate memory" in str(error) or "too large" in str(error):
            raise refused from error
        raise
    finally:
        handle.remove()


def memory_here() -> int:
    """Return the bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**40


@torch.no_grad()
def check_sides(config: Config, net: DeeplySupervised, example: Tensor) -> None:
    """Refuse images of changing size where the net, or a companion on its flattened maps, takes one size only."""
    training = net.training
    if max(config.data.sides, default=0) > MOST_SIDE:
        raise ConfigError(f"sides={config.data.sides}; expected at most {MOST_SIDE:,} pixels")
    for side in config.data.sides:
        try:
            net.eval()(scaled(example, side))
        except (DeepsupError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())[:150]
            raise ConfigError(
                f"sides={config.data.sides}, but {config.network.name} with companions of "
                f"pool={config.supervision.pool} takes no images of {side} ({reason}); expected a net that ends "
                f"in a global pooling, such as fast, and --pool avg"
            ) from error
    net.train(training)


def build_network(config: Config, classes: int, shape: Sequence[int], factory: Factory | None = None) -> nn.Module:
    """Return a registered network, a classifier of torchvision or timm, or what the user's own factory gives."""
    channels, height, width = shape
    name = zoo.full_name(config.network.name)
    if ":" in name:
        return own_network(config, classes, factory)
    if zoo.is_of_zoo(name):
        return zoo.build(name, classes, channels, config.network.options)
    if name not in list_networks():
        raise zoo.unknown(name)
    if height != width:
        side = max(height, width)
        archive = config.data.source.endswith(".npz")
        remedy = f"save the arrays as {side}x{side}" if archive else f"give --image-size {side}"
        raise ConfigError(
            f"images of {height}x{width} for {config.network.name}, which takes square ones; {remedy}, or bring a "
            f"network of your own: --network my_file.py:MyNet"
        )
    return create_network(
        config.network.name, num_classes=classes, in_channels=channels, image_size=height, **config.network.options
    )


def taps_of(config: Config, network: nn.Module) -> str | list[str]:
    """Return the layers to tap: named ones, the network's own, those that "auto" finds, or none."""
    if config.supervision.taps in (("none",), ()):
        return []
    if config.supervision.taps == ("network",):
        return list(network.taps) if isinstance(network, Network) else "auto"
    return "auto" if config.supervision.taps == ("auto",) else list(config.supervision.taps)


def device_of(config: Config) -> torch.device:
    """Return the device, if it is there; ``auto`` is a GPU where there is one."""
    auto = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(auto if config.run.device == "auto" else config.run.device)
    except RuntimeError as error:
        raise ConfigError(f"device={config.run.device!r}; expected auto, cpu, cuda or cuda:N") from error
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device={config.run.device!r}; expected auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise TrainingError(f"device={config.run.device}, but torch finds no CUDA here; use --device cpu")
    if device.type == "cuda" and device.index is None and "LOCAL_RANK" in os.environ:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))  # torchrun: a GPU for each process
        torch.cuda.set_device(device)
    return device


def build_batches(config: Config, data: Dataset, normalize: Normalizer, processes: Processes) -> Batches:
    """Return the batches of the training part, normalised beforehand where that is slow."""
    if config.data.augment not in AUGMENTATIONS:
        raise ConfigError(f"augment={config.data.augment!r}; {nearest(config.data.augment, AUGMENTATIONS)}")
    if data.train.dense and (config.data.augment != "none" or config.data.sides):
        raise ConfigError(
            f"augment={config.data.augment} sides={config.data.sides} for images with masks; expected none: the masks "
            f"would not follow"
        )
    images: Tensor = to_tensor(data.train.images)
    beforehand = any(step.name in ("zca", "lcn") for step in normalize.steps) and images.numel() * 4 < 2**32
    return Batches(
        normalize.apply_all(data.train.images) if beforehand else images,
        torch.from_numpy(data.train.labels),
        config.run.batch_size,
        seed=config.run.seed,
        shuffle=config.data.shuffle,
        normalize=None if beforehand else normalize,
        augment=AUGMENTATIONS[config.data.augment],
        side=config.side,
        rank=processes.rank,
        world=processes.world,
    )


def build_objective(config: Config, net: DeeplySupervised, only: str | None = None) -> Objective:
    """Return the objective of a config; with ``only``, that of a phase that trains one companion and what is below."""
    if only is not None and only not in net.taps:
        raise TrainingError(f"a phase trains only {only!r}; {nearest(only, net.taps)}")
    given, many = config.objective, len(net.taps) > 0
    return Objective(
        net,
        smoothed(given.loss, given.label_smoothing),
        companion_loss=companion_loss(config, net.dense),
        alpha=1.0 if only is not None else one_or_each(given.alpha) if many and given.alpha else None,
        gamma=one_or_each(given.gamma) if many else 0.0,
        balance=given.balance,
        schedule="constant" if only is not None else given.schedule,
        norms=given.norms,
        average=given.average and only is None,
        distill=given.distill if only is None else 0.0,
        distill_temperature=given.distill_temperature,
        targets=given.targets,
        class_weights=given.class_weights or None,
        ignore_index=IGNORED if net.dense else None,
    )


def smoothed(loss: str, smoothing: float) -> str | LossFunction:
    """Return a loss; softmax with smoothed labels where asked for."""
    if loss != "softmax" or not smoothing:
        return loss
    return partial(functional.cross_entropy, reduction="none", label_smoothing=smoothing)


def companion_loss(config: Config, dense: bool) -> str | LossFunction:
    """Return the companions' loss; with shuffled labels the output's own loss stays as it is."""
    given = config.objective
    loss = smoothed(given.companion_loss or given.loss, given.label_smoothing)
    if given.companion_labels == "own":
        return loss
    if dense:
        raise ConfigError("companion_labels=shuffled for images with masks; expected one label per image")
    return partial(on_shuffled_labels, find_loss(loss))


def on_shuffled_labels(loss: LossFunction, scores: Tensor, labels: Tensor) -> Tensor:
    """Return the loss under the batch's labels in a random order: it says nothing about the images, [B,K],[B] -> [B].

    The order is new at every step, so that there is nothing to memorise; the frequencies of the classes stay.
    """
    return loss(scores, labels[torch.randperm(len(labels)).to(labels.device)])


def one_or_each(values: tuple[float, ...]) -> float | tuple[float, ...]:
    """Return the one value for all companions, or one for each."""
    return values[0] if len(values) == 1 else values


class Group(NamedTuple):
    """What a parameter shares with others: its multiple of the learning rate, and how it is trained."""

    rate: float
    weight_decay: float
    head: bool = False
    """Whether it is a companion's."""
    orthogonal: bool = False
    """Whether Muon turns its steps."""


def build_optimizer(config: Config, net: DeeplySupervised) -> torch.optim.Optimizer:
    """Return SGD, AdamW or Muon over all parameters that are learned; its groups have the fields of Group."""
    groups: dict[Group, list[nn.Parameter]] = {}
    for name, parameter in net.named_parameters():
        if parameter.requires_grad:
            groups.setdefault(group_of(config, net, name, parameter), []).append(parameter)
    settings: list[dict[str, Any]] = [{"params": parameters, **group._asdict()} for group, parameters in groups.items()]
    check_rates(config, max((group.rate for group in groups), default=1.0))
    given, lr = config.optimizer, config.plan[0].lr
    if given.name == "adamw":
        return torch.optim.AdamW(settings, lr=lr)
    if given.name == "muon":
        check_muon(net.trunk, any(group.orthogonal for group in groups))
        products = torch.bfloat16 if config.run.amp == "on" else None
        return Muon(settings, products=products, lr=lr, momentum=given.momentum, nesterov=given.nesterov)
    return torch.optim.SGD(settings, lr=lr, momentum=given.momentum, nesterov=given.nesterov)


def check_rates(config: Config, largest: float) -> None:
    """Refuse learning rates that are no numbers in single precision, in which the weights are."""
    for lr in (phase.lr for phase in config.plan):
        if lr * max(largest, 1.0) > torch.finfo(torch.float32).max:
            raise ConfigError(
                f"lr={lr:g}, times {largest:g} for some weights; expected a learning rate that fits into single "
                f"precision, such as 0.03"
            )


def group_of(config: Config, net: DeeplySupervised, name: str, parameter: nn.Parameter) -> Group:
    """Return a parameter's group. Biases and norms do not decay."""
    given = config.optimizer
    decay = given.weight_decay if parameter.ndim > 1 else 0.0
    room, _, inside = name.partition(".")
    if room == "heads":
        own = net.rate_of(inside)  # companion_lr replaces the rate that a companion has of its own; decay acts on w
        return Group(given.companion_lr / own, decay * own, head=True)
    if given.name == "muon" and parameter.ndim == 4:
        return Group(given.muon_lr, 0.0, orthogonal=True)
    layer = inside.rpartition(".")[0]
    if not given.published_rates or not isinstance(net.trunk, Network) or layer not in net.trunk.published:
        return Group(1.0 if parameter.ndim > 1 else given.bias_lr, decay)
    published = net.trunk.published[layer]
    if published.decay is not None and parameter.ndim > 1:
        decay = published.decay
    return Group(published.bias_rate if inside.endswith("bias") else published.rate, decay)


def check_muon(trunk: nn.Module, turns: bool) -> None:
    """Refuse Muon where it has nothing to turn, or where nothing undoes the scale that it gives to convolutions."""
    norms = (nn.modules.batchnorm._BatchNorm, nn.GroupNorm, nn.LayerNorm)  # torch has no public name for the first
    lacks = "convolutions" if not turns else "norms" if not any(isinstance(m, norms) for m in trunk.modules()) else ""
    if lacks:
        raise TrainingError(
            f"optimizer=muon for a {type(trunk).__name__} without {lacks}; expected convolutions with BatchNorm or the "
            f"like behind them, as 'fast' has; use optimizer=sgd"
        )
