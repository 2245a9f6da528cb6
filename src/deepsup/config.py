"""All settings of a run, frozen and checked: keywords or a YAML file in, a Config out. Needs no torch."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import yaml

from deepsup.errors import ConfigError, nearest
from deepsup.reading import read_yaml

GROUPS = ("data", "network", "supervision", "objective", "optimization", "run")
"""The settings of a Config by subject, in the order of the help."""


def knob(default: Any, doc: str, *, among: str = "", **facts: Any) -> Any:
    """Return a field of the Config with its explanation and the values it may have.

    facts: group; least and most; metavar, a value's name in the help; unset, what a default of None or () means.
    """
    facts = {"group": "", "least": None, "most": None, "metavar": "", "unset": "none"} | facts
    facts |= {"doc": doc, "among": among.split()}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=facts)
    if default is dataclasses.MISSING:
        return field(metadata=facts)
    return field(default=default, metadata=facts)


_data, _network, _supervision, _objective, _optimization, _run = (partial(knob, group=group) for group in GROUPS)


@dataclass(frozen=True)
class Phase:
    """A stretch of training: so many epochs at its own learning rate, with the companions on or off."""

    epochs: int = knob(dataclasses.MISSING, "passes over the training images", least=1)
    lr: float = knob(dataclasses.MISSING, "learning rate", least=0)
    companions: bool = knob(True, "whether the companions take part")
    only: str | None = knob(None, "greedy layer-wise training: this tap's companion and the layers below it alone")
    reset_momentum: bool = knob(False, "begin with no momentum")
    anneal_at: tuple[int, ...] = knob((), "epochs of this phase at whose start lr is divided", least=0)
    anneal_factor: float = knob(20.0, "what lr is divided by", least=1)

    def __post_init__(self) -> None:
        coerce(self)
        if self.only is not None and not self.companions:
            raise ConfigError(f"a phase trains only {self.only!r} with companions off; expected them on")


@dataclass(frozen=True)
class Config:
    """All settings of a run. Every field is an option of ``deepsup train`` and a key of its YAML file."""

    data: str = _data(
        "mnist-mini",
        "data set: a known name, a folder with one sub-folder per class, or an .npz file",
        metavar="NAME|PATH",
    )
    train_size: int | None = _data(None, "use only N training images, stratified by class", least=1, unset="all")
    validation: int = _data(0, "number of training images held out for validation", least=0)
    image_size: int | None = _data(
        None, "side in pixels to which the images of a folder are resized", least=1, unset="as they are"
    )
    extra: bool = _data(False, "train on the extra images of SVHN too")
    normalize: str = _data("standardize", "normalization of the pixels: none, standardize, gcn, gcn-zca or gcn-lcn")
    augment: str = _data(
        "none",
        "augmentation of the training images: none, crop, crop-flip, crop-flip-reflect, crop-alternating, "
        "shift-alternating or caffe",
    )
    sides: tuple[int, ...] = _data(
        (),
        "sides in pixels to which training images are scaled, each for an equal share of the epochs",
        least=1,
        unset="as they are",
    )
    shuffle: bool = _data(True, "shuffle the training images before every epoch")
    network: str = _network(
        "cnn", "network: a registered name (deepsup networks) or package.module:factory", metavar="NAME"
    )
    network_options: dict[str, Any] = _network({}, "options of the network", metavar="KEY=VALUE ...")  # noqa: RUF009 - it gives a field
    taps: tuple[str, ...] = _supervision(
        ("network",), "layers that get a companion: their names, or network (the network's own choice), auto or none"
    )
    pool: str = _supervision(
        "4", "pooling of a feature map before its companion: none, avg, max or a size", metavar="NAME|INT"
    )
    hidden: tuple[int, ...] = _supervision((), "widths of the hidden layers of a companion", least=1)
    companion_length: float = _supervision(
        8.0, "length to which the features of each image are scaled before the companion; 0 is off", least=0
    )
    companion_init: str = _supervision("zero", "initialization of the companions", among="zero torch caffe")
    loss: str = _objective(
        "softmax", "loss of the output", among="squared_hinge hinge squared_hinge_ovr hinge_ovr softmax"
    )
    companion_loss: str | None = _objective(
        None, "loss of the companions, one of those of --loss", unset="the output's"
    )
    alpha: tuple[float, ...] = _objective((0.3,), "weight of the companions: one for all, or one per tap", least=0)
    gamma: tuple[float, ...] = _objective(
        (0.0,), "threshold at or below which a companion's loss counts as 0: one for all, or one per tap", least=0
    )
    balance: float = _objective(1.0, "factor in front of every loss, the C of the paper", least=0)
    schedule: str = _objective("linear", "decay of alpha over training: constant, linear, paper or cut:FRACTION")
    average: bool = _objective(True, "take the weighted mean of the losses of output and companions; off: their sum")
    norms: bool = _objective(False, "add the |w|^2 terms of the paper to the objective")
    label_smoothing: float = _objective(0.0, "label smoothing of a softmax loss", least=0, most=1)
    epochs: int = _optimization(20, "passes over the training images", least=1)
    batch_size: int = _optimization(128, "images per step, over all processes", least=1)
    lr: float = _optimization(0.03, "learning rate", least=0)
    optimizer: str = _optimization(
        "sgd", "optimizer: sgd, or muon for the convolutions of a net with norm layers", among="sgd muon"
    )
    muon_lr: float = _optimization(
        0.1, "learning rate of the convolutions under muon, as a multiple of the learning rate", least=0
    )
    bias_lr: float = _optimization(
        1.0, "learning rate of the trunk's biases and norm layers, as a multiple of the learning rate", least=0
    )
    momentum: float = _optimization(0.9, "momentum of SGD and Muon", least=0, most=1)
    nesterov: bool = _optimization(False, "use Nesterov momentum")
    weight_decay: float = _optimization(5e-4, "weight decay of the weights; biases and norm layers have none", least=0)
    anneal: str = _optimization(
        "triangle",
        "learning-rate schedule: epochs (divided at --anneal-at), stall (divided when the validation error stalls) "
        "or triangle (up, then down)",
        among="epochs stall triangle",
    )
    anneal_at: tuple[int, ...] = _optimization(
        (), "epochs at whose start the learning rate is divided, under --anneal epochs", least=0
    )
    anneal_factor: float = _optimization(20.0, "number by which the learning rate is divided", least=1)
    patience: int = _optimization(
        5, "epochs without a better validation error before the learning rate is divided, under --anneal stall", least=1
    )
    warmup: float = _optimization(
        0.2, "fraction of training in which the learning rate rises, under --anneal triangle", least=0, most=1
    )
    head_lr: float = _optimization(1.0, "learning rate of the companions, as a multiple of the learning rate", least=0)
    head_lr_decay: bool = _optimization(
        False, "multiply the companions' learning rate by (1 + 1e-4 i)^-0.75 at iteration i, as the authors' code does"
    )
    published_rates: bool = _optimization(
        False, "use the multiples of the learning rate that the network's source states for its layers"
    )
    cap_norms: bool = _optimization(
        False, "project weights onto the norms that the network's source states, after each step"
    )
    ema: float = _optimization(
        0.0, "decay of a moving average of the weights, which is then evaluated; 0 is off", least=0, most=1
    )
    phases: tuple[Phase, ...] = _optimization(
        (), "phases of training with their own epochs and lr, which replace --epochs and --lr (YAML only)"
    )
    seed: int = _run(0, "seed of all random numbers", least=0, most=2**32 - 2)
    device: str = _run("cpu", "device: cpu, cuda or cuda:N")
    amp: bool = _run(False, "train in mixed precision (bfloat16)")
    compile: bool = _run(False, "compile the net with torch.compile")
    limit_steps: int | None = _run(None, "stop after N steps in all, for a trial", least=1, unset="no limit")
    test: bool = _run(True, "measure the test error at the end")
    test_every: int = _run(0, "record the test error every N epochs; 0 is at the end only", least=0)
    validate_every: int = _run(1, "record the validation error every N epochs; 0 is at the end only", least=0)
    gradient_every: int = _run(10, "record gradient statistics every N steps; 0 is off", least=0)
    select: str = _run(
        "last", "weights to keep, of the last or of the best epoch by validation error", among="last best"
    )
    checkpoint_minutes: float = _run(2.0, "minutes between checkpoints", least=0)
    checkpoint_steps: int | None = _run(None, "steps between checkpoints", least=1, unset="by the minutes only")
    tensorboard: bool = _run(True, "write TensorBoard events if the package tensorboard is installed")
    keep: int = _run(2, "number of checkpoints to keep", least=1)

    def __post_init__(self) -> None:
        coerce(self)
        if (self.anneal == "stall" or self.select == "best") and not self.validation:
            raise ConfigError(
                f"anneal={self.anneal} select={self.select} without validation images; expected some to judge by; "
                f"set validation, e.g. --validation 100"
            )
        if (self.anneal == "stall" or self.select == "best") and self.validate_every != 1:
            raise ConfigError(
                f"validate_every={self.validate_every} with anneal={self.anneal} select={self.select}; expected 1: "
                f"they judge every epoch"
            )
        if self.nesterov and not self.momentum:
            raise ConfigError(f"nesterov with momentum={self.momentum:g}; expected a momentum above 0")
        if self.label_smoothing and "softmax" not in (self.loss, self.companion_loss):
            raise ConfigError(f"label_smoothing={self.label_smoothing} with loss={self.loss}; expected loss=softmax")

    @property
    def plan(self) -> tuple[Phase, ...]:
        """The phases of training: those given, or a single one."""
        if self.phases:
            return self.phases
        stops = self.anneal_at if self.anneal == "epochs" else ()
        return (Phase(self.epochs, self.lr, anneal_at=stops, anneal_factor=self.anneal_factor),)

    @property
    def total_epochs(self) -> int:
        """The epochs of all phases."""
        return sum(phase.epochs for phase in self.plan)

    def side(self, epoch: int) -> int | None:
        """Return what training images are scaled to in an epoch; None: they stay as they are."""
        return self.sides[epoch * len(self.sides) // self.total_epochs] if self.sides else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain types: what YAML and a checkpoint hold."""
        plain: dict[str, Any] = plain_types(dataclasses.asdict(self))
        return plain

    @staticmethod
    def from_dict(given: Mapping[str, Any], where: str = "config") -> Config:
        """Make a Config of keys and values; unknown keys are refused with the nearest name."""
        known = [f.name for f in fields(Config)]
        for key in given:
            if key not in known:
                raise ConfigError(f"{where}: no knob {key!r}; {nearest(str(key), known)}")
        return Config(**given)

    @staticmethod
    def recorded(given: Mapping[str, Any], where: str = "config") -> Config:
        """Make a Config of what a run or a record holds; settings that are newer than it are as they were then."""
        return Config.from_dict({"companion_length": 0.0, "average": False, **given}, where)

    @staticmethod
    def from_yaml(path: str | os.PathLike[str]) -> Config:
        """Read a Config from a YAML file of keys and values."""
        return Config.from_dict(read_yaml(path), str(path))

    def to_yaml(self) -> str:
        """Return the Config as a YAML file."""
        return yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True)


