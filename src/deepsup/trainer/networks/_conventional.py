"""The two conventional nets: convolutions, poolings, fully connected layers.

B batch, C channels, H W map, K classes.
"""

from collections.abc import Sequence
from typing import Any

from torch import nn

from deepsup.errors import NetworkError
from deepsup.trainer.networks._initialization import draw_weights
from deepsup.trainer.networks._numbers import probability
from deepsup.trainer.networks._rows import Published, Rows
from deepsup.trainer.networks._tree_prior import CIFAR100_TREE, TreePrior

CNN_OPTIONS: dict[str, object] = {"drop": 0.5, "init": "torch"}
"""``drop``: the probability of the two dropouts, before each fully connected layer. ``init``: ``"torch"``, ``"he"`` or
``"caffe"``."""


def cnn(table: Rows, num_classes: int, **options: Any) -> tuple[str, ...]:
    """Build a conventional CNN for MNIST: 431,080 parameters for 10 classes.

    Not published: the paper says "conventional CNN" and gives no sizes, and we did not find those of its table's CNN
    (Jarrett et al. 2009, 0.53 %). Chosen: LeNet as in Caffe's MNIST example (5x5 20, 5x5 50, FC 500), with a ReLU
    after every hidden layer and the paper's two dropouts of 0.5. Maps of a 28x28 image: 20 at 24x24; 12x12;
    50 at 8x8; 4x4; 500; K.
    """
    drop = probability("drop", options["drop"])
    for block, width in enumerate((20, 50), 1):
        table.conv(f"conv{block}", width, 5)
        table.relu(f"relu{block}")
        table.max_pool(f"pool{block}", 2, 2)
    table.flatten()
    table.add("drop1", nn.Dropout(drop))
    table.linear("fc1", 500)
    table.relu("relu3")
    table.add("drop2", nn.Dropout(drop))
    table.linear("scores", num_classes)
    draw_weights(table.layers.values(), options["init"])
    return ("conv1", "conv2")


TREE_OPTIONS: dict[str, object] = {"prior": None, "init": "torch"}
"""``prior``: lambda1 and lambda2 of the tree-based prior, such as ``[5e-4, 5e-4]``; ``None`` leaves it out. ``init``:
``"torch"``, ``"he"`` or ``"caffe"``."""


def tree_cifar100(table: Rows, num_classes: int, **options: Any) -> tuple[str, ...]:
    """Build the net of the tree-based prior on CIFAR-100: 13,925,988 parameters for 100 classes.

    Source: Srivastava & Salakhutdinov 2013 [from memory of the paper, not checked against its text]. The sizes (5x5
    convolutions of 96, 128, 256, max pooling 3/2, two FC of 2048, keep rates .9 .75 .75 .5 .5 .5, norms capped at 4)
    are those of Srivastava's dropout net for SVHN; that this paper uses it is from memory. Padding 2 is chosen. Maps
    of a 32x32 image: 96 at 32x32; 16x16; 128 at 16x16; 8x8; 256 at 8x8; 4x4; 2048; 2048; K.

    The option ``prior`` puts a ``TreePrior`` over CIFAR-100's superclasses on the weights of ``scores``.
    """
    capped = Published(cap=4.0)
    table.add("drop0", nn.Dropout(0.1))
    for block, (width, drop) in enumerate(((96, 0.25), (128, 0.25), (256, 0.5)), 1):
        table.conv(f"conv{block}", width, 5, padding=2, published=capped)
        table.relu(f"relu{block}")
        table.max_pool(f"pool{block}", 3, 2)
        table.add(f"drop{block}", nn.Dropout(drop))
    table.flatten()
    for layer in (4, 5):
        table.linear(f"fc{layer}", 2048, published=capped)
        table.relu(f"relu{layer}")
        table.add(f"drop{layer}", nn.Dropout(0.5))
    prior = None if options["prior"] is None else _superclasses(options["prior"], num_classes)
    table.linear("scores", num_classes, published=Published(cap=4.0, prior=prior))
    draw_weights(table.layers.values(), options["init"])
    return ("conv1", "conv2", "conv3")


def _superclasses(lambdas: object, num_classes: int) -> TreePrior:
    """Return the prior over CIFAR-100's superclasses."""
    if not isinstance(lambdas, Sequence) or isinstance(lambdas, str) or len(lambdas) != 2:
        raise NetworkError(f"prior is {lambdas!r}; expected lambda1 and lambda2, such as [5e-4, 5e-4]")
    if num_classes != 100:
        raise NetworkError(f"prior with {num_classes} classes; expected the 100 of CIFAR-100, whose tree it has")
    return TreePrior(CIFAR100_TREE, num_classes, *lambdas)
