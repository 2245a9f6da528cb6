"""Scores [B,K] -> the same scores times a constant."""

from torch import Tensor, nn

from deepsup.networks.numbers import number


class Scale(nn.Module):
    """Multiply by a fixed number: scores that start small keep a loss from saturating at the first steps."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = number("factor of Scale", factor, least=0)

    def forward(self, x: Tensor) -> Tensor:
        """[...] -> [...]."""
        return x * self.factor

    def extra_repr(self) -> str:
        """The settings, for ``print(network)``."""
        return f"{self.factor:g}"
