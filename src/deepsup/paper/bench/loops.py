"""The same training with our loop, with the loop of PyTorch's tutorials, with Lightning and with skorch.

All have the same initial weights, net, batch size, loss (softmax), optimizer (SGD with momentum) and augmentation
(random crop and flip). A turn is one pass over the images of the task; the set-up of a trainer does not count.
"""

import logging
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from deepsup.exits import Ratio, Turn, ratio, take_turns
from deepsup.paper.bench.packages import missing, torchvision_transforms
from deepsup.trainer.config import Config
from deepsup.trainer.data import Dataset
from deepsup.trainer.networks import create_network
from deepsup.trainer.preprocess import fit
from deepsup.trainer.training import Processes, Training, build_batches, build_net, kept_memory

MOMENTUM = 0.9


@dataclass(frozen=True, eq=False)
class Task:
    """The training that all loops do. Without ``random`` (shuffling, augmentation) all see the same batches."""

    network: str
    data: Dataset
    batch_size: int = 128
    lr: float = 0.01
    random: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the network."""
    bfloat16: bool = False
    """Whether our loop and the tutorial's train in it, under autocast."""

    def net(self) -> nn.Module:
        """Return the network with the initial weights of the task."""
        torch.manual_seed(0)
        channels, size, _ = self.data.shape
        classes = len(self.data.classes)
        return create_network(self.network, num_classes=classes, in_channels=channels, image_size=size, **self.options)


@dataclass(frozen=True, eq=False)
class Loop:
    """A training loop: ``turn`` makes one pass over the images and returns the seconds; ``net`` is the trained net."""

    turn: Callable[[], float]
    net: nn.Module


def ours(task: Task, gradient_every: int = Config().run.gradient_every) -> Loop:
    """Return our own loop, as an experiment builds it."""
    config = Config(
        network=task.network,
        network_options=task.options,
        gradient_every=gradient_every,
        taps=("none",),
        loss="softmax",
        batch_size=task.batch_size,
        augment="crop-flip" if task.random else "none",
        shuffle=task.random,
        epochs=1000,
        lr=task.lr,
        momentum=MOMENTUM,
        weight_decay=0,
        anneal="step",
        amp="on" if task.bfloat16 else "off",
    )
    net = build_net(config, len(task.data.classes), task.data.shape)
    net.trunk.load_state_dict(task.net().state_dict())
    processes = Processes()
    batches = build_batches(config, task.data, fit(config.data.normalize, task.data), processes)
    training = Training(config, net, batches, processes)

    def turn() -> float:
        with kept_memory():  # as deepsup train does; the others get their turns without
            began = time.perf_counter()
            training.train_epoch()
            return time.perf_counter() - began

    return Loop(turn, net.trunk)


def tutorial(task: Task, workers: int = 0) -> Loop:
    """Return the loop of PyTorch's "Training a Classifier": DataLoader, per-sample transforms, ``loss.item()``."""
    net, loader = task.net().train(), loader_of(task, workers)
    optimizer = torch.optim.SGD(net.parameters(), lr=task.lr, momentum=MOMENTUM)
    criterion = nn.CrossEntropyLoss()

    def turn() -> float:
        began, running_loss = time.perf_counter(), 0.0
        for inputs, labels in loader:
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=task.bfloat16):
                loss = criterion(net(inputs), labels)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
        return time.perf_counter() - began

    return Loop(turn, net)


