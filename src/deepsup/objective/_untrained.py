"""Warn once if the optimizer trains the model but not its companions."""

import warnings
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from deepsup.supervision import DeeplySupervised

STEPS = 5  # steps of the model without a step of its companion, before the warning


@dataclass
class Seen:
    """One parameter of a companion at its first value, and how many steps it has missed since."""

    parameter: nn.Parameter
    version: int
    value: Tensor
    missed: int = 0
    reached: bool = False
    """Whether a gradient has reached the companion since the model's last step."""

    @property
    def changed(self) -> bool:
        """Whether the parameter has changed; fused optimizers do not increment its version."""
        now = self.parameter.detach().to(self.value)  # the net may have been moved or cast
        return self.parameter._version != self.version or not torch.equal(now, self.value)


class UntrainedCompanions:
    """Detect companions that get gradients but never change while the model does: no optimizer has them.

    Steps are detected by autograd's counts of in-place changes. Detection ends as soon as every companion has changed,
    usually after one step.
    """

    def __init__(self, net: DeeplySupervised) -> None:
        self.net = net
        self._over = False
        self._trunk = 0
        self._heads: dict[str, Seen] = {}

    def look(self, losses: dict[str, Tensor]) -> None:
        """Compare the net with that of the last call; warn once. ``losses`` are those of the companions."""
        if self._over or not torch.is_grad_enabled():
            return
        trunk = sum(p._version for p in self.net.trunk.parameters() if p.requires_grad)
        if not self._heads:
            self._heads, self._trunk = self.first_look(losses), trunk
        self._heads = {name: seen for name, seen in self._heads.items() if not seen.changed}
        if trunk != self._trunk:
            self.count_step()
            self._trunk = trunk
        left_out = [name for name, seen in self._heads.items() if seen.missed >= STEPS]
        if left_out:
            warnings.warn(
                f"the optimizer has trained the model for {STEPS} steps but not its companions at "
                f"{', '.join(left_out)}; expected an optimizer for both: create it with net.parameters(), not "
                f"model.parameters()",
                UserWarning,
                stacklevel=3,
            )
        self._over = bool(left_out) or not self._heads
        for name, seen in self._heads.items():
            if losses[name].requires_grad and not self._over:
                losses[name].register_hook(partial(note_gradient, seen))  # type: ignore[no-untyped-call] # untyped

    def first_look(self, losses: dict[str, Tensor]) -> dict[str, Seen]:
        """Record one trainable parameter of every companion; a frozen companion has none."""
        parameters = {name: reversed(self.net.companion_parameters(name)) for name in losses}
        trained = {name: next((p for p in each if p.requires_grad), None) for name, each in parameters.items()}
        return {name: Seen(p, p._version, p.detach().clone()) for name, p in trained.items() if p is not None}

    def count_step(self) -> None:
        """Count a step of the model as missed by every companion that had a gradient."""
        for seen in self._heads.values():
            seen.missed += seen.reached
            seen.reached = False


def note_gradient(seen: Seen, _gradient: Tensor) -> None:
    """Record that a gradient has reached a companion; torch calls this during backward."""
    seen.reached = True
