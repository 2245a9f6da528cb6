"""One function per row of the paper's tables -> its Config; and the quick ones for a CPU.

What the paper does not say (rates, epochs, C, alpha, gamma) was chosen, and is marked so; settings of the rivals are
those that ``docs/networks.md`` gives with their sources. What a recipe cannot do of its source's protocol stands in its
docstring.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deepsup.errors import ConfigError, nearest
from deepsup.trainer.config import Config, Phase

FLAT: dict[str, Any] = {
    "pool": "none", "companion_init": "torch", "companion_length": 0.0, "average": False, "join": "sum",
    "decay_by": "epoch",
}  # fmt: skip
"""A linear classifier on the flattened map, as in the paper; its loss is added to the output's."""
WEAK: dict[str, Any] = {
    "pool": "4", "companion_init": "zero", "companion_length": 8.0, "average": True, "join": "sum",
    "decay_by": "epoch", "alpha": (0.3,), "schedule": "linear", "companion_lr": 1.0,
}  # fmt: skip
"""The first defaults, until November 2026: they harmed nothing and helped little. Records made with them keep them."""
FLAT_COMPANIONS: dict[str, Any] = {"alpha": (1.0,), "schedule": "constant", "companion_lr": 0.01, **FLAT}
"""The same with what the paper leaves open: a constant alpha, and a hundredth of the learning rate for companions."""
PRINTED: dict[str, Any] = {"alpha": (1.0,), "schedule": "paper", "companion_lr": 1.0, "norms": True, **FLAT}
"""The objective as the paper prints it, ``Objective.paper``, and nothing that it leaves open."""


def quick() -> Config:
    """The main job: NIN, the paper's own net, of a quarter of its width, on 500 digits; ten seconds on a laptop.

    Net, rate and budget were chosen on other digits (dev/LOG.md); a narrow net needs less dropout.
    """
    return Config(
        train_size=500, network="nin-mnist", network_options={"init": "he", "width": 0.25, "drop": 0.3},
        normalize="none", epochs=30, batch_size=25, lr=0.03, anneal="cosine",
    )  # fmt: skip


# the paper's protocol: SGD, batch 128, momentum 0.9, two dropouts of 0.5


def paper(data: str, network: str, epochs: int, normalize: str, augment: str = "none") -> Config:
    """DSN-SVM in paper mode: companions behind the pooling of each hidden block.

    Chosen: lr, weight decay, C = 10, alpha 0.3 with the paper's decay, the companions' own rate, He initialization, and
    a rate that rises for two epochs and then falls in a line, where the paper divides it by 20 at epochs that it does
    not name. At zero scores the gradient of this loss with C = 10 is 200 times that of softmax, so the rate, 0.00015,
    is that of softmax, 0.03, divided by 200: with 0.001 and torch's initialization the net did not learn.
    """
    return Config(
        data=data, network=network, network_options={"init": "he"}, normalize=normalize, augment=augment, epochs=epochs,
        batch_size=128, momentum=0.9, lr=0.00015, weight_decay=5e-4, at=("pool1", "pool2"), anneal="triangular",
        warmup=2 / epochs,
        loss="squared_hinge", norms=True, balance=10, alpha=(0.3,), schedule="paper", companion_lr=0.01, **FLAT,
    )  # fmt: skip


def dsn_mnist() -> Config:
    """MNIST, DSN: 0.39 % in the paper. No preprocessing beyond 0..1, no augmentation."""
    return paper("mnist", "nin-mnist", 100, "none")


def dsn_cifar10() -> Config:
    """CIFAR-10, DSN, no augmentation: 9.78 % in the paper."""
    return paper("cifar10", "nin-cifar10", 400, "gcn")


def dsn_cifar10_augmented() -> Config:
    """CIFAR-10, DSN, pad-crop-flip: 8.22 % in the paper."""
    return paper("cifar10", "nin-cifar10", 400, "gcn", "crop-flip")


