"""The groups of settings of a Config: every field with its type, bounds, default and explanation.

The string below a field is its help on the command line, and what a message about a wrong value says of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from deepsup.errors import ConfigError
from deepsup.trainer.config._setting import Bounds, Settings, settings_of

Positive = Annotated[int, Bounds(1)]
Natural = Annotated[int, Bounds(0)]
Seed = Annotated[int, Bounds(0, 2**32 - 2)]
Amount = Annotated[float, Bounds(0)]
Fraction = Annotated[float, Bounds(0, 1)]
Divisor = Annotated[float, Bounds(1)]
Temperature = Annotated[float, Bounds(0.01)]
LossName = Literal[
    "squared_hinge", "hinge", "squared_hinge_ovr", "hinge_ovr", "softmax", "focal", "dice", "dice_ce", "balanced_bce"
]


@dataclass(frozen=True)
class Phase(Settings):
    """A stretch of training: so many epochs at its own learning rate, with the companions on or off."""

    epochs: Positive
    """passes over the training images"""
    lr: Amount
    """learning rate"""
    companions: bool = True
    """whether the companions take part"""
    only: str | None = None
    """greedy layer-wise training: this tap's companion and the layers below it alone"""
    reset_momentum: bool = False
    """begin with no momentum"""
    anneal: Literal["step", "triangular", "cosine"] = "step"
    """learning-rate schedule within this phase, as --anneal names them; step divides at anneal_at"""
    anneal_at: tuple[Natural, ...] = ()
    """epochs of this phase at whose start the learning rate is divided"""
    anneal_factor: Divisor = 20.0
    """number by which the learning rate is divided"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.only is not None and not self.companions:
            raise ConfigError(f"a phase trains only {self.only!r} with companions off; expected them on")
        if self.anneal != "step" and self.anneal_at:
            raise ConfigError(
                f"a phase has anneal={self.anneal} and anneal_at={list(self.anneal_at)}; expected one of them"
            )


@dataclass(frozen=True)
class DataSettings(Settings):
    """The images, and what is done to them before the net sees them."""

    source: str = field(default="mnist-mini", metadata={"name": "data"})
    """data set: a known name, a folder with one sub-folder per class or with images and masks, or an .npz file"""
    train_size: Positive | None = None
    """use only N training images, stratified by class"""
    validation: Natural = 0
    """number of training images held out for validation"""
    image_size: Positive | None = None
    """side in pixels to which the images of a folder are resized"""
    extra: bool = False
    """train on the extra images of SVHN too"""
    normalize: str = "standardize"
    """normalization of the pixels: none, standardize, gcn, gcn-zca or gcn-lcn"""
    augment: str = "none"
    """augmentation of the training images: none, crop, crop-flip, crop-flip-reflect, crop-alternating,
    shift-alternating or caffe"""
    sides: tuple[Positive, ...] = ()
    """sides in pixels to which training images are scaled, each for an equal share of the epochs"""
    shuffle: bool = True
    """shuffle the training images before every epoch"""


@dataclass(frozen=True)
class NetworkSettings(Settings):
    """The network that is supervised."""

    name: str = field(default="cnn", metadata={"name": "network"})
    """network: a name of deepsup networks, of torchvision or timm (resnet18), or your own: my_file.py:MyNet"""
    options: dict[str, Any] = field(default_factory=dict, metadata={"name": "network_options"})
    """options of the network"""
    output_init: Literal["own", "zero"] = "own"
    """initialization of the last layer, which gives the scores: the network's own, or zero; one that --weights brings
    stays"""
    start_from: str | None = None
    """folder of a run of the same network whose trunk's weights to start from, all but the last layer's"""
    weights: str | None = None
    """pretrained weights to start from: a file (.safetensors, or .pth with a state_dict), or published for those of
    torchvision and timm; a last layer for other classes is drawn anew"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start_from is not None and self.weights is not None:
            raise ConfigError(f"start_from={self.start_from} and weights={self.weights}; expected one of them")


