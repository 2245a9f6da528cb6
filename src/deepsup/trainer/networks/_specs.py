"""The registered networks: their builders, the sizes of their papers, and remarks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from deepsup.trainer.networks._conventional import CNN_OPTIONS, TREE_OPTIONS, cnn, tree_cifar100
from deepsup.trainer.networks._dropconnect import OPTIONS as DROPCONNECT_OPTIONS
from deepsup.trainer.networks._dropconnect import dropconnect_cifar, dropconnect_svhn
from deepsup.trainer.networks._fast import OPTIONS as FAST_OPTIONS
from deepsup.trainer.networks._fast import fast
from deepsup.trainer.networks._maxout import OPTIONS as MAXOUT_OPTIONS
from deepsup.trainer.networks._maxout import maxout_cifar, maxout_mnist, maxout_svhn
from deepsup.trainer.networks._nin import OPTIONS as NIN_OPTIONS
from deepsup.trainer.networks._nin import nin_cifar, nin_mnist, nin_svhn
from deepsup.trainer.networks._plain import OPTIONS as PLAIN_OPTIONS
from deepsup.trainer.networks._plain import plain
from deepsup.trainer.networks._rows import Network
from deepsup.trainer.networks._stochastic_pooling import OPTIONS as STOCHASTIC_OPTIONS
from deepsup.trainer.networks._stochastic_pooling import stochastic_pooling, stochastic_pooling_svhn
from deepsup.trainer.networks._unet import OPTIONS as UNET_OPTIONS
from deepsup.trainer.networks._unet import UNetNetwork, unet_small


@dataclass(frozen=True)
class Spec:
    """One network: the function that adds its rows and returns its taps, and its defaults."""

    name: str
    build: Callable[..., tuple[str, ...]]
    in_channels: int
    image_size: int
    source: str
    note: str
    num_classes: int = 10
    options: Mapping[str, object] = field(default_factory=dict)
    any_size: bool = False
    network: type[Network] = Network


_nin = partial(
    Spec,
    source="Lin et al. 2014",
    note="sizes published; without NIN's final ReLU, as in DSN",
    options=NIN_OPTIONS,
    any_size=True,
)
_maxout = partial(Spec, source="Goodfellow et al. 2013", note="sizes published", options=MAXOUT_OPTIONS)
_stochastic = partial(
    Spec,
    source="Zeiler & Fergus 2013",
    note="sizes from memory; padding and response norm are chosen",
    options=STOCHASTIC_OPTIONS,
)
_dropconnect = partial(Spec, source="Wan et al. 2013", options=DROPCONNECT_OPTIONS)

SPECS = {
    spec.name: spec
    for spec in (
        Spec(
            "cnn", cnn, 1, 28, "LeNet, sizes of Caffe's", options=CNN_OPTIONS, note="sizes chosen: the paper gives none"
        ),
        _dropconnect(
            "dropconnect-cifar10",
            dropconnect_cifar,
            3,
            24,
            note="sizes published; the table's 9.32 % is an ensemble of 12 nets, one has 11.10 %",
        ),
        _dropconnect(
            "dropconnect-svhn",
            dropconnect_svhn,
            3,
            28,
            note="sizes published; the table's 1.94 % is an ensemble of 5 nets, one has 2.23 %",
        ),
        Spec(
            "fast",
            fast,
            3,
            32,
            "after Page 2018, cifar10-airbench",
            note="not from the paper: a trunk for CPUs",
            options=FAST_OPTIONS,
            any_size=True,
        ),
        _maxout("maxout-cifar10", maxout_cifar, 3, 32),
        _maxout("maxout-mnist", maxout_mnist, 1, 28),
        _maxout("maxout-svhn", maxout_svhn, 3, 32),
        _nin("nin-cifar10", nin_cifar, 3, 32),
        _nin("nin-cifar100", nin_cifar, 3, 32, num_classes=100),
        _nin("nin-mnist", nin_mnist, 1, 28),
        _nin("nin-svhn", nin_svhn, 3, 32),
        Spec(
            "plain",
            plain,
            1,
            28,
            "for the study of depth",
            note="not from the paper: a plain net of any depth",
            options=PLAIN_OPTIONS,
            any_size=True,
        ),
        _stochastic("stochastic-pooling-cifar10", stochastic_pooling, 3, 32),
        _stochastic("stochastic-pooling-mnist", stochastic_pooling, 1, 28),
        _stochastic("stochastic-pooling-svhn", stochastic_pooling_svhn, 3, 32),
        Spec(
            "tree-cifar100",
            tree_cifar100,
            3,
            32,
            "Srivastava & Salakhutdinov 2013",
            note="sizes from memory; the table's 36.85 % uses a learned tree, the option prior a given one",
            num_classes=100,
            options=TREE_OPTIONS,
        ),
        Spec(
            "unet-small",
            unet_small,
            1,
            64,
            "after Ronneberger et al. 2015",
            note="not from the paper: a U-Net for CPUs, scores of every pixel",
            num_classes=11,
            options=UNET_OPTIONS,
            any_size=True,
            network=UNetNetwork,
        ),
    )
}
