"""The networks of the paper's tables, including the methods it compares with, as plain ``nn.Module``.

They do not depend on supervision. ``taps`` names the layers that conventionally get a companion.
"""

from deepsup.trainer.networks.fast import fit_whitening
from deepsup.trainer.networks.layers import (
    DropConnectLinear,
    LocallyConnected2d,
    MaxoutConv2d,
    MaxoutLinear,
    StochasticPool2d,
    UnscaledDropout,
    WhiteningConv2d,
    cross_map_norm,
)
from deepsup.trainer.networks.norms import cap_norms, cap_rows
from deepsup.trainer.networks.registry import NetworkDescription, create_network, describe, list_networks
from deepsup.trainer.networks.rows import Network, Published
from deepsup.trainer.networks.tree_prior import CIFAR100_TREE as CIFAR100_TREE
from deepsup.trainer.networks.tree_prior import TreePrior, prior_penalty

__all__ = [
    "DropConnectLinear",
    "LocallyConnected2d",
    "MaxoutConv2d",
    "MaxoutLinear",
    "Network",
    "NetworkDescription",
    "Published",
    "StochasticPool2d",
    "TreePrior",
    "UnscaledDropout",
    "WhiteningConv2d",
    "cap_norms",
    "cap_rows",
    "create_network",
    "cross_map_norm",
    "describe",
    "fit_whitening",
    "list_networks",
    "prior_penalty",
]