def plain_types(value: Any) -> Any:
    """Turn tuples into lists, all the way down."""
    if isinstance(value, dict):
        return {key: plain_types(each) for key, each in value.items()}
    return [plain_types(each) for each in value] if isinstance(value, list | tuple) else value


def coerce(settings: Config | Phase) -> None:
    """Put every value into its knob's own type, or refuse it."""
    for knob_ in fields(settings):
        object.__setattr__(settings, knob_.name, coerced(knob_, getattr(settings, knob_.name)))


def coerced(knob_: dataclasses.Field[Any], value: Any) -> Any:
    """Return a value in the knob's own type, or refuse it in the words the user typed."""
    name, kind = knob_.name, str(knob_.type)
    if name == "phases":
        if not isinstance(value, list | tuple):
            raise ConfigError(f"phases={value!r}; expected a list of phases, each with epochs and lr")
        return tuple(phase if isinstance(phase, Phase) else as_phase(phase) for phase in value)
    if value is None and kind.endswith("None"):
        return None
    if kind.startswith("tuple"):
        many = value if isinstance(value, list | tuple) else (value,)
        return tuple(checked(knob_, each, kind[len("tuple[") :].split(",")[0]) for each in many)
    return checked(knob_, value, kind.split(" ")[0].split("[")[0])