def lightning(task: Task) -> Loop:
    """Return PyTorch Lightning with a module as in its introduction; no logger, checkpoints or progress bar."""
    import pytorch_lightning as pl

    class Classifier(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = task.net()
            self.began, self.seconds = 0.0, 0.0

        def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
            images, labels = batch
            loss = F.cross_entropy(self.net(images), labels)
            self.log("train_loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=task.lr, momentum=MOMENTUM)

        def on_train_epoch_start(self) -> None:
            self.began = time.perf_counter()

        def on_train_epoch_end(self) -> None:
            self.seconds = time.perf_counter() - self.began

    with quiet():
        module, loader = Classifier(), loader_of(task)

    def turn() -> float:
        with quiet():
            trainer = pl.Trainer(
                accelerator="cpu",
                devices=1,
                max_epochs=1,
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
            )
            trainer.fit(module, loader)
        return module.seconds

    return Loop(turn, module.net)


def skorch(task: Task) -> Loop:
    """Return skorch's NeuralNet, without a validation split or printing."""
    from skorch import NeuralNet

    samples = samples_of(task)
    net = NeuralNet(
        task.net(),
        criterion=nn.CrossEntropyLoss,
        optimizer=torch.optim.SGD,
        optimizer__momentum=MOMENTUM,
        lr=task.lr,
        batch_size=task.batch_size,
        iterator_train__shuffle=task.random,
        train_split=None,
        verbose=0,
    ).initialize()

    def turn() -> float:
        began = time.perf_counter()
        net.partial_fit(samples, epochs=1)
        return time.perf_counter() - began

    return Loop(turn, net.module_)


@dataclass(frozen=True)
class OtherLoop:
    """Another loop: the packages that it needs, and its factory."""

    packages: tuple[str, ...]
    make: Callable[[Task], Loop]


OTHERS = {
    "tutorial": OtherLoop(("torchvision",), tutorial),
    "tutorial_with_workers": OtherLoop(("torchvision",), lambda task: tutorial(task, workers=2)),
    "lightning": OtherLoop(("torchvision", "pytorch_lightning"), lightning),
    "skorch": OtherLoop(("torchvision", "skorch"), skorch),
}


def measure_loops(task: Task, rounds: int, absent: Callable[[str, list[str]], None]) -> dict[str, Any]:
    """Return ``loop_over_NAME``, our images per second over theirs (None: not installed), and all rates.

    ``absent`` is called for a loop that is not installed, with the missing packages.
    """
    turns, makers = {"deepsup": ours(task).turn}, {}
    for name, other in OTHERS.items():
        lacks = missing(other.packages)
        if lacks:
            absent(f"loop_over_{name}", lacks)
        else:
            makers[name] = other.make
    turns |= {name: make(task).turn for name, make in makers.items()}
    seconds = take_turns(dict(turns), rounds)
    ratios: dict[str, Ratio | None] = {
        f"loop_over_{name}": ratio(seconds[name], seconds["deepsup"]) if name in makers else None for name in OTHERS
    }
    images = len(task.data.train)
    rates = {name: images / float(np.median(each)) for name, each in seconds.items()}
    return {"ratios": ratios, "images_per_second": rates}


def measure_bfloat16(task: Task, rounds: int) -> dict[str, Any]:
    """Return our loop in bfloat16 over the tutorial's in either precision (None: not installed), and all rates."""
    half = replace(task, bfloat16=True)
    turns: dict[str, Turn] = {"deepsup in bfloat16": ours(half).turn}
    if not missing(OTHERS["tutorial"].packages):
        turns |= {"tutorial in bfloat16": tutorial(half).turn, "tutorial": tutorial(task).turn}
    seconds = take_turns(turns, rounds)
    ratios = {"loop_over_tutorial": "tutorial in bfloat16", "loop_over_tutorial_in_float32": "tutorial"}
    mine, images = seconds["deepsup in bfloat16"], len(task.data.train)
    return {
        "ratios": {key: ratio(seconds[name], mine) if name in seconds else None for key, name in ratios.items()},
        "images_per_second": {
            name: images / float(np.median(each)) for name, each in seconds.items() if "bfloat16" in name
        },
    }


class Samples(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """A data set as in the tutorials: one image at a time, through torchvision's transforms."""

    def __init__(self, task: Task) -> None:
        transforms = torchvision_transforms()
        mean, deviation = fit("standardize", task.data).arrays[0].values()
        shake = [transforms.RandomCrop(task.data.shape[-1], padding=4), transforms.RandomHorizontalFlip()]
        self.transform = transforms.Compose(
            [
                *(shake if task.random else []),
                transforms.ToTensor(),
                transforms.Normalize(mean.tolist(), deviation.tolist()),
            ]
        )
        self.images = np.ascontiguousarray(task.data.train.images.transpose(0, 2, 3, 1))  # [N,H,W,C]
        self.labels = task.data.train.labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        from PIL import Image

        return self.transform(Image.fromarray(self.images[index])), int(self.labels[index])


def samples_of(task: Task) -> Samples:
    """Return the task's images, one at a time."""
    return Samples(task)


def loader_of(task: Task, workers: int = 0) -> DataLoader[tuple[Tensor, int]]:
    """Return a DataLoader of the task; its workers stay alive between turns, so that their start does not count."""
    return DataLoader(
        samples_of(task),
        task.batch_size,
        shuffle=task.random,
        num_workers=workers,
        persistent_workers=workers > 0,
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Lightning's advice about hardware and workers."""
    logger = logging.getLogger("pytorch_lightning")
    level = logger.level
    logger.setLevel(logging.ERROR)
    logging.getLogger("pytorch_lightning.utilities.rank_zero").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
