"""Cut a model off behind a tapped layer: a smaller model that ends in the tap's companion (UNet++'s fast mode)."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from deepsup.errors import SupervisionError
from deepsup.supervision._taps import Tap, one_tensor, part_of, place_of
from deepsup.supervision._trace import Call, Trace


class ReachedError(Exception):
    """The tapped layer has run: carries its output out of the model's forward. Only used in this module."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self.output = output


class Stop:
    """Ends the forward pass of the model; a hook of the tapped layer.

    call: after how many calls of the layer; 0: after the only one.
    """

    def __init__(self, call: int) -> None:
        self.call, self.calls = call, 0

    def __call__(self, _layer: nn.Module, _args: Any, output: Any) -> None:
        """Take note of a call."""
        self.calls += 1
        if self.calls >= self.call:
            raise ReachedError(output)


class Pruned(nn.Module):
    """A model that ends at a tapped layer and returns the scores of its companion. See ``DeeplySupervised.strip``.

    trunk: the layers up to the tap, under their old names. head: the companion.
    """

    def __init__(self, trunk: nn.Module, head: nn.Module, tap: Tap, later: Iterable[str]) -> None:
        super().__init__()
        self.trunk, self.head, self.tap, self.stop = trunk, head, tap, Stop(tap.call)
        for name in later:
            parent, _, child = name.rpartition(".")
            trunk.get_submodule(parent)._modules[child] = None  # not deleted: a list keeps its indices
        trunk.get_submodule(place_of(tap.name).layer).register_forward_hook(self.stop)
        self.training = trunk.training

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Run the model up to the tap; return the companion's scores [B,K] or [B,K, ...]."""
        name, self.stop.calls = self.tap.name, 0
        try:
            self.trunk(*args, **kwargs)
        except ReachedError as reached:
            part = part_of(name, reached.output, self.tap.select)
        except (TypeError, AttributeError) as error:
            raise SupervisionError(
                f"{type(self.trunk).__name__} cannot be cut at {name!r}: it needs a later layer first ({error}); "
                f"expected a model that runs its layers in order; keep a later tap, or the whole model, net.strip()"
            ) from error
        else:
            raise SupervisionError(f"layer {name!r} did not run, so the model has no end; expected it to run once")
        batch = part.shape[self.tap.batch_at] if isinstance(part, Tensor) else 0
        scores: Tensor = self.head(self.tap.at_step(one_tensor(name, [part], batch, self.tap.batch_at)))
        return scores


def later_layers(model: nn.Module, call: Call, seen: Trace) -> tuple[str, ...]:
    """Return the names of the modules that run only after a call, without those inside them.

    A module that never runs is not among them, since the model may use its weights directly.
    """
    before, after = set(seen.begun[: call.begun]), set(seen.begun[call.begun :])
    layers: list[str] = []
    for name, layer in model.named_modules(remove_duplicate=False):  # a module may have two names
        inside = set(layer.modules())
        if inside & after and not inside & before and not any(name.startswith(f"{outer}.") for outer in layers):
            layers.append(name)
    return tuple(layers)
