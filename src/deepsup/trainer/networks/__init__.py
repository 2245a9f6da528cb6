"""The networks of the paper's tables, including the methods it compares with, as plain ``nn.Module``.

They do not depend on supervision. ``taps`` names the layers that conventionally get a companion.
"""

from deepsup.trainer.networks._fast import fit_whitening
from deepsup.trainer.networks._own_network import (
    Factory,
    current_folder_searched,
    is_file,
    own_network,
    trusted_factory,
)
from deepsup.trainer.networks._registry import NetworkDescription, create_network, describe, list_networks
from deepsup.trainer.networks._rows import Network, Published, cap_norms, cap_rows
from deepsup.trainer.networks._specs import SPECS
from deepsup.trainer.networks._tree_prior import CIFAR100_TREE, TreePrior
from deepsup.trainer.networks._zoo import full_name, published_weights
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

__all__ = [
    "CIFAR100_TREE",
    "SPECS",
    "DropConnectLinear",
    "Factory",
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
    "current_folder_searched",
    "describe",
    "fit_whitening",
    "full_name",
    "is_file",
    "list_networks",
    "own_network",
    "published_weights",
    "trusted_factory",
]