def dsn_cifar100() -> Config:
    """CIFAR-100, DSN, no augmentation: 34.57 % in the paper."""
    return paper("cifar100", "nin-cifar100", 400, "gcn")


def dsn_svhn() -> Config:
    """SVHN, DSN: 1.92 % in the paper. Trains on extra too: ``--no-extra`` where it cannot be had."""
    return paper("svhn", "nin-svhn", 100, "gcn-lcn").replace(extra=True)


# the authors' Caffe code: docs/supervision.md has the table


def caffe_cifar10() -> Config:
    """CIFAR-10 as the authors' code trains it: three phases of 100, 240 and 60 epochs of 500 iterations, batch 100.

    The second phase's rate is divided by 20 after 100k of its own iterations, 150k in all.
    """
    return Config(
        data="cifar10", network="nin-cifar10", normalize="gcn-zca", shuffle=False, batch_size=100, momentum=0.9,
        network_options={"dropout": "caffe", "init": "caffe"}, **{**FLAT, "companion_init": "caffe"},
        loss="squared_hinge_ovr", norms=False, alpha=(1.0,), schedule="constant", weight_decay=5e-4,
        published_rates=True, companion_lr=0.001, companion_lr_decay=True, anneal="step",
        phases=(
            Phase(100, 0.025),
            Phase(240, 0.025, companions=False, reset_momentum=True, anneal_at=(200,), anneal_factor=20),
            Phase(60, 1e-4, companions=False),
        ),
    )  # fmt: skip


def caffe_cifar10_augmented() -> Config:
    """The same with the code's augmentation: window offsets 0..7 and flips."""
    return caffe_cifar10().replace(augment="caffe")


def caffe_cifar100() -> Config:
    """CIFAR-100 as the authors' code has it: softmax at all heads."""
    return caffe_cifar10().replace(data="cifar100", network="nin-cifar100", loss="softmax")


# the rivals: the trunk of each, without companions, softmax


def rival(data: str, network: str, epochs: int, lr: float, normalize: str, **more: object) -> Config:
    """A net without companions under softmax; momentum 0.9, the rate going down in a line after a short rise."""
    config = Config(
        data=data, network=network, epochs=epochs, lr=lr, normalize=normalize, at=("none",), loss="softmax",
        batch_size=128, anneal="triangular", warmup=0.01, published_rates=True,
    )  # fmt: skip
    return config.replace(**more)


def cnn_mnist() -> Config:
    """MNIST, a conventional CNN: 0.53 % in the paper (Jarrett et al. 2009, whose exact net is not known)."""
    return rival("mnist", "cnn", 50, 0.03, "standardize")


def nin_mnist() -> Config:
    """MNIST, NIN: 0.47 % in the paper."""
    return rival("mnist", "nin-mnist", 100, 0.1, "none", network_options={"final_relu": True}, weight_decay=1e-5)


def nin_cifar10() -> Config:
    """CIFAR-10, NIN, no augmentation: 10.41 % in the paper."""
    return rival("cifar10", "nin-cifar10", 260, 0.1, "gcn-zca", network_options={"final_relu": True})


def nin_cifar10_augmented() -> Config:
    """CIFAR-10, NIN, augmented: 8.81 % in the paper."""
    return nin_cifar10().replace(augment="crop-flip")


def nin_cifar100() -> Config:
    """CIFAR-100, NIN: 35.68 % in the paper."""
    return nin_cifar10().replace(data="cifar100", network="nin-cifar100")


def nin_svhn() -> Config:
    """SVHN, NIN: 2.35 % in the paper."""
    return nin_cifar10().replace(data="svhn", network="nin-svhn", normalize="gcn-lcn", epochs=100, extra=True)


def maxout_mnist() -> Config:
    """MNIST, Maxout: 0.45 % in the paper. Its momentum grows from 0.5 to 0.7; here it stays at 0.7."""
    return rival("mnist", "maxout-mnist", 100, 0.05, "none", momentum=0.7, weight_decay=0, cap_norms=True)


