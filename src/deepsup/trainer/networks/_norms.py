"""Cap the norms of weights as the papers of the networks prescribe."""

import torch
from torch import nn

from deepsup.errors import NetworkError
from deepsup.trainer.networks._numbers import number
from deepsup.trainer.networks._rows import Network


@torch.no_grad()
def cap_norms(model: nn.Module) -> None:
    """Scale down, in place, every filter or unit whose weights exceed their layer's published L2 cap.

    Call it after each optimizer step. The caps are those in ``published`` of every ``Network`` inside ``model``,
    so it may be wrapped; a network without caps does not change.
    """
    for network in model.modules():
        if isinstance(network, Network):
            for name, published in network.published.items():
                if published.cap is not None:
                    cap_rows(network.get_parameter(f"{name}.weight"), published.cap)


@torch.no_grad()
def cap_rows(weight: torch.Tensor, cap: float) -> None:
    """Scale down, in place, each ``weight[i]`` whose L2 norm is above ``cap``: a filter, a unit's piece, a class."""
    if number("cap", cap, least=0) == 0:
        raise NetworkError("cap is 0; expected a number above 0, as a cap of 0 would erase the weights")
    weight.renorm_(2, 0, cap)
