"""Start a run from the trunk of another one: all its weights but those of the last layer, which is drawn anew."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from deepsup.errors import RunError
from deepsup.supervision import DeeplySupervised
from deepsup.trainer.config import Config
from deepsup.trainer.runs.folder import RunFolder
from deepsup.trainer.runs.model import digest_of, part_of, read_model

GONE = "gone"
"""In place of a digest: the run to start from is no longer there."""


def start_trunk(net: DeeplySupervised, config: Config, begun: bool = False) -> str | None:
    """Give the trunk the weights of the run that ``start_from`` names; return their digest, or None without a run.

    The last layer keeps what was drawn, since its classes are others. Companions are never carried over.

    begun: whether the training goes on from a checkpoint, so that the run to start from may be gone.
    """
    if config.network.start_from is None:
        return None
    if begun and not Path(config.network.start_from).exists():
        return GONE
    where = f"start_from={config.network.start_from}"
    try:
        about, tensors = read_model(RunFolder(config.network.start_from))
    except RunError as error:
        raise RunError(f"{where}: {error}") from error
    if (network := about["config"].get("network")) != config.network.name:
        raise RunError(f"{where} is a run of the network {network}; expected one of {config.network.name}")
    drawn, last = net.trunk.state_dict(), last_layer(net)
    held, wanted = (
        {name: tensor for name, tensor in each.items() if not name.startswith(last)}
        for each in (part_of(tensors, "net.trunk."), drawn)
    )
    check_fit(where, held, wanted)
    net.trunk.load_state_dict(drawn | held)
    return digest_of(network, held)


def last_layer(net: DeeplySupervised) -> str:
    """Return the beginning of the names of its weights: those of the layer that gives the scores."""
    return next(f"{name}." for name, layer in net.trunk.named_modules() if layer is net.output_layer)


def check_fit(where: str, held: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Refuse weights of other names or shapes, naming the first."""
    for name in sorted(held.keys() | wanted.keys()):
        theirs, ours = (list(each[name].shape) if name in each else "not there" for each in (held, wanted))
        if theirs != ours:
            raise RunError(
                f"{where}: its {name} is {theirs}, that of the network to train {ours}; expected the same images' "
                f"shape and the same network_options"
            )
