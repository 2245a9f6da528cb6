"""The layers of the networks in the paper's tables; they work in any model."""

from deepsup.trainer.networks.layers.dropconnect_linear import DropConnectLinear
from deepsup.trainer.networks.layers.dropout import UnscaledDropout
from deepsup.trainer.networks.layers.local import LocallyConnected2d
from deepsup.trainer.networks.layers.maxout_units import MaxoutConv2d, MaxoutLinear
from deepsup.trainer.networks.layers.mirror import (
    MirrorConv2d,
    MirrorMaximum,
    MirrorNorm2d,
    MirrorPooledConv2d,
    swapped,
)
from deepsup.trainer.networks.layers.response_norm import cross_map_norm
from deepsup.trainer.networks.layers.scale import Scale
from deepsup.trainer.networks.layers.stochastic_pool import StochasticPool2d
from deepsup.trainer.networks.layers.whitening import WhiteningConv2d

__all__ = [
    "DropConnectLinear",
    "LocallyConnected2d",
    "MaxoutConv2d",
    "MaxoutLinear",
    "MirrorConv2d",
    "MirrorMaximum",
    "MirrorNorm2d",
    "MirrorPooledConv2d",
    "Scale",
    "StochasticPool2d",
    "UnscaledDropout",
    "WhiteningConv2d",
    "cross_map_norm",
    "swapped",
]
