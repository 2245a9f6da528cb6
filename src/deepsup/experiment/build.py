"""A config -> the batches, the network and the supervised net of a run.

C channels, H height, W width.
"""

import os
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from deepsup.config import Config
from deepsup.data import Dataset
from deepsup.errors import ConfigError, DeepsupError, TrainingError, nearest
from deepsup.experiment.own_network import own_network
from deepsup.networks import Network, create_network
from deepsup.preprocess import AUGMENTATIONS, Normalizer, to_tensor
from deepsup.supervision import Companion, DeeplySupervised, supervise
from deepsup.training.batches import Batches, scaled
from deepsup.training.distributed import Processes


def build_net(config: Config, classes: int, shape: Sequence[int]) -> DeeplySupervised:
    """Return the supervised net for images [C,H,W]; what is random in it comes from torch's own generator."""
    network = build_network(config, classes, shape).to(device_of(config))
    example = torch.zeros(2, *shape, device=device_of(config))
    companion = Companion(
        pool=int(config.pool) if config.pool.isdigit() else config.pool,  # type: ignore[arg-type] # it checks itself
        hidden=config.hidden,
        length=config.companion_length or None,
        init=config.companion_init,  # type: ignore[arg-type]
    )
    net = supervise(network, at=taps_of(config, network), num_classes=classes, example=example, companion=companion)
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload] # torch's stubs do not know it
    check_sides(config, net, example)
    return net


@torch.no_grad()
def check_sides(config: Config, net: DeeplySupervised, example: Tensor) -> None:
    """Refuse images of changing size where the net, or a companion on its flattened maps, takes one size only."""
    training = net.training
    for side in config.sides:
        try:
            net.eval()(scaled(example, side))
        except (DeepsupError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())[:150]
            raise ConfigError(
                f"sides={config.sides}, but {config.network} with companions of pool={config.pool} takes no images of "
                f"{side} ({reason}); expected a net that ends in a global pooling, such as fast, and --pool avg"
            ) from error
    net.train(training)


def build_network(config: Config, classes: int, shape: Sequence[int]) -> nn.Module:
    """Return a registered network, or what the user's own factory gives."""
    channels, height, width = shape
    if ":" in config.network:
        return own_network(config, classes)
    if height != width:
        side = max(height, width)
        remedy = f"save the arrays as {side}x{side}" if config.data.endswith(".npz") else f"give --image-size {side}"
        raise ConfigError(
            f"images of {height}x{width} for {config.network}, which takes square ones; {remedy}, or bring a network "
            f"of your own: --network package.module:factory"
        )
    return create_network(
        config.network, num_classes=classes, in_channels=channels, image_size=height, **config.network_options
    )


def taps_of(config: Config, network: nn.Module) -> str | list[str]:
    """Return the layers to tap: named ones, the network's own, those that "auto" finds, or none."""
    if config.taps in (("none",), ()):
        return []
    if config.taps == ("network",):
        return list(network.taps) if isinstance(network, Network) else "auto"
    return "auto" if config.taps == ("auto",) else list(config.taps)


def device_of(config: Config) -> torch.device:
    """Return the device, if it is there."""
    try:
        device = torch.device(config.device)
    except RuntimeError as error:
        raise ConfigError(f"device={config.device!r}; expected cpu, cuda or cuda:N") from error
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device={config.device!r}; expected cpu, cuda or cuda:N")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise TrainingError(f"device={config.device}, but torch finds no CUDA here; use --device cpu")
    if device.type == "cuda" and device.index is None and "LOCAL_RANK" in os.environ:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))  # torchrun: a GPU for each process
        torch.cuda.set_device(device)
    return device


def train_batches(config: Config, data: Dataset, normalize: Normalizer, processes: Processes) -> Batches:
    """Return the batches of the training part, normalised beforehand where that is slow."""
    if config.augment not in AUGMENTATIONS:
        raise ConfigError(f"augment={config.augment!r}; {nearest(config.augment, AUGMENTATIONS)}")
    images: Tensor = to_tensor(data.train.images)
    beforehand = any(step.name in ("zca", "lcn") for step in normalize.steps) and images.numel() * 4 < 2**32
    return Batches(
        normalize.apply_all(data.train.images) if beforehand else images,
        torch.from_numpy(data.train.labels),
        config.batch_size,
        seed=config.seed,
        shuffle=config.shuffle,
        normalize=None if beforehand else normalize,
        augment=AUGMENTATIONS[config.augment],
        side=config.side,
        rank=processes.rank,
        world=processes.world,
    )
