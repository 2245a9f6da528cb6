"""Network in Network, as in the code of its authors and of the authors of DSN.

B batch, C channels, H W map, K classes.
"""

from typing import Any

from torch import nn

from deepsup.errors import NetworkError
from deepsup.trainer.networks._initialization import draw_weights
from deepsup.trainer.networks._numbers import choice, number, probability
from deepsup.trainer.networks._rows import Published, Rows
from deepsup.trainer.networks.layers import UnscaledDropout

OPTIONS: dict[str, object] = {
    "final_relu": False, "dropout": "inverted", "drop": 0.5, "init": "torch", "width": 1.0, "norm": "none",
}  # fmt: skip
"""``final_relu``: NIN has a ReLU after its last 1x1 convolution, DSN has none. ``dropout``: ``"inverted"`` is torch's,
``"caffe"`` that of DSN's code (mask in training, times 1 - drop in evaluation). ``drop``: its probability; both papers
say 0.5. ``init``: ``"torch"`` is torch's, ``"caffe"`` draws weights from N(0, 0.05) and sets biases to 0, ``"he"``
draws Kaiming normal and sets biases to 0. ``width``: multiplies the published widths; 0.5 costs a quarter. ``norm``:
``"batch"`` adds a BatchNorm after every convolution but the last, whose maps are the scores; no paper has it."""

# kernel of the first convolution of each block (padded to keep the size), then its three widths; the last width is K
_CIFAR = ((5, 192, 160, 96), (5, 192, 192, 192), (3, 192, 192))
_MNIST = ((5, 96, 64, 48), (5, 128, 96, 48), (5, 128, 96))
_SVHN = ((5, 128, 96, 64), (5, 320, 256, 128), (5, 384, 256))

_LAYER = Published(rate=1.0, bias_rate=2.0)
_LAST = Published(rate=0.1, bias_rate=0.2)


def nin_cifar(table: Rows, num_classes: int, **options: Any) -> tuple[str, ...]:
    """Build NIN for CIFAR-10 and CIFAR-100: 966,986 parameters for 10 classes, 984,356 for 100.

    Source: Lin et al. 2014 (``NIN/*`` of the authors' cuda-convnet) and the Caffe code of DSN: all published.
    Maps of a 32x32 image: conv1 192, 160, 96 at 32x32; 16x16; conv2 192, 192, 192 at 16x16; 8x8; conv3 (3x3) 192,
    192, K at 8x8; average over all. Pooling 3/2 in ceil mode.
    """
    return _nin(table, _CIFAR, num_classes, **options)


def nin_mnist(table: Rows, num_classes: int, **options: Any) -> tuple[str, ...]:
    """Build NIN for MNIST: 349,674 parameters for 10 classes.

    Source: ``NIN/mnist_def`` of the authors' cuda-convnet: published. Maps of a 28x28 image: 96, 64, 48 at 28x28;
    14x14; 128, 96, 48 at 14x14; 7x7; 128, 96, K at 7x7; average over all. All three first convolutions are 5x5.
    """
    return _nin(table, _MNIST, num_classes, **options)


def nin_svhn(table: Rows, num_classes: int, **options: Any) -> tuple[str, ...]:
    """Build NIN for SVHN: 1,986,026 parameters for 10 classes.

    Source: the authors' cuda-convnet definition: published (but not its training schedule). Maps of a 32x32 image:
    128, 96, 64 at 32x32; 16x16; 320, 256, 128 at 16x16; 8x8; 384, 256, K at 8x8; average over all. All 5x5.
    """
    return _nin(table, _SVHN, num_classes, **options)


def _nin(
    table: Rows,
    blocks: tuple[tuple[int, ...], ...],
    num_classes: int,
    *,
    final_relu: bool,
    dropout: str,
    drop: float,
    init: str,
    width: float,
    norm: str,
) -> tuple[str, ...]:
    """Add the rows; the taps are the raw outputs of the first convolution of each block, as in DSN's code."""
    if not isinstance(final_relu, bool):
        raise NetworkError(f"final_relu is {final_relu!r}; expected True (NIN) or False (DSN)")
    choice("dropout", dropout, ("inverted", "caffe"))
    probability("drop", drop)
    number("width", width, least=0.01, most=100)
    choice("norm", norm, ("none", "batch"))
    for block, (kernel, *widths) in enumerate(blocks, 1):
        if block > 1:
            table.max_pool(f"pool{block - 1}", 3, 2)
            caffe = dropout == "caffe"
            table.add(f"drop{block - 1}", UnscaledDropout(drop, 1 - drop) if caffe else nn.Dropout(drop))
        widths = [max(1, round(width * each)) for each in widths]
        widths = [*widths, num_classes] if block == len(blocks) else widths
        for name, channels, side in zip(
            (f"conv{block}", f"mlp{block}a", f"mlp{block}b"), widths, (kernel, 1, 1), strict=True
        ):
            is_last = name == f"mlp{len(blocks)}b"
            table.conv(name, channels, side, padding=side // 2, published=_LAST if is_last else _LAYER)
            if norm == "batch" and not is_last:
                table.add(f"norm_{name}", nn.BatchNorm2d(channels))
            if final_relu or not is_last:
                table.relu(f"relu_{name}")
    table.average()
    draw_weights(table.layers.values(), init)
    return tuple(f"conv{block}" for block in range(1, len(blocks) + 1))
