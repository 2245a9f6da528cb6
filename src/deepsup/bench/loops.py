"""A task -> the same training by our loop, by the plain loop of PyTorch's tutorials, by Lightning and by skorch.

All begin with the same weights and have the same net, batch size, loss (softmax), optimizer (SGD with momentum) and
augmentation (random crop and mirror). A turn is one pass over the task's images; building a trainer does not count.
"""

import logging
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from deepsup.bench.packages import missing, torchvision_transforms
from deepsup.bench.timing import Ratio, ratio, take_turns
from deepsup.config import Config
from deepsup.data import Dataset
from deepsup.networks import create_network
from deepsup.preprocess import fit
from deepsup.training.build import build_batches, build_net
from deepsup.training.distributed import Processes
from deepsup.training.loop import Training
from deepsup.training.memory import kept_memory

MOMENTUM = 0.9


@dataclass(frozen=True, eq=False)
class Task:
    """What all loops are to do. ``random`` is for shuffling and augmentation; without, all see the same batches."""

    network: str
    data: Dataset
    batch_size: int = 128
    lr: float = 0.01
    random: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    """Of the network."""

    def net(self) -> nn.Module:
        """Return the network with the task's own first weights."""
        torch.manual_seed(0)
        channels, size, _ = self.data.shape
        classes = len(self.data.classes)
        return create_network(self.network, num_classes=classes, in_channels=channels, image_size=size, **self.options)


@dataclass(frozen=True, eq=False)
class Side:
    """One way to do a task: ``turn`` passes over the images once and returns the seconds; ``net`` is what it trains."""

    turn: Callable[[], float]
    net: nn.Module


def ours(task: Task, gradient_every: int = Config().run.gradient_every) -> Side:
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
    )
    net = build_net(config, len(task.data.classes), task.data.shape)
    net.trunk.load_state_dict(task.net().state_dict())
    processes = Processes()
    batches = build_batches(config, task.data, fit(config.data.normalize, task.data), processes)
    epochs = Training(config, net, batches, processes).epochs()

    def turn() -> float:
        with kept_memory():  # as an experiment does; the others get their turns without
            began = time.perf_counter()
            next(epochs)
            return time.perf_counter() - began

    return Side(turn, net.trunk)


def tutorial(task: Task, workers: int = 0) -> Side:
    """Return the loop of PyTorch's "Training a Classifier": DataLoader, transforms a sample, ``loss.item()``."""
    net, loader = task.net().train(), loader_of(task, workers)
    optimizer = torch.optim.SGD(net.parameters(), lr=task.lr, momentum=MOMENTUM)
    criterion = nn.CrossEntropyLoss()

    def turn() -> float:
        began, running_loss = time.perf_counter(), 0.0
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = criterion(net(inputs), labels)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
        return time.perf_counter() - began

    return Side(turn, net)


def lightning(task: Task) -> Side:
    """Return PyTorch Lightning: a module as its first page has it; no logger, checkpoints or bar to slow it."""
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

    return Side(turn, module.net)


def skorch(task: Task) -> Side:
    """Return skorch's NeuralNet; no validation split and nothing printed to slow it."""
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

    return Side(turn, net.module_)


@dataclass(frozen=True)
class Rival:
    """Another loop: what it needs installed, and how it is made."""

    packages: tuple[str, ...]
    make: Callable[[Task], Side]


RIVALS = {
    "tutorial": Rival(("torchvision",), tutorial),
    "tutorial_with_workers": Rival(("torchvision",), lambda task: tutorial(task, workers=2)),
    "lightning": Rival(("torchvision", "pytorch_lightning"), lightning),
    "skorch": Rival(("torchvision", "skorch"), skorch),
}


def measure_loops(task: Task, rounds: int, absent: Callable[[str, list[str]], None]) -> dict[str, Any]:
    """Return ``loop_over_RIVAL``, our images a second over theirs (None: not installed), and all rates.

    ``absent`` is told of a rival that is not installed, and what it lacks.
    """
    sides, makers = {"deepsup": ours(task).turn}, {}
    for name, rival in RIVALS.items():
        lacks = missing(rival.packages)
        if lacks:
            absent(f"loop_over_{name}", lacks)
        else:
            makers[name] = rival.make
    sides |= {name: make(task).turn for name, make in makers.items()}
    seconds = take_turns(dict(sides), rounds)
    found: dict[str, Ratio | None] = {
        f"loop_over_{name}": ratio(seconds[name], seconds["deepsup"]) if name in makers else None for name in RIVALS
    }
    images = len(task.data.train)
    rates = {name: images / float(np.median(each)) for name, each in seconds.items()}
    return {"ratios": found, "images_per_second": rates}


class Samples(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """A data set as the tutorials have it: one image at a time, through torchvision's transforms."""

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
    """Return a DataLoader over them; its workers stay alive between turns, so that starting them does not count."""
    return DataLoader(
        samples_of(task),
        task.batch_size,
        shuffle=task.random,
        num_workers=workers,
        persistent_workers=workers > 0,
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Lightning's advice about hardware and workers to itself."""
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