@dataclass(frozen=True)
class SupervisionSettings(Settings):
    """Which layers get a companion, and what a companion is made of."""

    taps: tuple[str, ...] = field(default=("network",), metadata={"name": "at"})
    """layers that get a companion: their names, or network (the network's own choice), auto or none"""
    pool: str = "auto"
    """pooling of a feature map before its companion: auto (4x4 if the network has norm layers, else none; less
    where companions would outgrow the network), none, avg, max or a size"""
    hidden: tuple[Positive, ...] = ()
    """widths of the hidden layers of a companion"""
    companion_length: Amount = 0.0
    """length to which the features of each image are scaled before the companion; 0 is off"""
    companion_init: Literal["torch", "caffe", "zero"] = "torch"
    """initialization of the companions"""
    join: Literal["bounded", "sum"] = "bounded"
    """how a companion's gradient joins that of the layers above: their sum, shortened to the longer one (bounded), or
    their sum"""


@dataclass(frozen=True)
class ObjectiveSettings(Settings):
    """The losses of output and companions, and how they are combined."""

    loss: LossName = "softmax"
    """loss of the output; focal, dice, dice_ce and balanced_bce are for masks"""
    companion_loss: LossName | None = None
    """loss of the companions, one of those of --loss"""
    companion_labels: Literal["own", "shuffled"] = "own"
    """labels of the companions: each image's own, or as a control those of the batch in a new random order"""
    alpha: tuple[Amount, ...] = ()
    """weight of the companions: one for all, or one per tap; none: 0.5, and 0.1 at layers that return sequences"""
    gamma: tuple[Amount, ...] = (0.0,)
    """threshold at or below which a companion's loss counts as 0: one for all, or one per tap"""
    balance: Amount | Literal["softmax"] = 1.0
    """factor in front of every loss, the C of the paper; softmax: for each loss the factor with which its gradient at
    zero scores is as long as that of softmax"""
    schedule: str = "linear"
    """decay of alpha over training: constant, linear, paper or cut:FRACTION"""
    decay_by: Literal["step", "epoch"] = "step"
    """whether alpha decays at every step or at every epoch; the schedule paper always decays by epoch"""
    average: bool = False
    """take the weighted mean of the losses of output and companions instead of their sum"""
    norms: bool = False
    """add the |w|^2 terms of the paper to the objective"""
    targets: Literal["probability", "nearest", "upsample"] = "probability"
    """how masks meet companions of a lower resolution: shares of the classes, nearest pixel, or upsampled scores"""
    class_weights: tuple[Amount, ...] = ()
    """weight of each class in the losses, one per class; none: all weigh the same"""
    label_smoothing: Fraction = 0.0
    """label smoothing of a softmax loss"""
    distill: Fraction = 0.0
    """share of the companions' loss that comes from the softmax of the output instead of the labels"""
    distill_temperature: Temperature = 2.0
    """temperature of that softmax and of the companions', under --distill"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.label_smoothing and "softmax" not in (self.loss, self.companion_loss):
            raise ConfigError(f"label_smoothing={self.label_smoothing} with loss={self.loss}; expected loss=softmax")
        if self.companion_labels == "shuffled" and self.class_weights:
            raise ConfigError("companion_labels=shuffled with class_weights; expected none: they follow the own labels")


@dataclass(frozen=True)
class OptimizerSettings(Settings):
    """The optimizer, its learning rates and their schedule."""

    name: Literal["sgd", "adamw", "muon"] = field(default="sgd", metadata={"name": "optimizer"})
    """optimizer: sgd, adamw, or muon for the convolutions of a net with norm layers"""
    lr: Amount = 0.03
    """learning rate"""
    muon_lr: Amount = 0.1
    """learning rate of the convolutions under muon, as a multiple of the learning rate"""
    bias_lr: Amount = 1.0
    """learning rate of the trunk's biases and norm layers, as a multiple of the learning rate"""
    companion_lr: Amount = 1 / 8
    """learning rate of the companions, as a multiple of the learning rate"""
    companion_lr_decay: bool = False
    """multiply the companions' learning rate by (1 + 1e-4 i)^-0.75 at iteration i, as the authors' code does"""
    published_rates: bool = False
    """use the multiples of the learning rate that the network's source states for its layers"""
    momentum: Fraction = 0.9
    """momentum of sgd and muon; adamw uses the betas of torch"""
    nesterov: bool = False
    """use Nesterov momentum"""
    weight_decay: Amount = 5e-4
    """weight decay of the weights; biases and norm layers have none"""
    anneal: Literal["step", "plateau", "triangular", "cosine"] = "triangular"
    """learning-rate schedule: step (divided at --anneal-at), plateau (divided when the validation error stalls),
    triangular (up, then down in a line) or cosine (up, then down along a cosine)"""
    anneal_at: tuple[Natural, ...] = ()
    """epochs at whose start the learning rate is divided, under --anneal step"""
    anneal_factor: Divisor = 20.0
    """number by which the learning rate is divided, under --anneal step or plateau"""
    patience: Positive = 5
    """epochs without a better validation error before the learning rate is divided, under --anneal plateau"""
    warmup: Fraction = 0.2
    """fraction of training in which the learning rate rises, under --anneal triangular or cosine"""
    clip_norm: Amount = 0.0
    """norm to which a longer gradient of all weights together is shortened, before each step; 0 is off"""
    cap_norms: bool = False
    """project weights onto the norms that the network's source states, after each step"""
    ema: Fraction = 0.0
    """decay of a moving average of the weights, which is then evaluated; 0 is off"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and self.name == "adamw":
            raise ConfigError("nesterov with optimizer=adamw; expected optimizer=sgd or muon")
        if self.nesterov and not self.momentum:
            raise ConfigError(f"nesterov with momentum={self.momentum:g}; expected a momentum above 0")


@dataclass(frozen=True)
class RunSettings(Settings):
    """How long to train, where, and what to record."""

    epochs: Positive = 20
    """passes over the training images"""
    batch_size: Positive = 128
    """images per step, over all processes; train and compare take fewer where your own images are few"""
    phases: tuple[Phase, ...] = ()
    """phases of training with their own epochs and lr, which replace --epochs and --lr (YAML only)"""
    seed: Seed = 0
    """seed of all random numbers"""
    device: str = "auto"
    """device: auto (a GPU where there is one, else the CPU), cpu, cuda or cuda:N"""
    amp: Literal["auto", "on", "off"] = "off"
    """mixed precision, bfloat16 in place of float32 where it is safe: auto (where this machine is fast in it, decided
    once, when the run begins), on or off"""
    full_precision: tuple[str, ...] = ()
    """layers that stay in float32 under --amp: their names, or none; without this option those that are slower in
    bfloat16, measured when the run begins"""
    amp_test: bool = False
    """measure errors in the precision of --amp too; without it, in float32"""
    tta: Literal["none", "flip", "shift", "flip-shift"] = "none"
    """test-time augmentation, views of each image whose scores are averaged where errors are measured: none, flip (the
    image and its mirror image), shift (moved by a pixel along each diagonal) or flip-shift (both)"""
    compile: bool = False
    """compile the net with torch.compile"""
    limit_steps: Positive | None = None
    """stop after N steps in all, for a trial"""
    test: bool = True
    """measure the test error at the end"""
    test_every: Natural = 0
    """record the test error every N epochs; 0 is at the end only"""
    validate_every: Natural = 1
    """record the validation error every N epochs; 0 is at the end only"""
    gradient_every: Natural = 10
    """record gradient statistics every N steps; 0 is off"""
    select: Literal["last", "best"] = "last"
    """weights to keep, of the last or of the best epoch by validation error"""
    checkpoint_minutes: Amount = 2.0
    """minutes between checkpoints"""
    checkpoint_steps: Positive | None = None
    """steps between checkpoints"""
    tensorboard: bool = True
    """write TensorBoard events if the package tensorboard is installed"""
    keep: Positive = 2
    """number of checkpoints to keep"""
    snapshots: Natural = 0
    """number of epochs whose weights deepsup demo can show, the last one among them; 0 is off"""


GROUPS: dict[str, type[Settings]] = {
    "data": DataSettings,
    "network": NetworkSettings,
    "supervision": SupervisionSettings,
    "objective": ObjectiveSettings,
    "optimizer": OptimizerSettings,
    "run": RunSettings,
}
"""The groups by name, in the order of the help."""
PLACES = {setting.name: (group, setting.field) for group, kind in GROUPS.items() for setting in settings_of(kind)}
"""Name of a setting -> its group and its field there."""
