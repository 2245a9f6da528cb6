"""Every knob of a run, frozen and checked: keywords or a YAML file in, a Config out. Needs no torch."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from deepsup.errors import ConfigError, nearest


def knob(default: Any, doc: str, *, least: float | None = None, most: float | None = None, among: str = "") -> Any:
    """Return a field of the Config with its explanation and the values it may have."""
    checks = {"doc": doc, "least": least, "most": most, "among": among.split()}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=checks)
    if default is dataclasses.MISSING:
        return field(metadata=checks)
    return field(default=default, metadata=checks)


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
    """What a run is made of. Every field is a flag of ``deepsup train`` and a key of its YAML file."""

    # data
    data: str = knob("mnist-mini", "a data set's name, a folder with one sub-folder a class, or an .npz")
    train_size: int | None = knob(None, "train on so many images, in the classes' proportions", least=1)
    validation: int = knob(0, "images held out of training, for annealing and for choosing the epoch", least=0)
    image_size: int | None = knob(None, "for a folder of images: resize to this height and width", least=1)
    extra: bool = knob(False, "svhn: train on its extra part too")
    normalize: str = knob("standardize", "how pixels become numbers: none, standardize, gcn, gcn-zca, gcn-lcn")
    augment: str = knob("none", "none, crop-flip, crop-flip-reflect, crop-alternating, shift-alternating, crop, caffe")
    sides: tuple[int, ...] = knob(
        (), "scale training images to these sides, each for an equal share of epochs", least=1
    )
    shuffle: bool = knob(True, "a new order every epoch; the authors' code had a fixed one")
    # network
    network: str = knob("cnn", "a registered network, or package.module:factory for your own")
    network_options: dict[str, Any] = knob({}, "options of the network, key=value")  # noqa: RUF009 - it gives a field
    # supervision
    taps: tuple[str, ...] = knob(("network",), "layers with companions: names, or network (its own), auto, none")
    pool: str = knob("none", "how a companion pools a map: none, avg, max or a size")
    hidden: tuple[int, ...] = knob((), "widths of a companion's hidden layers", least=1)
    companion_init: str = knob("torch", "initial weights of the companions", among="torch caffe")
    # objective
    loss: str = knob("squared_hinge", "of the output", among="squared_hinge hinge squared_hinge_ovr hinge_ovr softmax")
    companion_loss: str | None = knob(None, "of the companions, where it is another one than the output's")
    alpha: tuple[float, ...] = knob((0.3,), "weight of the companions: one for all, or one a tap", least=0)
    gamma: tuple[float, ...] = knob((0.0,), "threshold of the companions: one for all, or one a tap", least=0)
    balance: float = knob(1.0, "C, in front of every loss", least=0)
    schedule: str = knob("constant", "decay of alpha: constant, paper, linear or cut:F")
    norms: bool = knob(False, "the paper's |w|^2 terms in the objective")
    label_smoothing: float = knob(0.0, "of a softmax loss", least=0, most=1)
    # optimisation
    epochs: int = knob(20, "passes over the training images", least=1)
    batch_size: int = knob(128, "images a step, of all processes together", least=1)
    lr: float = knob(0.005, "learning rate", least=0)
    optimizer: str = knob("sgd", "muon: turn steps of convolutions, which norms must follow", among="sgd muon")
    muon_lr: float = knob(0.1, "muon: the convolutions' learning rate as a multiple", least=0)
    bias_lr: float = knob(1.0, "the learning rate of the trunk's biases and norms as a multiple", least=0)
    momentum: float = knob(0.9, "of SGD and of Muon", least=0, most=1)
    nesterov: bool = knob(False, "Nesterov's momentum")
    weight_decay: float = knob(5e-4, "of weights, not of biases and norms", least=0)
    anneal: str = knob(
        "triangle", "divide lr: at epochs, or stall; or let it go up and down", among="epochs stall triangle"
    )
    anneal_at: tuple[int, ...] = knob((), "epochs at whose start lr is divided by anneal_factor", least=0)
    anneal_factor: float = knob(20.0, "what lr is divided by (the paper's is 20)", least=1)
    patience: int = knob(5, "stall: epochs without a better validation error before lr is divided", least=1)
    warmup: float = knob(0.2, "triangle: the fraction of training in which lr goes up", least=0, most=1)
    head_lr: float = knob(0.01, "the companions' learning rate as a multiple", least=0)
    head_lr_decay: bool = knob(False, "companions' rate times (1 + 1e-4 i)^-0.75 at iteration i, as the authors' code")
    published_rates: bool = knob(False, "the network's own multiples of lr for its layers and biases")
    cap_norms: bool = knob(False, "keep weights within the network's published norms after each step")
    ema: float = knob(0.0, "average weights with this decay and evaluate those; 0 is off", least=0, most=1)
    phases: tuple[Phase, ...] = knob((), "stretches of training with their own lr; they replace epochs and lr")
    # the run
    seed: int = knob(0, "of everything random", least=0, most=2**32 - 2)
    device: str = knob("cpu", "cpu, cuda or cuda:N")
    amp: bool = knob(False, "mixed precision (bfloat16)")
    compile: bool = knob(False, "torch.compile the net")
    limit_steps: int | None = knob(None, "stop after so many steps in all: a smoke run", least=1)
    test: bool = knob(True, "read the test set at the end")
    test_every: int = knob(0, "record the test error every so many epochs; 0 is at the end only", least=0)
    validate_every: int = knob(1, "judge the validation images every so many epochs; 0 is at the end only", least=0)
    gradient_every: int = knob(10, "record gradient statistics at every so many steps of an epoch; 0 is off", least=0)
    select: str = knob("last", "keep the weights of the last epoch or of the best validation error", among="last best")
    checkpoint_minutes: float = knob(2.0, "save at the first step after so many minutes", least=0)
    checkpoint_steps: int | None = knob(None, "save every so many steps", least=1)
    tensorboard: bool = knob(True, "write TensorBoard events, where the package tensorboard is installed")
    keep: int = knob(2, "how many of the last checkpoints to keep", least=1)

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
    def from_yaml(path: str | os.PathLike[str]) -> Config:
        """Read a Config from a YAML file of keys and values."""
        try:
            given = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}; expected a YAML file of settings") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
        if not isinstance(given, dict):
            raise ConfigError(f"{path} holds a {type(given).__name__}; expected keys and values, e.g. 'epochs: 20'")
        return Config.from_dict(given, str(path))

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