def maxout_cifar10() -> Config:
    """CIFAR-10, Maxout, no augmentation: 11.68 % in the paper. Momentum at its end value 0.6."""
    return rival("cifar10", "maxout-cifar10", 500, 0.17, "gcn-zca", momentum=0.6, weight_decay=0, cap_norms=True)


def maxout_cifar10_augmented() -> Config:
    """CIFAR-10, Maxout, augmented: 9.38 % in the paper. Momentum at its end value 0.65."""
    return maxout_cifar10().replace(augment="crop-flip", momentum=0.65)


def maxout_cifar100() -> Config:
    """CIFAR-100, Maxout: 38.57 % in the paper (its settings were those of CIFAR-10)."""
    return maxout_cifar10().replace(data="cifar100")


def maxout_svhn() -> Config:
    """SVHN, Maxout: 2.47 % in the paper. Momentum at its end value 0.6."""
    return maxout_cifar10().replace(
        data="svhn", network="maxout-svhn", normalize="gcn-lcn", lr=0.2, epochs=250, extra=True
    )


def stochastic_pooling_mnist() -> Config:
    """MNIST, Stochastic Pooling: 0.47 % in the paper."""
    return rival("mnist", "stochastic-pooling-mnist", 280, 0.01, "none", weight_decay=1e-3)


def stochastic_pooling_cifar10() -> Config:
    """CIFAR-10, Stochastic Pooling: 15.13 % in the paper. Its per-pixel mean is a per-channel one here."""
    return rival("cifar10", "stochastic-pooling-cifar10", 280, 0.01, "standardize", weight_decay=1e-3)


def stochastic_pooling_cifar100() -> Config:
    """CIFAR-100, Stochastic Pooling: 42.51 % in the paper."""
    return stochastic_pooling_cifar10().replace(data="cifar100")


def stochastic_pooling_svhn() -> Config:
    """SVHN, Stochastic Pooling: 2.80 % in the paper."""
    return stochastic_pooling_cifar10().replace(

        data="svhn", network="stochastic-pooling-svhn", normalize="gcn-lcn", epochs=500, extra=True,
    )  # fmt: skip


def dropconnect_cifar10() -> Config:
    """CIFAR-10, DropConnect, augmented: 9.32 % in the paper, a vote of 12 nets; one alone had 11.10 %.

    Its random 24x24 windows are whole 32x32 images here, shifted by up to 4 pixels.
    """
    return rival("cifar10", "dropconnect-cifar10", 700, 0.001, "standardize", augment="crop-flip")


def dropconnect_svhn() -> Config:
    """SVHN, DropConnect: 1.94 % in the paper, a vote of 5 nets; one alone had 2.23 %. No rotation or scaling here."""
    return rival("svhn", "dropconnect-svhn", 100, 0.001, "gcn-lcn", augment="crop", extra=True)


def tree_cifar100() -> Config:
    """CIFAR-100, tree-based priors: 36.85 % in the paper, with a learned tree; here the tree is the 20 superclasses.

    lambda1 and lambda2 are not published; 5e-4 is chosen, the usual weight decay.
    """
    config = rival("cifar100", "tree-cifar100", 200, 0.01, "gcn-zca", momentum=0.95, cap_norms=True, weight_decay=0)
    return config.replace(network_options={"prior": [5e-4, 5e-4]})


# for a CPU


def fast_cifar10() -> Config:
    """CIFAR-10, augmented, in minutes on two cores: the modern trunk, Muon, small images first.

    No companions: a trunk that starts as the identity and is normalized after every convolution gains nothing from them
    (dev/LOG.md).
    """
    return Config(
        data="cifar10", network="fast", network_options={"widths": [64, 192, 256], "mirror": True},
        augment="shift-alternating", sides=(20, 24, 32), epochs=7, batch_size=500, loss="softmax", label_smoothing=0.2,
        optimizer="muon", lr=0.6, muon_lr=0.15, bias_lr=40.0, momentum=0.85, nesterov=True, warmup=0.0,
        weight_decay=0.0015, at=("none",), amp="auto",
    )  # fmt: skip


