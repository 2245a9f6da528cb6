"""The layers of the networks in the paper's tables; they work in any model."""

from deepsup.trainer.networks.layers._dropconnect_linear import DropConnectLinear
from deepsup.trainer.networks.layers._dropout import UnscaledDropout
from deepsup.trainer.networks.layers._local import LocallyConnected2d
from deepsup.trainer.networks.layers._maxout_units import MaxoutConv2d, MaxoutLinear
from deepsup.trainer.networks.layers._mirror import (
    MirrorConv2d,
    MirrorMaximum,
    MirrorNorm2d,
    MirrorPooledConv2d,
    swapped,
)
from deepsup.trainer.networks.layers._response_norm import cross_map_norm
from deepsup.trainer.networks.layers._scale import Scale
from deepsup.trainer.networks.layers._stochastic_pool import StochasticPool2d
from deepsup.trainer.networks.layers._whitening import WhiteningConv2d

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
