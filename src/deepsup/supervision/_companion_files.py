"""The weights of a net's companions <-> a safetensors file of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor
from torch.nn.parameter import is_lazy

from deepsup.errors import RunError, SupervisionError
from deepsup.io import check_tensor_list, faults_named, read_bounded, write_whole
from deepsup.supervision._packing import check_fits
from deepsup.supervision._pretrained import sizes_of

if TYPE_CHECKING:
    from pathlib import Path

    from deepsup.supervision._attach import DeeplySupervised

REMEDY = "expected a file that save_companions wrote"
HEADER = 2**20  # bytes of names and shapes that a file may have beside its weights


def save_heads(net: DeeplySupervised, path: Path) -> None:
    """Write the weights of all companions."""
    write_whole(path, to_bytes({name: each.detach().cpu().contiguous().clone() for name, each in known(net).items()}))


def load_heads(net: DeeplySupervised, path: Path) -> None:
    """Read weights of the same names and shapes; a file that does not fit changes nothing."""
    own = known(net)
    most = 2 * sum(each.numel() * max(4, each.element_size()) for each in own.values()) + HEADER
    with faults_named(path, RunError, REMEDY):
        content = read_bounded(path, most)
        check_tensor_list(path)
        tensors = from_bytes(content)
        check_fits(sizes_of(own), sizes_of(tensors), "the net's companions")
        for name, each in tensors.items():
            if each.is_floating_point() != own[name].is_floating_point():
                raise RunError(f"{name!r} is {each.dtype} in the file and {own[name].dtype} in the net; {REMEDY}")
    net.heads.load_state_dict(tensors)


def known(net: DeeplySupervised) -> dict[str, Tensor]:
    """Return the companions' weights, which have their sizes."""
    state: dict[str, Tensor] = net.heads.state_dict()
    if not net._sized or any(is_lazy(each) for each in state.values()):
        raise SupervisionError(
            "the net has not run yet, so its companions have no size; expected a net that ran once; give supervise an "
            "example=, or call it on a batch"
        )
    return state