def fast_cifar10_plain() -> Config:
    """CIFAR-10 without augmentation, within an hour on two cores: some dropout in its place."""
    options = {"widths": [64, 192, 256], "mirror": True, "drop": 0.2}
    return fast_cifar10().replace(augment="none", network_options=options)


def fast_cifar100() -> Config:
    """CIFAR-100 without augmentation, within two hours on two cores: more features and epochs, and more dropout."""
    options = {"widths": [64, 192, 512], "mirror": True, "drop": 0.3}
    return fast_cifar10_plain().replace(data="cifar100", network_options=options, epochs=16)


def fast_svhn() -> Config:
    """SVHN without its extra images: crops and no flips, since digits have a left and a right.

    Set by reasoning from fast-cifar10, not chosen on held-out images, and not yet run to its end.
    """
    return fast_cifar10().replace(
        data="svhn", augment="crop", network_options={"widths": [64, 192, 256], "drop": 0.1}, epochs=15,
    )  # fmt: skip


def fast_mnist() -> Config:
    """MNIST without augmentation, in minutes on two cores: a narrower trunk with some dropout, no companions."""
    return fast_cifar10().replace(
        data="mnist", augment="none", sides=(), network_options={"widths": [32, 64, 64], "drop": 0.2},
        epochs=12, batch_size=250, lr=0.3, muon_lr=0.15,
    )  # fmt: skip


# for early exits: companions that are trained to the end, by the labels and by the output


def exits_mnist() -> Config:
    """MNIST for early exits: a narrow first group, after which most digits can leave; minutes on one core."""
    options = {"widths": [16, 128, 192], "drop": 0.1}
    return for_exits(fast_mnist().replace(network_options=options, pool="7", epochs=2))


def exits_cifar10() -> Config:
    """CIFAR-10 for early exits: most of the work is in the last group, which easy images need not reach."""
    return for_exits(fast_cifar10().replace(network_options={"widths": [24, 96, 512]}, pool="4", epochs=4))


def for_exits(config: Config) -> Config:
    """Train the companions of the first two groups to the end; AdamW, with which their hidden layer learns in time.

    Images are held out for ``deepsup exits``, which chooses the thresholds on them; the test images are left to it.
    """
    return config.replace(
        at=("group1", "group2"), hidden=(64,), companion_length=8.0, alpha=(0.5,), schedule="constant", average=True,
        join="sum", decay_by="epoch",
        distill=0.5, optimizer="adamw", nesterov=False, lr=0.005, bias_lr=1.0, companion_lr=1.0, weight_decay=0.01,
        warmup=0.1, validation=5000, test=False, amp="off",
    )  # fmt: skip


RECIPES: dict[str, Callable[[], Config]] = {
    recipe.__name__.replace("_", "-"): recipe
    for recipe in (
        quick, dsn_mnist, dsn_cifar10, dsn_cifar10_augmented, dsn_cifar100, dsn_svhn, caffe_cifar10,
        caffe_cifar10_augmented, caffe_cifar100, cnn_mnist, nin_mnist, nin_cifar10, nin_cifar10_augmented, nin_cifar100,
        nin_svhn, maxout_mnist, maxout_cifar10, maxout_cifar10_augmented, maxout_cifar100, maxout_svhn,
        stochastic_pooling_mnist, stochastic_pooling_cifar10, stochastic_pooling_cifar100, stochastic_pooling_svhn,
        dropconnect_cifar10, dropconnect_svhn, tree_cifar100, fast_mnist, fast_cifar10,
        fast_cifar10_plain, fast_cifar100, fast_svhn, exits_mnist, exits_cifar10,
    )
}  # fmt: skip


def find_recipe(name: str) -> Config:
    """Return the Config of a recipe by its name."""
    if name not in RECIPES:
        raise ConfigError(f"no recipe {name!r}; {nearest(name, RECIPES, most=len(RECIPES))}")
    return RECIPES[name]()