def checked(knob_: dataclasses.Field[Any], value: Any, kind: str) -> Any:
    """Return one value as ``kind``, within what the knob allows."""
    name, meta = knob_.name, knob_.metadata
    if kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if kind == "float" and isinstance(value, str):
        with suppress(ValueError):
            value = float(value)  # YAML reads 1e-3 as a word
    if kind == "str" and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # YAML reads pool: 4 as a number
    if type(value).__name__ != kind:
        raise ConfigError(f"{name}={value!r}; expected {kind}: {meta['doc']}")
    if kind in ("int", "float"):
        least, most = meta["least"], meta["most"]
        if not math.isfinite(value) or (least is not None and value < least) or (most is not None and value > most):
            low = "" if least is None else f"at least {least:g}"
            high = "" if most is None else f" and at most {most:g}"
            raise ConfigError(f"{name}={value}; expected a number of {low}{high}: {meta['doc']}")
    if meta["among"] and value not in meta["among"]:
        raise ConfigError(f"{name}={value!r}; {nearest(str(value), meta['among'])}")
    return value


def as_phase(given: Any) -> Phase:
    """Make a phase of keys and values."""
    known = [f.name for f in fields(Phase)]
    if not isinstance(given, Mapping):
        raise ConfigError(f"a phase is {given!r}; expected keys and values: {', '.join(known)}")
    for key in given:
        if key not in known:
            raise ConfigError(f"a phase has no key {key!r}; {nearest(str(key), known)}")
    if not {"epochs", "lr"} <= given.keys():
        raise ConfigError(f"phase {dict(given)}; expected at least epochs and lr")
    return Phase(**given)
